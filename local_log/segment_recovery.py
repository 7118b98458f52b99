"""Whether one segment is whole, and how it is made whole again.

The log file is the truth: it is cut before the first batch that is torn or damaged, and everything
beside it is made from what is left.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kafka_protocol.records.batch import HEADER_SIZE, BatchHeader, crc32c_of, read_header
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.producer_snapshots import ProducerSnapshots
from local_log.producer_state import ProducerStates
from local_log.segment import LogSegment
from local_log.segment_files import LOG, TXN_INDEX
from local_log.transactions import note_batch
from runtime.disk import Disk

_WINDOW_BYTES = 1 << 20
_LENGTH_OVERHEAD = 12
_CRC_START = 21


class RecoveredSegment(NamedTuple):
    """What reading a whole segment has shown.

    Attributes:
        cut_bytes: cut off because they were torn or damaged.
        end_offset: after its last batch (exclusive).
        is_dense: no offset is missing in it, so it never was compacted.
    """

    cut_bytes: int
    end_offset: int
    is_dense: bool


def last_batch(segment: LogSegment) -> tuple[int, int]:
    """The offset and the byte after the last whole batch."""
    entry = segment.offset_index.lookup(2**62)
    end, position = segment.base_offset, entry.position
    for at, header in segment.batches(entry.position):
        end = header.next_offset
        position = at + header.size_bytes
    return end, position


def needs_rebuild(disk: Disk, segment: LogSegment) -> bool:
    """Whether a segment's indexes are missing, damaged, or empty where they cannot be."""
    for index in (segment.offset_index, segment.time_index):
        if not disk.exists(index.path) or disk.size(index.path) % index.entry_size:
            return True
    if segment.size_bytes == 0:
        return disk.size(segment.offset_index.path) > 0 or disk.size(segment.time_index.path) > 0
    index = segment.offset_index
    entry = index.lookup(2**62)
    newest = segment.time_index.last_entry()
    if index.entries and (
        entry.offset <= segment.base_offset or entry.position >= segment.size_bytes
    ):
        return True  # a zero tail (never trimmed), or it belongs to another log
    if segment.time_index.entries and newest.offset < segment.base_offset:
        return True
    if (
        segment.time_index.entries
        and newest.timestamp <= 0
        and newest.offset == (segment.base_offset)
    ):
        return True
    if index.entries and segment.time_index.entries:
        return False
    if segment.time_index.entries > 1 and not index.entries:
        return True  # they get their entries together, but for one at each close
    # Empty may be right: few bytes, one batch, or no timestamps. Then a look at the batches tells.
    return _should_have_entries(segment)


def _should_have_entries(segment: LogSegment) -> bool:
    # A reopened segment counts its interval anew, so the first entry may come late.
    wants_offset, newest = False, -1
    for position, header in segment.batches(0):
        newest = max(newest, header.max_timestamp)
        if position > 2 * segment.index_interval_bytes:
            wants_offset = True
            break
    return (wants_offset and not segment.offset_index.entries) or (
        newest >= 0 and not segment.time_index.entries
    )


def recover_segment(
    disk: Disk,
    segment: LogSegment,
    epochs: LeaderEpochCache | None,
    producers: ProducerStates,
    *,
    index_bytes: int,
    end_offset: int | None = None,
) -> RecoveredSegment:
    """Read a whole segment, cut it before the first bad batch, make its indexes again.

    Args:
        disk: where it is.
        segment: has its base offset; all else is found anew.
        epochs: gets the epochs found; None if they are known.
        producers: state before the segment; after it on return.
        index_bytes: room for each index while it is written.
        end_offset: first offset of the next segment, which this one must not reach into.
    """
    found = disk.size(segment.path(LOG))
    segment.offset_index.release()
    segment.time_index.release()
    segment.offset_index.reset(index_bytes)
    segment.time_index.reset(index_bytes)
    disk.unlink(segment.path(TXN_INDEX))
    segment.size_bytes = 0
    segment.bytes_since_entry = 0
    segment.first_timestamp = None
    segment.set_max_timestamp(-1, segment.base_offset)
    expected, is_dense = segment.base_offset, True
    producers.end_offset = max(producers.end_offset, segment.base_offset)
    for header, batch in _valid_batches(disk, segment, found):
        if header.base_offset < expected or header.last_offset_delta < 0:
            break
        if end_offset is not None and header.last_offset >= end_offset:
            break
        is_dense &= header.base_offset == expected
        is_dense &= header.record_count == header.last_offset_delta + 1
        expected = header.next_offset
        epoch = header.partition_leader_epoch
        if epochs is not None and epoch >= 0 and epoch > _latest(epochs):
            epochs.assign(epoch, header.base_offset)
        aborted = note_batch(producers, header, partial(bytes, batch))
        if aborted is not None:
            segment.append_aborted(aborted)
        segment.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)
    if segment.size_bytes != found:
        with_write = disk.open_write(segment.path(LOG))
        disk.truncate(with_write, segment.size_bytes)
        disk.fsync(with_write)
    segment.become_inactive()
    return RecoveredSegment(found - segment.size_bytes, expected, is_dense)


def _latest(epochs: LeaderEpochCache) -> int:
    return -1 if epochs.latest_epoch is None else epochs.latest_epoch


def _valid_batches(
    disk: Disk, segment: LogSegment, size: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Header and bytes of each batch from the start, up to the first that is torn or damaged."""
    file = disk.open_read(segment.path(LOG))
    position, window, start = 0, memoryview(b""), 0
    while position + HEADER_SIZE <= size:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start = memoryview(disk.read_at(file, position, _WINDOW_BYTES)), position
            at = 0
            if len(window) < HEADER_SIZE:
                return
        header = read_header(window, at)
        batch_size = header.batch_length + _LENGTH_OVERHEAD
        if batch_size < HEADER_SIZE or position + batch_size > size or header.magic != 2:
            return
        if at + batch_size > len(window):
            wanted = max(_WINDOW_BYTES, batch_size)
            window, start, at = memoryview(disk.read_at(file, position, wanted)), position, 0
        batch = window[at : at + batch_size]
        if crc32c_of(batch, _CRC_START, batch_size - _CRC_START) != header.crc:
            return
        yield header, batch
        position += batch_size


def build_producers(
    segments: Sequence[LogSegment], snapshots: ProducerSnapshots, *, start: int, end: int
) -> ProducerStates:
    """Make the producer state at `end`: the newest snapshot, and the batches after it.

    Args:
        segments: those below `end`, checked.
        snapshots: of this directory.
        start: the log start offset; snapshots below it say nothing about this log.
        end: first offset that does not count.
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
        position = segment.offset_index.lookup(done).position
        for at, header in segment.batches(position):
            if header.base_offset >= end:
                break
            if header.last_offset >= done:
                note_batch(producers, header, partial(segment.read_bytes, at, header.size_bytes))
    producers.end_offset = end
    return producers
