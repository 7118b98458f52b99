"""Reads a whole segment and finds how far it is sound; nothing is changed.

Bytes after the last sound batch are either the incomplete last batch of a stopped process (torn) or
damage. They count as torn only if no whole batch can follow.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from crc32c import crc32c

from kafka_protocol.records.batch import (
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc32c_of,
    pack_header,
    read_header,
    write_crc,
)
from kafka_protocol.types import EpochEntry
from local_log.file_names import LOG
from local_log.producers.state import BATCHES_REMEMBERED
from local_log.segment.index_builder import IndexBuilder
from local_log.segment.segment import RELATIVE_OFFSET_MAX, LogSegment
from runtime.disk import Disk, OpenFile

_WINDOW_BYTES = 1 << 20
_ATTRIBUTES_MAX = 0x7F
_BATCH_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
_OF_TRANSACTIONS = TRANSACTIONAL_FLAG | CONTROL_FLAG
_COPY_BYTES_MAX = 512
_PRODUCERS_MAX = 1000


class Ending(Enum):
    """Kind of the bytes after a segment's last sound batch."""

    WHOLE = "nothing"
    TORN = "an incomplete batch"
    DAMAGED = "bytes that are no batch of this place"
    OVERLAPS = "a batch that reaches into the next segment"


class Gap(NamedTuple):
    """Missing offsets between two batches, or before the first batch.

    Attributes:
        position: Byte at which the batch after the gap begins.
        offset: First missing offset (inclusive).
    """

    position: int
    offset: int


RecentBatches = dict[int, deque[tuple[int, ...]]]
"""Headers of the newest batches by producer id, oldest first; ids in order of first batches."""

CheckStop = Callable[[], None]
"""Called during long work; it raises an exception to end that work."""


@dataclass(frozen=True, slots=True)
class SegmentReading:
    """Result of reading a whole segment.

    Attributes:
        whole_bytes: Every batch below this byte (exclusive) is sound.
        end_offset: Offset after the last sound batch (exclusive).
        ending: Kind of the bytes from `whole_bytes` on.
        first_gap: None if no offset is missing before a batch.
        lacks_records: A batch has fewer records than offsets, so a cleaner has worked here.
        epochs: (leader epoch, base offset) of the first batch of each epoch, without epoch -1.
        last_place: (leader epoch, base offset) of the last sound batch, None if there is none.
        has_producers: A batch has a producer id.
        has_markers: A control batch has a producer id, so a transaction may end here.
        recent: The batches that the producer state needs. None if it needs all of them, because of
            transactions or more than 1,000 producers.
        indexes: Built from the sound batches.
        doubtful_from: The batch behind the last sound one has a lower base offset or epoch than
            expected, so one of these two batches has changed. This is the first offset (inclusive)
            in doubt; None without such a batch.
    """

    whole_bytes: int
    end_offset: int
    ending: Ending
    first_gap: Gap | None
    lacks_records: bool
    epochs: tuple[EpochEntry, ...]
    last_place: EpochEntry | None
    has_producers: bool
    has_markers: bool
    recent: RecentBatches | None
    indexes: IndexBuilder
    doubtful_from: int | None = None


def proceed() -> None:
    """Do nothing: the `CheckStop` of work that is never stopped."""


def read_segment(
    disk: Disk,
    segment: LogSegment,
    *,
    index_bytes: int,
    next_base: int | None = None,
    stop: int | None = None,
    check_stop: CheckStop = proceed,
) -> SegmentReading:
    """Read a whole segment up to its first bad batch.

    Args:
        disk: Holds the segment.
        segment: Its indexes are not read.
        index_bytes: Maximum size of each index that is built.
        next_base: Base offset of the next segment: every offset of this one must be below it.
        stop: Read only up to this byte (exclusive).
        check_stop: Called about once for each MiB; its exceptions end the reading.

    Raises:
        OSError: The disk failed.
    """
    file = disk.open_read(segment.path(LOG))
    size = file.size() if stop is None else stop
    builder = IndexBuilder(
        segment.base_offset, interval_bytes=segment.index_interval_bytes, index_bytes=index_bytes
    )
    end = segment.base_offset + RELATIVE_OFFSET_MAX + 1
    return _Reader(disk, file, size, builder, (end, next_base), check_stop).read()


