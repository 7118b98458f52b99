"""Which log is cleaned next, how far, and which of its segments become one. Pure.

A log is clean below the offset that its checkpoint names. From there on it is dirty, and up to the
first offset that must not be touched yet it can be cleaned: that is the active segment, what is not
committed or decided, what is not on the disk yet, and what is younger than `min.compaction.lag.ms`.

Source: Apache Kafka 4.3 for the order of the rules.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from local_log.config import LogConfig

RELATIVE_OFFSET_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SegmentToClean:
    """A closed segment as the cleaner sees it.

    Attributes:
        base_offset: first offset, inclusive.
        end_offset: the next segment's base, exclusive.
        index_bytes, time_index_bytes: of its indexes.
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


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log as the cleaner sees it.

    Attributes:
        segments: the closed ones, oldest first.
        log_start_offset: first offset that can be read.
        active_base: where the active segment begins.
        stable_end: last stable offset; what lies above may still change its meaning.
        cleaned_to: what the checkpoint says, None if it says nothing.
        log_end_offset: exclusive.
    """

    segments: Sequence[SegmentToClean]
    log_start_offset: int
    active_base: int
    stable_end: int
    cleaned_to: int | None
    log_end_offset: int


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


def cleanable(log: LogToClean, config: LogConfig, now_ms: int) -> Range:
    """Say what of a log can be cleaned now."""
    first_dirty, resets = _first_dirty(log)
    segments = log.segments
    end = min(log.stable_end, log.active_base)
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        for segment in segments:
            if segment.end_offset > first_dirty and segment.max_timestamp > youngest:
                end = min(end, segment.base_offset)
                break
    # A segment is cleaned as a whole or not at all.
    end = max((s.end_offset for s in segments if s.end_offset <= end), default=log.log_start_offset)
    first_dirty_in = min(first_dirty, end)
    clean = sum(s.size_bytes for s in segments if s.end_offset <= first_dirty_in)
    dirty = sum(s.size_bytes for s in segments if first_dirty_in < s.end_offset <= end)
    return Range(
        first_dirty, end, clean, dirty, _delay_ms(log, config, first_dirty, now_ms), resets
    )


def _first_dirty(log: LogToClean) -> tuple[int, bool]:
    at = log.cleaned_to
    if at is None:
        return log.log_start_offset, False
    if not log.log_start_offset <= at <= log.log_end_offset:
        return log.log_start_offset, True
    return at, False


def _delay_ms(log: LogToClean, config: LogConfig, first_dirty: int, now_ms: int) -> int:
    oldest = min(
        (
            segment.first_timestamp
            for segment in log.segments
            if segment.end_offset > first_dirty and segment.first_timestamp > 0
        ),
        default=None,
    )
    if oldest is None:
        return 0
    return max(now_ms - config.max_compaction_lag_ms - oldest, 0)


def groups(
    segments: Sequence[SegmentToClean], *, segment_bytes: int, index_bytes: int
) -> Iterator[list[SegmentToClean]]:
    """Neighbours that become one segment each: never larger than one may be.

    By their present sizes: what is left of them is not known before. Offsets of a segment are kept
    relative to its first, in 31 bits.
    """
    group: list[SegmentToClean] = []
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
