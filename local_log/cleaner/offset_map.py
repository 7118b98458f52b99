"""The newest offset of each key, within a memory limit. Pure.

Keys are kept whole, so two keys are never confused. DIFFERS: Kafka keeps 24 bytes per key,
including a hash, and holds more keys with the same setting. Here one pass takes fewer keys, and the
next ones take the rest.

A batch that inflates to much data is read in chunks of whole records (`whole_records`), and its
records are not decoded into values (`records_in`). The second walk of a pass uses both, too.
"""

from collections.abc import Iterator
from typing import Final

from kafka_protocol.errors import InflatedTooLargeError, InvalidRecordError, MalformedMessageError
from kafka_protocol.records.walk import Window
from kafka_protocol.wire.primitives import continue_zigzag, read_zigzag

ENTRY_BYTES: Final = 180
"""Memory of an entry beside its key: two objects, and its share of the table, even growing."""

RECORD_BYTES_MAX: Final = 32 << 20
"""Limit of one record of a compressed batch; a compacted topic accepts no larger one."""

CHUNK_BYTES: Final = 2 << 20
"""Batches up to this size are inflated once, as one chunk."""

_LENGTH_BYTES_MAX: Final = 5
_LENGTH_MIN: Final = 6
"""Attributes, two deltas, sizes of key and value, number of headers: at least a byte each."""


class OffsetMap:
    """Filled by one walk over the dirty part of a log, then read for each record.

    Attributes:
        offsets: By key, the newest offset.
        latest_offset: End of the walk (inclusive); later records are not in the map.
        used_bytes: Memory of the entries.
        bytes_max: Limit of it.
    """

    __slots__ = ("bytes_max", "latest_offset", "offsets", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = -1
        self.used_bytes = 0
        self.bytes_max = bytes_max

    @property
    def utilization(self) -> float:
        """Used part of the memory, 0 to 1."""
        return min(self.used_bytes / self.bytes_max, 1.0)

    def add_records(self, data: bytes, count: int, base_offset: int, start: int) -> bool:
        """Note the keys of one batch, or of one chunk of it.

        Args:
            data: Its records, inflated.
            count: Number of records.
            base_offset: Of the batch.
            start: Offsets below it were cleaned before and are ignored.

        Returns:
            False if there is no room for a further key: that record and all later ones are not
                noted. The first key always fits.

        Raises:
            InvalidRecordError: The records contradict themselves or the count.
        """
        offsets = self.offsets
        for _, offset_delta, key, _ in records_in(data, count):
            offset = base_offset + offset_delta
            if key is None or offset < start:
                continue
            if key not in offsets:
                used = self.used_bytes + len(key) + ENTRY_BYTES
                if used > self.bytes_max and offsets:
                    return False
                self.used_bytes = used
            offsets[key] = self.latest_offset = offset
        return True


def records_in(data: bytes, count: int) -> Iterator[tuple[int, int, bytes | None, bool]]:
    """Iterate over whole records, decoding only what compaction needs.

    Args:
        data: The records of one batch, or of one chunk of it, inflated.
        count: Number of records.

    Yields:
        First byte, offset delta, key, and whether it has a value.

    Raises:
        InvalidRecordError: The records contradict themselves or the count.
    """
    size = len(data)
    if not 0 <= count * 7 <= size:
        raise InvalidRecordError(f"{count} records do not fit in {size} bytes")
    first, key = 0, None
    try:
        for _ in range(count):  # without calls for the usual one-byte varints
            byte, second = data[first], data[first + 1]
            if byte > 127 and second < 128 and not byte & 1:  # two bytes, as of most records
                pos = first + 2
                stop = pos + ((byte + ((second - 1) << 7)) >> 1)
            else:
                length, pos = read_zigzag(data, first)
                stop = pos + length
            if not pos + _LENGTH_MIN <= stop <= size:
                raise InvalidRecordError(f"a record of {stop - pos} bytes, {size - pos} are left")
            pos += 1  # attributes
            while data[pos] > 127:  # the timestamp is not needed
                pos += 1
            byte = data[pos + 1]
            pos += 2
            offset_delta = (byte >> 1) ^ -(byte & 1)
            if byte > 127:
                offset_delta, pos = continue_zigzag(data, pos, byte, 5)
            byte = data[pos]
            pos += 1
            length = (byte >> 1) ^ -(byte & 1)
            if byte > 127:
                length, pos = continue_zigzag(data, pos, byte, 5)
            key = None
            if length >= 0:
                key = data[pos : pos + length]
                pos += length
                if pos >= stop:
                    raise InvalidRecordError("a key is longer than its record")
            yield first, offset_delta, key, not data[pos] & 1  # a value of negative size is null
            first = stop
    except (IndexError, MalformedMessageError) as cause:
        raise InvalidRecordError(f"a record is cut or malformed: {cause}") from cause
    if first != size:
        raise InvalidRecordError(f"{size - first} bytes after the last record")


def whole_records(pieces: Iterator[bytes], count: int) -> Iterator[tuple[bytes, int]]:
    """Cut inflated records into chunks of whole ones.

    Args:
        pieces: The records of one batch.
        count: Number of records in the header.

    Yields:
        A chunk, and its number of records. Records in one piece, or of at most `CHUNK_BYTES`
        together, are one chunk, unchecked.

    Raises:
        InvalidRecordError: The records contradict themselves or the count.
        InflatedTooLargeError: A record exceeds `RECORD_BYTES_MAX`.
    """
    window = Window(pieces)
    if not window.need(max(len(window.data), CHUNK_BYTES) + 1):
        yield window.data, count
        return
    with window.refusing():
        while count:
            number, end = _whole(window.data, window.pos, count)
            if number:
                yield window.data[window.pos : end], number
                window.pos, count = end, count - number
            else:
                _hold_one(window)
        if window.need(1):
            raise InvalidRecordError("bytes after the last record")


def _whole(data: bytes, pos: int, count_max: int) -> tuple[int, int]:
    """Return the number of whole records from `pos` on, and the end of the last."""
    number, size = 0, len(data) - _LENGTH_BYTES_MAX
    while number < count_max and pos < size:
        length, start = read_zigzag(data, pos)
        if length < _LENGTH_MIN or start + length > len(data):
            break
        pos = start + length
        number += 1
    return number, pos


def _hold_one(window: Window) -> None:
    window.need(_LENGTH_BYTES_MAX)
    length, start = read_zigzag(window.data, window.pos)
    if length > RECORD_BYTES_MAX:
        raise InflatedTooLargeError(RECORD_BYTES_MAX)
    if length < _LENGTH_MIN or not window.need(start - window.pos + length):
        raise InvalidRecordError(f"a record of {length} bytes is not there")