class _Reader:
    """Reads one segment; used once.

    `_take_one` knows every rule for one batch. `_take_ordinary` is the fast path for batches that
    need only the common checks. It stops at any other batch, and never decides that a batch is bad.
    """

    def __init__(
        self,
        disk: Disk,
        file: OpenFile,
        size: int,
        builder: IndexBuilder,
        ends: tuple[int, int | None],
        check_stop: CheckStop,
    ) -> None:
        self._disk, self._file, self._size = disk, file, size
        self._builder = builder
        self._end, self._next_base = ends
        self._check_stop = check_stop
        self._data, self._start = b"", 0  # a window of the file, and its position
        self._base_offset = self._before = self._expected = builder.base_offset
        self._latest = -1  # leader epoch
        self._last_place: EpochEntry | None = None
        self._gap: Gap | None = None
        self._lacks_records = self._has_producers = False
        self._kinds = 0  # transaction bits in the attributes of batches with a producer id
        self._recent: RecentBatches | None = {}
        self._doubtful_from: int | None = None
        self._epochs: list[EpochEntry] = []

    def read(self) -> SegmentReading:
        """Read up to the first bad batch, or all."""
        ending = self._take_one()
        while ending is None:
            self._take_ordinary()
            ending = self._take_one()
        return SegmentReading(
            self._builder.size_bytes,
            self._expected,
            ending,
            self._gap,
            self._lacks_records,
            tuple(self._epochs),
            self._last_place,
            self._has_producers,
            bool(self._kinds & CONTROL_FLAG),
            self._recent,
            self._builder,
            self._doubtful_from,
        )

    def _take_one(self) -> Ending | None:
        """Read the next batch by all rules; None if it is sound and more may follow."""
        position = self._builder.size_bytes
        header = self._sound_header(position)
        if header is None:
            return self._ending(position)
        epoch, expected = header.partition_leader_epoch, self._expected
        goes_back = header.base_offset < expected or 0 <= epoch < self._latest
        if goes_back or header.last_offset_delta < 0 or header.last_offset >= self._end:
            if self._last_place is not None and goes_back:
                self._doubtful_from = self._before
            return Ending.DAMAGED
        if self._next_base is not None and header.last_offset >= self._next_base:
            return Ending.OVERLAPS
        if header.base_offset != expected and self._gap is None:
            self._gap = Gap(position, expected)
        if header.record_count != header.last_offset_delta + 1 and not is_filler(header):
            self._lacks_records = True
        if epoch > self._latest:
            self._epochs.append(EpochEntry(epoch, header.base_offset))
            self._latest = epoch
        if header.producer_id >= 0:
            self._note_producer(header)
        self._last_place = EpochEntry(epoch, header.base_offset)
        self._before, self._expected = expected, header.next_offset
        self._builder.add(header)
        return None

    def _sound_header(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position`; None if it is cut or its CRC is wrong."""
        self._check_stop()
        if position + HEADER_SIZE > self._size:
            return None
        if position - self._start + HEADER_SIZE > len(self._data):
            self._look_at(position, _WINDOW_BYTES)
            if len(self._data) < HEADER_SIZE:
                return None
        header = read_header(self._data, position - self._start)
        size = header.size_bytes
        if size < HEADER_SIZE or position + size > self._size or header.magic != MAGIC:
            return None
        if position - self._start + size > len(self._data):
            self._look_at(position, max(_WINDOW_BYTES, size))
            if len(self._data) < size:
                return None
        at = position - self._start
        is_sound = crc32c_of(self._data, at + CRC_START, size - CRC_START) == header.crc
        return header if is_sound else None

    def _ending(self, position: int) -> Ending:
        """Classify the bytes from `position` on, where no sound batch begins."""
        size = self._size
        if position == size:
            return Ending.WHOLE
        if self._is_zero_from(position) or size - position < HEADER_SIZE:
            return Ending.TORN
        header = read_header(self._disk.read_at(self._file, position, HEADER_SIZE))
        is_cut = (
            header.magic == MAGIC
            and header.base_offset >= self._expected
            and position + header.size_bytes > size
        )
        if is_cut and not self._has_batch_from(position + 1):
            return Ending.TORN
        return Ending.DAMAGED

    def _is_zero_from(self, position: int) -> bool:
        while position < self._size:
            self._check_stop()
            wanted = min(_WINDOW_BYTES, self._size - position)
            chunk = self._disk.read_at(self._file, position, wanted)
            if not chunk:
                return True
            if chunk.count(0) != len(chunk):
                return False
            position += len(chunk)
        return True

    def _has_batch_from(self, position: int) -> bool:
        """True if a sound batch with later offsets begins at `position` or after it.

        Then the bytes before it are no torn batch: its length field is wrong.
        """
        size, expected = self._size, self._expected
        while position + HEADER_SIZE <= size:
            self._check_stop()
            chunk = self._disk.read_at(self._file, position, min(_WINDOW_BYTES, size - position))
            at = chunk.find(MAGIC, MAGIC_POSITION)
            while at >= 0 and at - MAGIC_POSITION + HEADER_SIZE <= len(chunk):
                start = at - MAGIC_POSITION
                header = read_header(chunk, start)
                if (
                    expected < header.base_offset <= expected + RELATIVE_OFFSET_MAX
                    and 0 <= header.attributes <= _ATTRIBUTES_MAX
                    and HEADER_SIZE <= header.size_bytes <= size - position - start
                ):
                    batch = self._disk.read_at(self._file, position + start, header.size_bytes)
                    if crc32c_of(batch, CRC_START, len(batch) - CRC_START) == header.crc:
                        return True
                at = chunk.find(MAGIC, at + 1)
            if len(chunk) < _WINDOW_BYTES:
                return False
            position += len(chunk) - HEADER_SIZE + 1
        return False

    def _look_at(self, position: int, size: int) -> None:
        wanted = min(size, self._size - position)
        self._data, self._start = self._disk.read_at(self._file, position, wanted), position

    def _note_producer(self, header: BatchHeader) -> None:
        self._has_producers = True
        self._kinds |= header.attributes & _OF_TRANSACTIONS
        if self._kinds:
            self._recent = None
        elif self._recent is not None:
            known = self._recent.get(header.producer_id)
            if known is not None:
                known.append(header)
            elif len(self._recent) < _PRODUCERS_MAX:
                self._recent[header.producer_id] = deque([header], BATCHES_REMEMBERED)
            else:
                self._recent = None

    def _take_ordinary(self) -> None:
        """Read ordinary batches, as far as they are in the window.

        An ordinary batch is sound, has no gap before it, and its epoch and producer are known. The
        first gap, missing record or transaction goes to `_take_one`; later ones change no result.
        """
        builder, recent = self._builder, self._recent
        data, start = self._data, self._start
        view, unpack = memoryview(data), HEADER.unpack_from
        at = builder.size_bytes - start
        last_header = len(data) - HEADER_SIZE
        end_offset = self._end if self._next_base is None else min(self._end, self._next_base)
        before, expected, latest = self._before, self._expected, self._latest
        has_gaps, lacks_records = self._gap is not None, self._lacks_records
        unmet = _OF_TRANSACTIONS & ~self._kinds if self._has_producers else -1
        newest, newest_offset = builder.max_timestamp, builder.offset_of_max_timestamp
        since_entry, interval = builder.bytes_since_entry, builder.interval_bytes
        base = -1
        while at <= last_header:
            fields = unpack(data, at)
            first, length, epoch, magic, crc, bits, delta, _, stamp, producer, _, _, count = fields
            following = at + length + LOG_OVERHEAD
            last = first + delta
            if (
                magic != MAGIC
                or length < _BATCH_LENGTH_MIN
                or following > len(data)
                or (first != expected and (first < expected or not has_gaps))
                or epoch != latest
                or delta < 0
                or (count != delta + 1 and not lacks_records)
                or last >= end_offset
            ):
                break
            # A slice of few bytes is cheaper as a copy than as a memoryview.
            body = data if length < _COPY_BYTES_MAX else view
            if crc32c(body[at + CRC_START : following]) != crc:
                break
            if producer >= 0:
                if unmet and (unmet < 0 or bits & unmet):
                    break
                if recent is not None:
                    known = recent.get(producer)
                    if known is None:
                        break
                    known.append(fields)
            if stamp > newest:
                newest, newest_offset = stamp, last
            if since_entry > interval:
                builder.size_bytes = start + at
                builder.max_timestamp, builder.offset_of_max_timestamp = newest, newest_offset
                builder.add_entries(last)
                since_entry = 0
            since_entry += following - at
            base, before, expected, at = first, expected, last + 1, following
        if base >= 0:
            builder.size_bytes, builder.bytes_since_entry = start + at, since_entry
            builder.max_timestamp, builder.offset_of_max_timestamp = newest, newest_offset
            self._before, self._expected = before, expected
            self._last_place = EpochEntry(latest, base)


def filler(first: int, end: int) -> bytes:
    """Return a batch without records for the lost offsets [first, end).

    Consumers skip it like a batch that a compaction has emptied. Unlike those it has no producer id
    and no timestamp.

    Args:
        first: Inclusive.
        end: Exclusive, at most 2^31 above `first`.
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
    """True if a batch covers lost offsets, see `filler`."""
    return (
        header.record_count == 0
        and header.producer_id == NO_PRODUCER_ID
        and header.max_timestamp == NO_TIMESTAMP
    )


def walk(
    segment: LogSegment, position: int, check_stop: CheckStop
) -> Iterator[tuple[int, BatchHeader]]:
    """Walk the headers of a segment as `LogSegment.batches`, and stop on request.

    Args:
        segment: Its `.log` file is read.
        position: Byte of the first batch; it must be a batch border.
        check_stop: Called about once for each MiB; its exceptions end the walk.

    Yields:
        Position and header of each whole batch.
    """
    checked = position
    for at, header in segment.batches(position):
        if at - checked > _WINDOW_BYTES:
            check_stop()
            checked = at
        yield at, header


def runs_by_headers(segment: LogSegment, check_stop: CheckStop) -> Iterator[EpochEntry]:
    """Yield (leader epoch, base offset) of each epoch's first batch, read from headers alone."""
    latest = -1
    for _, header in walk(segment, 0, check_stop):
        if header.partition_leader_epoch > latest:
            latest = header.partition_leader_epoch
            yield EpochEntry(latest, header.base_offset)
