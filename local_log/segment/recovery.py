"""Facts from a segment's indexes and headers, and their reconstruction from batches."""

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
    """Where a segment's whole batches end: first offset and first byte after them (exclusive)."""

    offset: int
    position: int
    last: BatchHeader | None


def last_batch(segment: LogSegment) -> SegmentEnd:
    """Where the last whole batch ends, by index and headers."""
    entry = segment.offset_index.last_entry()
    # Of a swapped segment the index has not been validated yet.
    end, position, last = segment.base_offset, max(entry.position, 0), None
    for at, header in segment.batches(position):
        end = header.next_offset
        position = at + header.size_bytes
        last = header
    return SegmentEnd(end, position, last)


def needs_rebuild(disk: Disk, segment: LogSegment) -> bool:
    """Whether a segment's indexes are missing, damaged, or empty where they cannot be."""
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
        return True  # a zero tail (never trimmed), or it belongs to another log
    newest = times.last_entry()
    if stamps and newest.offset < segment.base_offset:
        return True
    if stamps and newest.timestamp <= 0 and newest.offset == segment.base_offset:
        return True
    if has_offsets and stamps:
        return False
    # Empty may be right: few bytes (each close adds a time all the same), one batch, or no
    # timestamps. Then a look at the batches tells.
    return _should_have_entries(segment)


def _points_at_a_batch(segment: LogSegment) -> bool:
    """Whether the newest entry speaks of a batch that is there, and so all before it do."""
    entry = segment.offset_index.last_entry()
    if entry.offset <= segment.base_offset or not 0 <= entry.position < segment.size_bytes:
        return False
    header = next((header for _, header in segment.batches(entry.position)), None)
    return header is not None and header.magic == MAGIC and header.last_offset == entry.offset


def _aborted_are_there(disk: Disk, segment: LogSegment) -> bool:
    """Whether each entry of the transaction index fits the batches that it speaks of.

    That a whole entry is missing is not told.
    """
    path = segment.path(TXN_INDEX)
    if not disk.exists(path):
        return True
    size = disk.size(path)
    if not size or size % txn_index.ENTRY_SIZE:
        return False  # it is made with its first entry
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
            and first[1].base_offset <= entry.first_offset  # else a cleaner took it
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
    # A reopened segment counts its interval again, so the first entry may come late.
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
    """Replace a segment's indexes and take over what its batches have shown.

    Not fsynced: whoever finds them damaged makes them again.

    Raises:
        OSError: the disk failed.
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
    """Make a segment's transaction index again, or remove it where no transaction was aborted.

    Args:
        disk: where it is.
        segment: checked.
        producers: state before the segment; after it on return.
        check_stop: called now and then; what it raises ends the walk.

    Raises:
        OSError: the disk failed.
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
    """Make the producer state at `end`: the newest snapshot, and the batches after it.

    Args:
        segments: those below `end`, checked.
        snapshots: of this directory.
        start: the log start offset; snapshots below it say nothing about this log.
        end: first offset that does not count.
        recent: by base offset, what was seen of segments that were read to their ends.
        check_stop: called now and then; what it raises ends the walk.
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
    """Note a segment's batches by the newest ones of each producer.

    The state remembers `BATCHES_REMEMBERED` batches of a producer's newest epoch and, but for
    transactions, nothing of older ones: so the batches before these leave no trace in it.

    Args:
        producers: state before them.
        recent: of the whole segment.
        done: below this offset everything is in the state already.
    """
    for batches in recent.values():
        for fields in batches:
            header = BatchHeader._make(fields)
            if header.last_offset >= done:
                producers.append_data(header, header.base_offset)
