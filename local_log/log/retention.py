"""Expiry of a log's oldest segments: they are chosen, removed from the list, renamed, unlinked.

A kill between any two steps does no harm. `expire` raises the log start in memory, and the caller
makes it durable before segments are deleted.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from local_log.log.partition_log import PartitionLog
from local_log.log.results import Expiry
from local_log.log.retention_policy import (
    Reason,
    RetentionDecision,
    RetentionFacts,
    SegmentFacts,
    decide,
    is_held,
)
from local_log.log.tier_segments import open_snapshot
from local_log.segment.segment import LogSegment

log = logging.getLogger(__name__)


def learn_ages(partition_log: PartitionLog, now_ms: int) -> None:
    """Load what `expire` will read from the disk; on a pool thread.

    Raises:
        LogClosed, KafkaStorageError: From `LogSegments.on_a_copy`.
    """
    if not partition_log.is_offline:
        partition_log.hold.look_at_disk(partition_log.disk, partition_log.directory, now_ms)
        # A log that is restarted has no segments for a moment.
        partition_log.segments.on_a_copy(lambda some: some and _decide(partition_log, some, now_ms))


def expire(
    partition_log: PartitionLog, now_ms: int, *, release_copied: bool = False
) -> Expiry | None:
    """Find expired segments (`retention_policy`), and raise the log start over them in memory.

    The caller makes the new log start durable (`flush` up to it, then its checkpoint) before it
    calls `take_out`.

    Args:
        partition_log: The log.
        now_ms: Wall clock.
        release_copied: Also delete copied segments within local retention; total retention still
            applies.

    Returns:
        The segments to delete; None if there are none, and nothing changed.

    Raises:
        KafkaStorageError: The disk failed.
    """
    assert not partition_log.lease.is_leased
    if partition_log.is_offline or partition_log.cleaning.is_running:
        return None
    segments = partition_log.segments
    try:
        decision = _decide(partition_log, segments.all, now_ms, release_copied=release_copied)
    except OSError as error:
        partition_log.health.fail(error)
    if decision.roll_active:
        partition_log.roll(now_ms)
    count = len(decision.drop)
    if not count:
        start = partition_log.log_start_offset
        return Expiry((), start, now_ms) if decision.roll_active else None
    if decision.raises_log_start:
        partition_log.expire_below(segments.bases[count])
    dropped = tuple(zip(segments.bases[:count], decision.drop, strict=True))
    return Expiry(dropped, partition_log.log_start_offset, now_ms)


def _decide(
    partition_log: PartitionLog,
    segments: Sequence[LogSegment],
    now_ms: int,
    *,
    release_copied: bool = False,
) -> RetentionDecision:
    config = partition_log.config
    if release_copied and config.copies_to_remote:
        config = replace(config, local_retention_bytes=0)
    facts = RetentionFacts(
        partition_log.log_start_offset,
        partition_log.high_watermark,
        partition_log.copied_through,
        now_ms,
        partition_log.hold.kept_from(now_ms),
    )
    of_segments = _Facts(segments, partition_log.log_end_offset)
    return decide(of_segments, facts, config, size_bytes=partition_log.size_bytes)


def keep_producers(partition_log: PartitionLog, expiry: Expiry) -> None:
    """Make the producer snapshot at the new local start durable; on a pool thread.

    It has the producers of the batches that leave the disk. Without it a power cut would forget
    them, and a batch that is sent twice would be appended twice.

    Raises:
        LogClosed, KafkaStorageError: From `LogSegments.on_a_copy`.
    """
    if not expiry.dropped:
        return
    partition_log.producers.write_due()
    newest, _ = expiry.dropped[-1]

    def keep(segments: list[LogSegment]) -> None:
        kept = [one.base_offset for one in segments if one.base_offset > newest]
        if kept:  # else a truncation took them meanwhile
            partition_log.disk.fsync(open_snapshot(partition_log, segments, kept[0]))
            partition_log.disk.fsync_path(partition_log.directory)

    partition_log.segments.on_a_copy(keep)


def take_out(partition_log: PartitionLog, expiry: Expiry) -> tuple[tuple[int, Reason], ...]:
    """Remove expired segments from the log's list; then call `rename_leaving`, `delete_later`.

    Segments removed meanwhile (by a truncation) are skipped. Segments that may be deleted only
    because of their copies stay if the tier has lowered `copied_through` since, or a follower was
    directed to them.

    Returns:
        (base offset, reason) of each removed one.

    Raises:
        KafkaStorageError: The disk failed.
    """
    assert not partition_log.lease.is_leased
    segments = partition_log.segments
    count = 0
    safe_below = max(partition_log.log_start_offset, partition_log.copied_through + 1)
    held_from = partition_log.hold.kept_from(expiry.decided_ms)
    for (base_offset, reason), (found, end) in zip(
        expiry.dropped, pairwise(segments.bases), strict=False
    ):
        if base_offset != found or end > safe_below or is_held(reason, end, held_from):
            break
        count += 1
    # Segments that a cleaner reads are deleted by a later pass.
    is_kept = partition_log.is_offline or partition_log.cleaning.is_running
    if is_kept or not count:
        return ()
    partition_log.clip_chain(expiry.log_start_offset)
    try:
        partition_log.epoch_file.save_clipped()
    except OSError as error:
        partition_log.health.fail(error)
    snapshots = partition_log.producers.snapshots
    snapshots.forget(segments.bases[:count])
    size = sum(segment.size_bytes for segment in segments.take_oldest(count, snapshots))
    dropped = expiry.dropped[:count]
    log.info(
        "dropped segments: partition=%s count=%d size_bytes=%d local_start=%d reason=%s",
        partition_log.topic_partition,
        count,
        size,
        partition_log.local_log_start_offset,
        dropped[0][1].value,
    )
    return dropped


def rename_leaving(partition_log: PartitionLog) -> list[Path]:
    """Rename the files of removed segments; on a pool thread or the loop's.

    Returns:
        The new names.

    Raises:
        LogClosed: The log was closed meanwhile.
        KafkaStorageError: The disk failed.
    """
    try:
        return partition_log.segments.rename_leaving()
    except OSError as error:
        partition_log.health.fail(error)


class _Facts(Sequence[SegmentFacts]):
    """Retention facts of segments, computed on access.

    Retention reads from the oldest one on and stops at the first that stays: usually it reads one
    of thousands.
    """

    def __init__(self, segments: Sequence[LogSegment], log_end: int) -> None:
        self._segments, self._log_end = segments, log_end

    def __len__(self) -> int:
        """Number of segments."""
        return len(self._segments)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # an int here
        """Facts of one segment."""
        if index < 0:
            index += len(self._segments)
        segment = self._segments[index]
        is_last = index + 1 == len(self._segments)
        is_empty = (
            is_last and segment.size_bytes == 0
        )  # its age is not needed, and it may have no file
        return SegmentFacts(
            segment.base_offset,
            self._log_end if is_last else self._segments[index + 1].base_offset,
            segment.size_bytes,
            -1 if is_empty else segment.retention_timestamp(),
        )
