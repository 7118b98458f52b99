"""Reads a whole segment and says how far it is sound; nothing is changed.

What follows the last whole batch is either the incomplete last batch of a stopped process (torn) or
damage. Only what cannot hold a whole batch counts as torn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafka_protocol.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    crc32c_of,
    pack_header,
    read_header,
    write_crc,
)
from kafka_protocol.types import EpochEntry
from local_log.index_builder import IndexBuilder
from local_log.segment import RELATIVE_OFFSET_MAX, LogSegment
from local_log.segment_files import LOG
from runtime.disk import Disk, OpenFile

_WINDOW_BYTES = 1 << 20
_ATTRIBUTES_MAX = 0x7F


class Ending(Enum):
    """What lies after a segment's last whole batch."""

    WHOLE = "nothing"
    TORN = "an incomplete batch"
    DAMAGED = "bytes that are no batch of this place"
    OVERLAPS = "a batch that reaches into the next segment"


class Gap(NamedTuple):
    """Offsets between two batches that are not there: `offset` (inclusive) is the first.

    Attributes:
        position: of the batch after the gap.
    """

    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class SegmentReading:
    """What reading a whole segment has shown.

    Attributes:
        whole_bytes: up to here (exclusive) batches are whole and sound.
        end_offset: after the last of them (exclusive).
        first_gap: None if no offset is missing between batches.
        lacks_records: a batch has fewer records than offsets, so a cleaner has worked here.
        epochs: (leader epoch, first offset) of each run of batches; without those of epoch -1.
        last_place: (leader epoch, base offset) of the last batch, None if there is none.
        has_producers: a batch has a producer id.
        indexes: made from the batches.
        doubtful_from: where the last of them begins (inclusive), if offset or epoch of the batch
            behind it fall below its own: either may have changed.
    """

    whole_bytes: int
    end_offset: int
    ending: Ending
    first_gap: Gap | None
    lacks_records: bool
    epochs: tuple[EpochEntry, ...]
    last_place: EpochEntry | None
    has_producers: bool
    indexes: IndexBuilder
    doubtful_from: int | None = None


def read_segment(
    disk: Disk,
    segment: LogSegment,
    *,
    index_bytes: int,
    next_base: int | None = None,
    stop: int | None = None,
) -> SegmentReading:
    """Read a whole segment up to its first bad batch.

    Args:
        disk: where it is.
        segment: which; its indexes are not looked at.
        index_bytes: room for each index.
        next_base: first offset of the next segment, which this one must not reach into.
        stop: read only up to this byte (exclusive).

    Raises:
        OSError: the disk failed.
    """
    file = disk.open_read(segment.path(LOG))
    size = file.size() if stop is None else stop
    builder = IndexBuilder(
        segment.base_offset, interval_bytes=segment.index_interval_bytes, index_bytes=index_bytes
    )
    before = expected = segment.base_offset
    latest = -1
    ending: Ending | None = None
    gap: Gap | None = None
    last: BatchHeader | None = None
    lacks_records = has_producers = False
    doubtful_from: int | None = None
    epochs: list[EpochEntry] = []
    for header in _sound_batches(disk, file, size):
        epoch = header.partition_leader_epoch
        if (
            header.base_offset < expected
            or header.last_offset_delta < 0
            or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or 0 <= epoch < latest
        ):
            ending = Ending.DAMAGED
            if last is not None and (header.base_offset < expected or 0 <= epoch < latest):
                doubtful_from = before
            break
        if next_base is not None and header.last_offset >= next_base:
            ending = Ending.OVERLAPS
            break
        if header.base_offset != expected and gap is None:
            gap = Gap(builder.size_bytes, expected)
        if header.record_count != header.last_offset_delta + 1 and not is_filler(header):
            lacks_records = True
        if epoch > latest:
            epochs.append(EpochEntry(epoch, header.base_offset))
            latest = epoch
        if header.producer_id >= 0:
            has_producers = True
        before, expected = expected, header.next_offset
        builder.add(header)
        last = header
    if ending is None:
        ending = _ending(disk, file, builder.size_bytes, size, expected)
    return SegmentReading(
        builder.size_bytes,
        expected,
        ending,
        gap,
        lacks_records,
        tuple(epochs),
        None if last is None else EpochEntry(last.partition_leader_epoch, last.base_offset),
        has_producers,
        builder,
        doubtful_from,
    )


