"""Chooses the next log to clean, how far, and which segments are merged. Pure.

A log is clean below the offset in its checkpoint, and dirty above. It can be cleaned up to the
first offset that must not change yet. These are the active segment, records that are uncommitted,
undecided or not yet on the disk, and records younger than `min.compaction.lag.ms`.

Source: Apache Kafka 4.3 for the order of the rules.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from local_log.config import LogConfig

RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class SourceSegment(msgspec.Struct, frozen=True):
    """The cleaner's view of a segment.

    Attributes:
        base_offset: First offset, inclusive.
        end_offset: Base offset of the next segment, exclusive.
        index_bytes, time_index_bytes: Size of its indexes; read only for a pass.
        first_timestamp: Of its first batch; read only with `max.compaction.lag.ms`.
        max_timestamp: Read only with `min.compaction.lag.ms`.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int = 0
    time_index_bytes: int = 0
    first_timestamp: int = -1
    max_timestamp: int = -1


class Range(NamedTuple):
    """The cleanable part of a log.

    Attributes:
        first_dirty: Everything below is clean.
        first_uncleanable: Exclusive end, at a segment boundary.
        clean_bytes: Size of the part below `first_dirty`.
        cleanable_bytes: Size of the part between both.
        delay_ms: By how much its oldest dirty record exceeds `max.compaction.lag.ms`; 0: it does
            not.
        resets: The checkpoint does not fit this log and must be written again.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    resets: bool

    @property
    def dirty_ratio(self) -> float:
        """Cleanable part of all bytes that a pass would read."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """True if it should be cleaned now."""
        if not self.cleanable_bytes:
            return False
        return self.delay_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio


def cleanable(
    segments: Sequence[SourceSegment],
    config: LogConfig,
    now_ms: int,
    *,
    log_start_offset: int,
    log_end_offset: int,
    stable_end: int,
    cleaned_to: int | None,
) -> Range:
    """Find the part of a log that can be cleaned now.

    Args:
        segments: The closed ones, oldest first.
        config: Of the log.
        now_ms: Wall clock.
        log_start_offset: First readable offset.
        log_end_offset: Exclusive.
        stable_end: Last stable offset; transactions above are undecided.
        cleaned_to: Offset in the checkpoint, None without an entry.
    """
    resets = cleaned_to is not None and not log_start_offset <= cleaned_to <= log_end_offset
    first_dirty = log_start_offset if cleaned_to is None or resets else cleaned_to
    dirty = [segment for segment in segments if segment.end_offset > first_dirty]
    end = stable_end
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        young = [one.base_offset for one in dirty if one.max_timestamp > youngest]
        end = min([end, *young])
    # Only whole segments are cleaned.
    end = max((s.end_offset for s in segments if s.end_offset <= end), default=log_start_offset)
    first_dirty_in = min(first_dirty, end)
    waiting = [one.first_timestamp for one in dirty if one.first_timestamp > 0]
    oldest = min(waiting, default=now_ms)
    return Range(
        first_dirty,
        end,
        clean_bytes=sum(s.size_bytes for s in segments if s.end_offset <= first_dirty_in),
        cleanable_bytes=sum(s.size_bytes for s in dirty if s.end_offset <= end),
        delay_ms=max(now_ms - config.max_compaction_lag_ms - oldest, 0),
        resets=resets,
    )


def groups(
    segments: Sequence[SourceSegment], *, segment_bytes: int, index_bytes: int
) -> Iterator[list[SourceSegment]]:
    """Group neighbours that are merged into one segment each, within the limits of a segment.

    Sizes before cleaning are used, since the result is unknown. Offsets in a segment are relative
    to its base offset, in 31 bits.
    """
    group: list[SourceSegment] = []
    size = offsets = times = 0
    for segment in segments:
        size += segment.size_bytes
        offsets += segment.index_bytes
        times += segment.time_index_bytes
        fits = (
            size <= segment_bytes
            and offsets <= index_bytes
            and times <= index_bytes
            and group
            and segment.end_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if group and not fits:
            yield group
            group = []
            size, offsets = segment.size_bytes, segment.index_bytes
            times = segment.time_index_bytes
        group.append(segment)
    if group:
        yield group
