"""Checks a segment's indexes, and rebuilds indexes and producer state from batches."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import txn_index
from kafka_protocol.records.batch import MAGIC, BatchHeader
from local_log.file_names import OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from local_log.producers.snapshots import ProducerSnapshots
from local_log.producers.state import ProducerStates
from local_log.producers.transactions import note_batch
from local_log.segment.index_builder import IndexBuilder
from local_log.segment.reading import CheckStop, RecentBatches, proceed, walk
from local_log.segment.segment import LogSegment
from runtime.disk import Disk

NOTHING_READ: Final[Mapping[int, RecentBatches]] = {}


class SegmentEnd(NamedTuple):
    """End of a segment's whole batches.

    Attributes:
        offset: Offset after the last batch (exclusive).
        position: Byte after the last batch (exclusive).
        last: Header of the last batch; None if there is none.
    """

    offset: int
    position: int
    last: BatchHeader | None


def last_batch(segment: LogSegment) -> SegmentEnd:
    """Find the last whole batch by the newest index entry and the headers after it.

    Raises:
        OSError: The disk failed.
    """
    entry = segment.offset_index.last_entry()
    # The index of a `.swap` segment is not validated yet, so its position may be negative.
    end, position, last = segment.base_offset, max(entry.position, 0), None
    for at, header in segment.batches(position):
        end = header.next_offset
        position = at + header.size_bytes
        last = header
    return SegmentEnd(end, position, last)


def needs_rebuild(disk: Disk, segment: LogSegment) -> bool:
    """True if a segment's indexes are missing, damaged, or wrongly empty."""
    offsets, times = segment.offset_index, segment.time_index
    counts = []
    for index in (offsets, times):
        if not disk.exists(index.path):
            return True
        count, rest = divmod(disk.size(index.path), index.entry_size)
        if rest:
            return True
        counts.append(count)
    if not _aborted_are_there(disk, segment):
        return True
    has_offsets, stamps = counts[0] > 0, counts[1]
    if segment.size_bytes == 0:
        return has_offsets or stamps > 0
    if has_offsets and not _points_at_a_batch(segment):
        return True  # a zero tail that was never trimmed, or an index of another log
    newest = times.last_entry()
    if stamps and newest.offset < segment.base_offset:
        return True
    if stamps and newest.timestamp <= 0 and newest.offset == segment.base_offset:
        return True
    if has_offsets and stamps:
        return False
    # An empty index may be right: few bytes, one batch, or no timestamps. A close adds an entry to
    # the time index in any case. Only the batches can decide.
    return _should_have_entries(segment)


def _points_at_a_batch(segment: LogSegment) -> bool:
    """True if the newest entry fits its batch; then all entries before it are taken to fit."""
    entry = segment.offset_index.last_entry()
    if entry.offset <= segment.base_offset or not 0 <= entry.position < segment.size_bytes:
        return False
    header = next((header for _, header in segment.batches(entry.position)), None)
    return header is not None and header.magic == MAGIC and header.last_offset == entry.offset


def _aborted_are_there(disk: Disk, segment: LogSegment) -> bool:
    """True if each entry of the transaction index fits its batches.

    An entry that is missing as a whole is not noticed.
    """
    path = segment.path(TXN_INDEX)
    if not disk.exists(path):
        return True
    size = disk.size(path)
    if not size or size % txn_index.ENTRY_SIZE:
        return False  # the file is created together with its first entry
    try:
        entries = list(segment.aborted())
    except CorruptFileError:
        return False
    done = segment.base_offset
    for entry in entries:
        marker = segment.find_batch(entry.last_offset)
        if (
            not done <= entry.last_offset >= entry.first_offset >= 0
            or not 0 <= entry.last_stable_offset <= entry.last_offset + 1
            or marker is None
            or not _is_of(marker[1], entry.last_offset, entry.producer_id, is_control=True)
        ):
            return False
        done = entry.last_offset + 1
        first = segment.find_batch(entry.first_offset)
        if (
            entry.first_offset >= segment.base_offset
            and first is not None
            and first[1].base_offset <= entry.first_offset  # else a cleaner removed the batch
            and not _is_of(first[1], entry.first_offset, entry.producer_id, is_control=False)
        ):
            return False
    return True


def _is_of(header: BatchHeader, offset: int, producer_id: int, *, is_control: bool) -> bool:
    return (
        header.base_offset == offset
        and header.is_transactional
        and header.is_control == is_control
        and header.producer_id == producer_id
    )