def filler(first: int, end: int) -> bytes:
    """A batch without records for the offsets [first, end), which were lost.

    Consumers pass over it, as over the batches that a compaction has emptied; those belong to a
    producer, this one to none.

    Args:
        first: inclusive.
        end: exclusive, at most 2^31 above it.
    """
    header = BatchHeader(
        base_offset=first,
        batch_length=HEADER_SIZE - LOG_OVERHEAD,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=end - first - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    batch = bytearray(pack_header(header))
    write_crc(batch, 0, HEADER_SIZE)
    return bytes(batch)


def is_filler(header: BatchHeader) -> bool:
    """Whether a batch stands for offsets that were lost, see `filler`."""
    return (
        header.record_count == 0
        and header.producer_id == NO_PRODUCER_ID
        and header.max_timestamp == NO_TIMESTAMP
    )


def _sound_batches(disk: Disk, file: OpenFile, size: int) -> Iterator[BatchHeader]:
    """Header of each batch from the start, up to the first that is cut or has a wrong checksum."""
    position, window, start = 0, memoryview(b""), 0
    while position + HEADER_SIZE <= size:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start = memoryview(disk.read_at(file, position, _WINDOW_BYTES)), position
            at = 0
            if len(window) < HEADER_SIZE:
                return
        header = read_header(window, at)
        batch_size = header.size_bytes
        if batch_size < HEADER_SIZE or position + batch_size > size or header.magic != MAGIC:
            return
        if at + batch_size > len(window):
            wanted = max(_WINDOW_BYTES, batch_size)
            window, start, at = memoryview(disk.read_at(file, position, wanted)), position, 0
        crc = crc32c_of(window, at + CRC_START, batch_size - CRC_START)
        if crc != header.crc or at + batch_size > len(window):
            return
        yield header
        position += batch_size


def _ending(disk: Disk, file: OpenFile, position: int, size: int, expected: int) -> Ending:
    """Judge what begins at `position`, where no sound batch begins."""
    if position == size:
        return Ending.WHOLE
    if _is_zero(disk, file, position, size):
        return Ending.TORN
    if size - position < HEADER_SIZE:
        return Ending.TORN
    header = read_header(disk.read_at(file, position, HEADER_SIZE))
    is_cut = (
        header.magic == MAGIC
        and header.base_offset >= expected
        and position + header.size_bytes > size
    )
    if is_cut and not _has_batch(disk, file, position + 1, size, expected):
        return Ending.TORN
    return Ending.DAMAGED


def _is_zero(disk: Disk, file: OpenFile, position: int, size: int) -> bool:
    while position < size:
        chunk = disk.read_at(file, position, min(_WINDOW_BYTES, size - position))
        if not chunk:
            return True
        if chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


def _has_batch(disk: Disk, file: OpenFile, position: int, size: int, expected: int) -> bool:
    """Whether a whole batch with later offsets begins anywhere in [position, size).

    Then what is before it did not end with a stopped process: its length is wrong.
    """
    while position + HEADER_SIZE <= size:
        chunk = disk.read_at(file, position, min(_WINDOW_BYTES, size - position))
        at = chunk.find(MAGIC, MAGIC_POSITION)
        while at >= 0 and at - MAGIC_POSITION + HEADER_SIZE <= len(chunk):
            start = at - MAGIC_POSITION
            header = read_header(chunk, start)
            if (
                expected < header.base_offset <= expected + RELATIVE_OFFSET_MAX
                and 0 <= header.attributes <= _ATTRIBUTES_MAX
                and HEADER_SIZE <= header.size_bytes <= size - position - start
            ):
                batch = disk.read_at(file, position + start, header.size_bytes)
                if crc32c_of(batch, CRC_START, len(batch) - CRC_START) == header.crc:
                    return True
            at = chunk.find(MAGIC, at + 1)
        if len(chunk) < _WINDOW_BYTES:
            return False
        position += len(chunk) - HEADER_SIZE + 1
    return False


def runs_by_headers(segment: LogSegment) -> Iterator[EpochEntry]:
    """(leader epoch, first offset) of each run of batches, by their headers alone."""
    latest = -1
    for _, header in segment.batches(0):
        if header.partition_leader_epoch > latest:
            latest = header.partition_leader_epoch
            yield EpochEntry(latest, header.base_offset)
