"""Look-ups in a log on pool threads, which may wait for the disk.

Each works on a copy of the list of segments while the loop appends, rolls and drops.

All raise LogClosed and KafkaStorageError as `LogSegments.on_a_copy` does.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from kafka_protocol.types import EpochEntry
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.log.partition_log import PartitionLog
from local_log.segment import time_lookup
from local_log.segment.segment import LogSegment
from local_log.segment.time_lookup import TimestampedOffset

T = TypeVar("T")


def look(log: PartitionLog, work: Callable[[list[LogSegment]], T]) -> T:
    """Run `work` on the segments, unless the log is closed: its files may be another log's then."""
    found = log.segments.on_a_copy(work)
    if log.health.is_closed:
        raise log.health.gone()
    return found


def make_ready(
    log: PartitionLog, offset: int, max_bytes: int, end: int, *, whole: bool = False
) -> None:
    """Load the bytes that `PartitionLog.read` will read, so that it does not wait.

    Args:
        log: The log.
        offset: Same meaning as in `read`.
        max_bytes: Same meaning as in `read`.
        end: `end_offset` of `read`.
        whole: Load the batches themselves, too.
    """

    def read_all(segments: list[LogSegment]) -> None:
        bases = [segment.base_offset for segment in segments]
        first = max(bisect_right(bases, offset) - 1, 0)
        for segment in segments[first:]:
            found = segment.find_batch(offset)
            if found is None:
                continue
            if end < log.log_end_offset:
                segment.find_batch(end)
            stop = min(found[0] + max_bytes, segment.size_bytes)
            segment.offset_index.first_entry_from(stop)
            if whole:
                segment.read_bytes(found[0], stop - found[0])
            break
        for segment in segments[first:]:
            if segment.has_aborted:
                segment.read_aborted()

    look(log, read_all)


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampedOffset | None:
    """Find the first local record at or above the log start not older than `timestamp` (ms).

    Raises:
        CorruptMessage: The batch of the record cannot be decoded.
    """
    return look(
        log,
        lambda segments: time_lookup.first_at_or_after(
            segments,
            timestamp,
            start=log.log_start_offset,
            topic_partition=log.topic_partition,
        ),
    )


def max_timestamp(log: PartitionLog) -> TimestampedOffset | None:
    """Find the first local record with the largest timestamp; None if no record has one.

    Raises:
        CorruptMessage: The batch of the record cannot be decoded.
    """
    return look(
        log,
        lambda segments: time_lookup.newest(
            segments, start=log.log_start_offset, topic_partition=log.topic_partition
        ),
    )


def fits_batches(log: PartitionLog, chain: Sequence[EpochEntry]) -> bool:
    """True if the epoch of each local batch is the one in `chain`."""
    cache = LeaderEpochCache(chain)
    return look(
        log,
        lambda segments: all(
            header.partition_leader_epoch in (-1, cache.epoch_for(header.base_offset))
            for segment in segments
            for _, header in segment.batches(0)
        ),
    )
