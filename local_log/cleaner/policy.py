"""Which log is cleaned next, how far, and which of its segments become one. Pure.

A log is clean below the offset that its checkpoint names. From there on it is dirty, and up to the
first offset that must not be touched yet it can be cleaned: that is the active segment, what is not
committed or decided, what is not on the disk yet, and what is younger than `min.compaction.lag.ms`.

Source: Apache Kafka 4.3 for the order of the rules.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from local_log.config import LogConfig

RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class SourceSegment(msgspec.Struct, frozen=True):
    """A segment as the cleaner sees it.

    Attributes:
        base_offset: first offset, inclusive.
        end_offset: the next segment's base, exclusive.
        index_bytes, time_index_bytes: of its indexes; asked only for a pass.
        first_timestamp: of its first batch; asked only where `max.compaction.lag.ms` is set.
        max_timestamp: asked only where `min.compaction.lag.ms` is set.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int = 0
    time_index_bytes: int = 0
    first_timestamp: int = -1
    max_timestamp: int = -1


class Range(NamedTuple):
    """What of a log can be cleaned.

    Attributes:
        first_dirty: everything below was cleaned.
        first_uncleanable: exclusive end; where a segment begins.
        clean_bytes: below `first_dirty`.
        cleanable_bytes: between both.
        delay_ms: how much longer its oldest dirty record waits than it may; 0: it does not.
        resets: the checkpoint speaks of another log: it must be written again.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    resets: bool

    @property
    def dirty_ratio(self) -> float:
        """Share of what can be cleaned in all that would be read."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether it is to be cleaned now."""
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
    """Say what of a log can be cleaned now.

    Args:
        segments: the closed ones, oldest first.
        config: of the log.
        now_ms: wall clock.
        log_start_offset: first offset that can be read.
        log_end_offset: exclusive.
        stable_end: last stable offset; what lies above may still change its meaning.
        cleaned_to: what the checkpoint says, None if it says nothing.
    """
    resets = cleaned_to is not None and not log_start_offset <= cleaned_to <= log_end_offset
    first_dirty = log_start_offset if cleaned_to is None or resets else cleaned_to
    dirty = [segment for segment in segments if segment.end_offset > first_dirty]
    end = stable_end
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        young = [one.base_offset for one in dirty if one.max_timestamp > youngest]
        end = min([end, *young])
    # A segment is cleaned as a whole or not at all.
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
    """Neighbours that become one segment each: never larger than one may be.

    By their present sizes: what is left of them is not known before. Offsets of a segment are kept
    relative to its first, in 31 bits.
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
