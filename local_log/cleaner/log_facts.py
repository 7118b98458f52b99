"""What the cleaner must know of one log: noted on the loop, looked up on a pool thread."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from local_log.cleaner.policy import LogToClean, Range, SegmentToClean, cleanable
from local_log.config import LONG_MAX, LogConfig
from local_log.file_names import TXN_INDEX
from local_log.log.cleaning_job import Job, SourceSegment
from local_log.log.partition_log import PartitionLog
from local_log.segment.segment import LogSegment
from runtime.disk import Disk

MAP_BYTES_MIN: Final = 4096


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Settings of the broker.

    Attributes:
        is_enabled: `log.cleaner.enable`.
        backoff_ms: pause while nothing is due.
        map_bytes: memory for keys, the load factor applied.
        buffer_bytes: read at once.
        bytes_per_second: of reading and writing together; 0: no limit.
    """

    is_enabled: bool = True
    backoff_ms: int = 15_000
    map_bytes: int = int((128 << 20) * 0.9)
    buffer_bytes: int = 512 << 10
    bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class NotedLog:
    """A log as it was at one moment.

    Attributes:
        segments: all of them, the last one active.
        active_bytes: of the last one, up to the log end.
    """

    log: PartitionLog
    config: LogConfig
    segments: Sequence[LogSegment]
    log_start_offset: int
    log_end_offset: int
    active_bytes: int
    stable_end: int
    cleaned_to: int | None

    @classmethod
    def of(cls, log: PartitionLog, cleaned_to: int | None) -> "NotedLog":
        """Note it; on the loop."""
        return cls(
            log,
            log.config,
            list(log.segments.all),
            log.log_start_offset,
            log.log_end_offset,
            log.segments.active.size_bytes,
            log.last_stable_offset,
            cleaned_to,
        )

    def range(self, now_ms: int) -> Range:
        """What of it can be cleaned; on a pool thread.

        Raises:
            OSError: a file cannot be read, or has gone meanwhile.
        """
        config, active = self.config, self.segments[-1]
        needs_first = config.max_compaction_lag_ms != LONG_MAX
        needs_newest = config.min_compaction_lag_ms > 0
        closed = [
            SegmentToClean(
                segment.base_offset,
                following.base_offset,
                segment.size_bytes,
                first_timestamp=_first_timestamp(segment) if needs_first else -1,
                max_timestamp=segment.max_timestamp if needs_newest else -1,
            )
            for segment, following in zip(self.segments[:-1], self.segments[1:], strict=True)
        ]
        facts = LogToClean(
            closed,
            self.log_start_offset,
            active.base_offset,
            self.stable_end,
            self.cleaned_to,
            self.log_end_offset,
        )
        return cleanable(facts, config, now_ms)


def _first_timestamp(segment: LogSegment) -> int:
    if segment.first_timestamp is None and segment.size_bytes:
        segment.first_timestamp = next(
            (header.max_timestamp for _, header in segment.batches(0)), -1
        )
    return -1 if segment.first_timestamp is None else segment.first_timestamp


def make_job(
    noted: NotedLog,
    found: Range,
    producers: bytes,
    settings: CleanerSettings,
    *,
    number: int,
    token: str,
    now_ms: int,
    disk: Disk,
) -> Job:
    """Put together what the cleaner process must know; on a pool thread.

    Raises:
        OSError: a file cannot be read, or has gone meanwhile.
    """
    config, segments, ahead = noted.config, [], []
    for segment, following in zip(noted.segments[:-1], noted.segments[1:], strict=True):
        base_offset, end_offset, size = (
            segment.base_offset,
            following.base_offset,
            segment.size_bytes,
        )
        if end_offset > found.first_uncleanable:
            ahead.append(SourceSegment(base_offset, end_offset, size))
            continue
        index, times = segment.offset_index.path, segment.time_index.path
        segments.append(
            SourceSegment(base_offset, end_offset, size, disk.size(index), disk.size(times))
        )
    active = noted.segments[-1]
    ahead.append(SourceSegment(active.base_offset, noted.log_end_offset, noted.active_bytes))
    return Job(
        number=number,
        token=token,
        directory=str(noted.log.directory),
        segments=segments,
        ahead=ahead,
        first_dirty=min(found.first_dirty, found.first_uncleanable),
        aborted=[one.base_offset for one in noted.segments if disk.exists(one.path(TXN_INDEX))],
        producers=producers,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        map_bytes=max(settings.map_bytes, MAP_BYTES_MIN),
        buffer_bytes=settings.buffer_bytes,
        bytes_per_second=settings.bytes_per_second,
    )
