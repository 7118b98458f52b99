"""Walks over the records of one batch, as far as compaction must look at them. Pure.

A batch that inflates to much is walked over in chunks. Records are neither made into values nor
encoded again where that can be helped: what stays is cut out of the batch by its places.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafka_protocol.errors import InflatedTooLargeError, InvalidRecordError, MalformedMessageError
from kafka_protocol.records.walk import Window
from kafka_protocol.wire.primitives import continue_zigzag, encode_zigzag, read_zigzag
from local_log.cleaner.offset_map import OffsetMap

RECORD_BYTES_MAX: Final = 32 << 20
"""Of one record of a compressed batch; more cannot be produced to a compacted topic."""

CHUNK_BYTES: Final = 2 << 20
"""Up to it a batch is inflated once, and its records are looked at once."""

_LENGTH_BYTES_MAX: Final = 5
_LENGTH_MIN: Final = 6
"""Attributes, two deltas, sizes of key and value, number of headers: a byte each."""

_LONG_MIN: Final = -(2**63)

Span = tuple[int, int]
"""First byte (inclusive) and end (exclusive) of neighbouring records."""


class Kept(NamedTuple):
    """Which records of a batch stay.

    Attributes:
        spans: where they are.
        number: how many.
        has_tombstones: one of them has no value.
    """

    spans: list[Span]
    number: int
    has_tombstones: bool


def whole_records(pieces: Iterator[bytes], count: int) -> Iterator[tuple[bytes, int]]:
    """Cut inflated records into chunks of whole ones.

    Args:
        pieces: the records of one batch.
        count: how many, as the header says.

    Yields:
        A chunk, and how many records it has. What comes in one piece, or is at most `CHUNK_BYTES`
        together, is a chunk as it is, not looked into.

    Raises:
        InvalidRecordError: the records contradict themselves or the count.
        InflatedTooLargeError: one is too large to be held.
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
    """How many records from `pos` on are whole, and where the last of them ends."""
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


def select(
    data: bytes, count: int, base_offset: int, newest: OffsetMap, *, drops_tombstones: bool
) -> Kept:
    """Say which records stay: of a key the newest one, and all that the map knows nothing of.

    Args:
        data: the records of one batch, inflated.
        count: how many, as the header says.
        base_offset: of the batch.
        newest: offsets of the keys. Records without a key that it went over do not stay.
        drops_tombstones: their time is over.

    Raises:
        InvalidRecordError: the records contradict themselves or the count.
    """
    if not 0 <= count * 7 <= len(data):
        raise InvalidRecordError(f"{count} records do not fit in {len(data)} bytes")
    try:
        return _select(data, count, base_offset, newest, drops_tombstones)
    except (IndexError, MalformedMessageError) as cause:
        raise InvalidRecordError(f"a record is cut or malformed: {cause}") from cause


def _select(  # noqa: C901, PLR0915 - one loop without calls for the usual one-byte varints
    data: bytes, count: int, base_offset: int, newest: OffsetMap, drops_tombstones: bool
) -> Kept:
    find, latest = newest.offsets.get, newest.latest_offset
    spans: list[Span] = []
    kept, tombstones, span_start = 0, False, -1
    pos, size = 0, len(data)
    for _ in range(count):
        first, byte = pos, data[pos]
        second = data[pos + 1]
        if byte > 127 and second < 128 and not byte & 1:  # two bytes, as of most records
            pos += 2
            stop = pos + ((byte + ((second - 1) << 7)) >> 1)
        else:
            length, pos = read_zigzag(data, pos)
            stop = pos + length
        if not pos + 6 <= stop <= size:
            raise InvalidRecordError(f"a record of {stop - pos} bytes, {size - pos} are left")
        pos += 1  # attributes
        while data[pos] > 127:  # the timestamp does not matter
            pos += 1
        byte = data[pos + 1]
        pos += 2
        if byte > 127:
            delta, pos = continue_zigzag(data, pos, byte, 5)
            offset = base_offset + delta
        else:
            offset = base_offset + ((byte >> 1) ^ -(byte & 1))
        byte = data[pos]
        pos += 1
        length = (byte >> 1) ^ -(byte & 1)
        if byte > 127:
            length, pos = continue_zigzag(data, pos, byte, 5)
        if length >= 0:
            key_end = pos + length
            if key_end >= stop:
                raise InvalidRecordError("a key is longer than its record")
            stays = offset > latest or offset >= find(data[pos:key_end], -1)
            pos = key_end
        else:
            stays = offset > latest
        if stays and data[pos] & 1:  # its value has a negative length: it has none
            stays = offset > latest or not drops_tombstones
            tombstones |= stays
        if stays:
            kept += 1
            if span_start < 0:
                span_start = first
        elif span_start >= 0:
            spans.append((span_start, first))
            span_start = -1
        pos = stop
    if pos != size:
        raise InvalidRecordError(f"{size - pos} bytes after the last record")
    if span_start >= 0:
        spans.append((span_start, size))
    return Kept(spans, kept, tombstones)


def largest_timestamp_delta(data: bytes, spans: list[Span]) -> int:
    """The largest timestamp of the records in `spans`, relative to the batch's base timestamp."""
    largest: int | None = None
    for start, end in spans:
        pos = start
        while pos < end:
            length, pos = read_zigzag(data, pos)
            delta, _ = read_zigzag(data, pos + 1, 10)
            if largest is None or delta > largest:
                largest = delta
            pos += length
    assert largest is not None, "no record stays"
    return largest


def moved_base_timestamp(data: bytes, spans: list[Span], shift: int) -> bytes:
    """The records in `spans` for a batch whose base timestamp is `shift` ms lower.

    Raises:
        InvalidRecordError: a timestamp is further from it than can be said.
    """
    out = bytearray()
    for start, end in spans:
        pos = start
        while pos < end:
            length, pos = read_zigzag(data, pos)
            stop = pos + length
            delta, rest = read_zigzag(data, pos + 1, 10)
            if delta + shift < _LONG_MIN:
                raise InvalidRecordError("a timestamp does not fit in the batch")
            stamp = encode_zigzag(delta + shift)
            out += encode_zigzag(1 + len(stamp) + stop - rest)
            out.append(data[pos])  # attributes
            out += stamp
            out += data[rest:stop]
            pos = stop
    return bytes(out)