def _should_have_entries(segment: LogSegment) -> bool:
    # A truncation restarts the interval, in Kafka a reopening as well. So the first entry may be up
    # to one interval late.
    wants_offset, newest = False, -1
    for position, header in segment.batches(0):
        newest = max(newest, header.max_timestamp)
        if position > 2 * segment.index_interval_bytes:
            wants_offset = True
            break
    return (wants_offset and not segment.offset_index.count()) or (
        newest >= 0 and not segment.time_index.count()
    )


def write_indexes(disk: Disk, segment: LogSegment, built: IndexBuilder) -> None:
    """Replace a segment's offset and time index, and set its size and timestamps from `built`.

    The files are not fsynced: a start that finds them damaged rebuilds them.

    Raises:
        OSError: The disk failed.
    """
    segment.release()
    disk.atomic_write(segment.path(OFFSET_INDEX), built.offset_entries(), durable=False)
    disk.atomic_write(segment.path(TIME_INDEX), built.time_entries(), durable=False)
    segment.size_bytes = built.size_bytes
    segment.bytes_since_entry = built.bytes_since_entry
    segment.first_timestamp = built.first_timestamp
    segment.set_max_timestamp(built.max_timestamp, built.offset_of_max_timestamp)


def write_transaction_index(
    disk: Disk, segment: LogSegment, producers: ProducerStates, check_stop: CheckStop = proceed
) -> None:
    """Rebuild a segment's transaction index, or remove it if no transaction was aborted.

    Args:
        disk: Holds the segment.
        segment: All its batches are sound.
        producers: State before the segment; on return, the state after it.
        check_stop: Called about once for each MiB; its exceptions end the walk.

    Raises:
        OSError: The disk failed.
    """
    aborted = []
    for at, header in walk(segment, 0, check_stop):
        entry = note_batch(producers, header, partial(segment.read_bytes, at, header.size_bytes))
        if entry is not None:
            aborted.append(entry)
    path = segment.path(TXN_INDEX)
    if aborted:
        data = b"".join(map(txn_index.pack_entry, aborted))
        disk.atomic_write(path, data, durable=False)
    else:
        disk.unlink(path)
    segment.has_aborted = bool(aborted)


def build_producers(
    segments: Sequence[LogSegment],
    snapshots: ProducerSnapshots,
    *,
    start: int,
    end: int,
    recent: Mapping[int, RecentBatches] = NOTHING_READ,
    check_stop: CheckStop = proceed,
) -> ProducerStates:
    """Build the producer state at `end` from the newest snapshot and the batches after it.

    Args:
        segments: Segments below `end`, oldest first; all their batches are sound.
        snapshots: Of this directory.
        start: The log start offset; snapshots below it are ignored.
        end: The state covers the batches below this offset (exclusive).
        recent: `SegmentReading.recent` by base offset, of segments that were read to their ends.
        check_stop: Called about once for each MiB; its exceptions end the walk.
    """
    producers = ProducerStates()
    producers.clear(start)
    snapshot = snapshots.load_newest(start=start, end=end)
    if snapshot is not None:
        producers.load(snapshot[1], snapshot[0])
    done = producers.end_offset
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end
        if following <= done or segment.base_offset >= end:
            continue
        seen = recent.get(segment.base_offset)
        if seen is not None:
            note_recent(producers, seen, done=done)
            continue
        position = segment.offset_index.lookup(done).position
        for at, header in walk(segment, position, check_stop):
            if header.base_offset >= end:
                break
            if header.last_offset >= done:
                note_batch(producers, header, partial(segment.read_bytes, at, header.size_bytes))
    producers.end_offset = end
    return producers


def note_recent(producers: ProducerStates, recent: RecentBatches, *, done: int) -> None:
    """Add a segment's batches to the producer state, by the newest batches of each producer.

    The state has the newest `BATCHES_REMEMBERED` batches of a producer's newest epoch. Except for
    transactions it has nothing of earlier batches, so these can be skipped.

    Args:
        producers: State before the segment; changed.
        recent: Of the whole segment.
        done: The state already covers the batches below this offset (exclusive).
    """
    for batches in recent.values():
        for fields in batches:
            header = BatchHeader._make(fields)
            if header.last_offset >= done:
                producers.append_data(header, header.base_offset)
