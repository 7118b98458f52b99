"""Closed segments for the remote tier: checked, repaired, durable, complete.

`open_segment` runs on a pool thread. It reads files that do not change any more, and repairs
indexes by new files that it renames. It changes no state of the running log.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import epoch_checkpoint, offset_index, producer_snapshot, time_index
from local_log.config import INT_MAX
from local_log.errors import OffsetOutOfRange
from local_log.file_names import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from local_log.log.lookups import look
from local_log.log.partition_log import PartitionLog
from local_log.segment.index_builder import IndexBuilder
from local_log.segment.recovery import build_producers
from local_log.segment.segment import LogSegment
from runtime.disk import Buffer, Disk, OpenFile

log = logging.getLogger(__name__)

_SAMPLES = 64

Write = Callable[[Path, Buffer], object]


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment that no longer changes; offsets inclusive.

    Attributes:
        max_timestamp_ms: Largest of its records; without timestamps the time of its last write.
    """

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ClosedTail:
    """Closed segments from an offset on, up to a number of them.

    Attributes:
        segments: From the one that holds the offset, ascending.
        bytes_below: Size of the closed segments before them.
        more_count, more_bytes: Of those after them.
    """

    segments: list[ClosedSegment]
    bytes_below: int
    more_count: int
    more_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Open files of one closed segment.

    Attributes:
        transaction_index: None if no transaction was aborted in it.
        producer_snapshot: Of the producers at the segment's end.
        leader_epoch_index: Text of the epoch checkpoint, from the log start to the segment's end.
        size_bytes: Of the log file.
    """

    log: OpenFile
    offset_index: OpenFile
    time_index: OpenFile
    transaction_index: OpenFile | None
    producer_snapshot: OpenFile
    leader_epoch_index: bytes
    size_bytes: int
    txn_index_empty: bool


def closed_tail(partition_log: PartitionLog, offset: int, count_max: int) -> ClosedTail:
    """List the closed segments from the one that holds `offset` on.

    Args:
        partition_log: The log.
        offset: Segments wholly below it are left out.
        count_max: Limit of the list; the rest is only counted.

    Raises:
        KafkaStorageError: The disk failed at a read of a segment's age.
    """
    tail = partition_log.segments.all[partition_log.segments.index_of(offset) :]
    try:
        shown = [_closed(*pair) for pair in pairwise(tail[: count_max + 1])]
    except OSError as error:
        partition_log.health.fail(error)
    more = tail[len(shown) : -1]
    more_bytes = sum(segment.size_bytes for segment in more)
    shown_bytes = sum(segment.size_bytes for segment in shown)
    below = partition_log.segments.closed_bytes - shown_bytes - more_bytes
    return ClosedTail(shown, below, len(more), more_bytes)


def _closed(segment: LogSegment, following: LogSegment) -> ClosedSegment:
    return ClosedSegment(
        segment.base_offset,
        following.base_offset - 1,
        segment.size_bytes,
        segment.retention_timestamp(),
    )


def open_segment(partition_log: PartitionLog, base_offset: int) -> SegmentFiles:
    """Open a closed segment for its copy: read, repaired and fsynced; on a pool thread.

    Raises:
        OffsetOutOfRange: No closed segment begins there (any more).
        LogClosed, KafkaStorageError: From `LogSegments.on_a_copy`.
    """
    return look(partition_log, lambda segments: _open(partition_log, segments, base_offset))


def _open(
    partition_log: PartitionLog, segments: Sequence[LogSegment], base_offset: int
) -> SegmentFiles:
    partition_log.producers.write_due()  # otherwise one is made from the batches
    bases = [segment.base_offset for segment in segments[:-1]]
    if base_offset not in bases:
        here = partition_log.segments.bases
        raise OffsetOutOfRange(asked=base_offset, start=here[0], end=here[-1])
    index, disk = bases.index(base_offset), partition_log.disk
    segment, end = segments[index], segments[index + 1].base_offset
    if not indexes_fit(disk, segment):
        log.warning("indexes are damaged, rebuilding before the copy: %s", segment.path(LOG))
        rebuild_indexes(partition_log.segments.write_file, segment)
    # A restore takes the first entry for the log start; the chain may reach below that.
    epochs = partition_log.epochs.between(partition_log.log_start_offset, end)
    snapshot = open_snapshot(partition_log, segments[: index + 1], end)
    transactions = None
    if any(True for _ in segment.aborted()):
        transactions = disk.open_read(segment.path(TXN_INDEX))
    files = SegmentFiles(
        disk.open_read(segment.path(LOG)),
        disk.open_read(segment.path(OFFSET_INDEX)),
        disk.open_read(segment.path(TIME_INDEX)),
        transactions,
        snapshot,
        epoch_checkpoint.dump([entry for entry in epochs if entry.start_offset < end]),
        segment.size_bytes,
        transactions is None,
    )
    for file in (files.log, files.offset_index, files.time_index, transactions, snapshot):
        if file is not None:
            disk.fsync(file)
    # Its name, too: an announced segment that a power cut takes counts as lost.
    disk.fsync_path(segment.path(LOG).parent)
    return files


def indexes_fit(disk: Disk, segment: LogSegment) -> bool:
    """True if both indexes are well-formed and, by samples, agree with the log."""
    try:
        offsets = disk.read_file(segment.path(OFFSET_INDEX))
        times = disk.read_file(segment.path(TIME_INDEX))
    except FileNotFoundError:
        return False
    if not offset_index.is_sound(offsets, segment.size_bytes) or not time_index.is_sound(times):
        return False
    if segment.size_bytes and not times and _has_timestamps(segment):
        return False
    relatives, positions = offset_index.columns(offsets)
    count = len(relatives)
    for slot in (*range(0, count, max(1, count // _SAMPLES)), *range(count)[-1:]):
        header = next((header for _, header in segment.batches(positions[slot])), None)
        if header is None or header.last_offset != segment.base_offset + relatives[slot]:
            return False
    if not _times_fit(segment, times, relatives, positions):
        return False
    return bool(count) or not _is_longer_than_interval(segment)


def _times_fit(
    segment: LogSegment,
    times: bytes,
    relatives: Sequence[int],
    positions: Sequence[int],
) -> bool:
    """True if sampled timestamps are those of the batches that hold their offsets.

    A copy with a wrong one would be unreadable: readers check remote bytes against the indexes.
    """
    count = len(times) // time_index.ENTRY_SIZE
    for slot in (*range(0, count, max(1, count // _SAMPLES)), *range(count)[-1:]):
        timestamp, offset = time_index.read_entry(times, segment.base_offset, slot)
        before = bisect_right(relatives, offset - segment.base_offset) - 1
        start = positions[before] if before >= 0 else 0
        held = (header for _, header in segment.batches(start) if header.last_offset >= offset)
        header = next(held, None)
        if header is None or header.max_timestamp != timestamp:
            return False
    return True


def _has_timestamps(segment: LogSegment) -> bool:
    return any(header.max_timestamp >= 0 for _, header in segment.batches(0))


def _is_longer_than_interval(segment: LogSegment) -> bool:
    return any(position > segment.index_interval_bytes for position, _ in segment.batches(0))


def rebuild_indexes(write: Write, segment: LogSegment) -> None:
    """Build both indexes from the log's headers, and replace the files by renaming."""
    built = IndexBuilder(
        segment.base_offset, interval_bytes=segment.index_interval_bytes, index_bytes=INT_MAX
    )
    for _, header in segment.batches(0):
        built.add(header)
    write(segment.path(OFFSET_INDEX), built.offset_entries())
    write(segment.path(TIME_INDEX), built.time_entries())


def open_snapshot(
    partition_log: PartitionLog, segments: Sequence[LogSegment], end: int
) -> OpenFile:
    """Return the producer snapshot at `end`, made now if it is missing or damaged.

    On a pool thread.
    """
    disk, snapshots = partition_log.disk, partition_log.producers.snapshots.copy()
    path = snapshots.path(end)
    try:
        file = disk.open_read(path)
        producer_snapshot.check(disk.read_at(file, 0, file.size()))
    except (FileNotFoundError, CorruptFileError) as error:
        log.warning("producer snapshot is made again: path=%s reason=%s", path, error)
    else:
        return file
    producers = build_producers(segments, snapshots, start=partition_log.log_start_offset, end=end)
    partition_log.segments.write_file(path, producer_snapshot.dump(producers.dump()))
    return disk.open_read(path)
