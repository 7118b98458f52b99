"""Walks over the records of a batch without holding them, for facts about each record.

A record that is inflated in several pieces is walked over piece by piece. So the memory for a batch
does not depend on its inflated size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Final, NamedTuple

from kafka_protocol.errors import InvalidRecordError, MalformedMessageError, TooManyHeadersError
from kafka_protocol.records.batch import HEADER_SIZE, MAGIC, BatchHeader, Buffer, read_header
from kafka_protocol.records.compression import MAX_INFLATED_BYTES, inflated
from kafka_protocol.wire.primitives import continue_zigzag, read_zigzag

HEADERS_MAX: Final = 524_288
"""Bound of all headers of a batch (inclusive). This many fit in the default `max.message.bytes`
uncompressed; each takes about a microsecond."""

_LENGTH_BYTES_MAX: Final = 5


class Glimpse(NamedTuple):
    """Facts about a record.

    Attributes:
        offset: Absolute.
        timestamp: In ms since 1970; the append time if the batch has one.
        has_key: Its key is not null.
    """

    offset: int
    timestamp: int
    has_key: bool


def body_of(buf: Buffer, position: int) -> tuple[BatchHeader, memoryview]:
    """Header and records, as they are stored, of the batch at `position`.

    Raises:
        InvalidRecordError: It is no whole batch of today's format.
    """
    header = read_header(buf, position)
    end = position + header.size_bytes
    if end > len(buf) or header.size_bytes < HEADER_SIZE:
        raise InvalidRecordError(f"a batch of {header.size_bytes} bytes is not there")
    if header.magic != MAGIC:
        raise InvalidRecordError(f"a batch of magic {header.magic}")
    return header, memoryview(buf)[position + HEADER_SIZE : end]


class Window:
    """A position in a stream of inflated records; bytes before it are released.

    Attributes:
        data: Bytes from some position of the stream on.
        pos: The current position in `data`, at most its length.
        taken_bytes: Bytes taken from the stream so far.
    """

    __slots__ = ("_pieces", "data", "pos", "taken_bytes")

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self.taken_bytes = pieces, 0
        self.data, self.pos = self._next(), 0

    def _next(self) -> bytes:
        piece = next(self._pieces, b"")
        self.taken_bytes += len(piece)
        return piece

    def need(self, size: int) -> bool:
        """Load `size` bytes into `data` from `pos` on; False if the stream ends before."""
        have = len(self.data) - self.pos
        if have >= size:
            return True
        piece = self._next()
        if not piece:
            return False
        gathered = BytesIO()  # gives its bytes without a copy
        gathered.write(self.data[self.pos :])
        self.data, self.pos = b"", 0
        while piece:
            have += gathered.write(piece)
            piece = self._next() if have < size else b""
        self.data = gathered.getvalue()
        return have >= size

    def skip(self, size: int) -> None:
        """Advance by `size` bytes, which are not kept.

        Raises:
            InvalidRecordError: The stream ends before.
        """
        left = size - (len(self.data) - self.pos)
        while left > 0:
            self.data = self._next()
            if not self.data:
                raise InvalidRecordError("a record is longer than what is there")
            left -= len(self.data)
        self.pos = len(self.data) + left

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Turn errors of wrong records in the block into InvalidRecordError.

        Before that the rest is inflated: if the whole is too large, InflatedTooLargeError is
        raised, as if it were inflated at once. A compression bomb need not have valid records.
        """
        try:
            yield
        except (IndexError, MalformedMessageError, UnicodeDecodeError) as cause:
            self._drain()
            raise InvalidRecordError(f"a record is cut or malformed: {cause}") from cause
        except InvalidRecordError:
            self._drain()
            raise

    def _drain(self) -> None:
        while self._next():
            pass


def glimpse_records(
    buf: Buffer, position: int = 0, *, max_inflated_bytes: int = MAX_INFLATED_BYTES
) -> Iterator[Glimpse]:
    """Walk over the records of the batch at `position`; its checksum is not checked.

    Args:
        buf: Holds the whole batch.
        position: Of the batch's first byte.
        max_inflated_bytes: Most that compressed records may inflate to.

    Raises:
        InvalidRecordError: The records contradict themselves, the header's count or the bytes.
        InflatedTooLargeError: More than `max_inflated_bytes`.
        TooManyHeadersError: More than `HEADERS_MAX`.
        UnsupportedCodecError: The codec bits mean nothing.
    """
    header, body = body_of(buf, position)
    window = Window(inflated(header.codec, body, max_bytes=max_inflated_bytes))
    return glimpses(window, header)


def glimpses(window: Window, header: BatchHeader) -> Iterator[Glimpse]:
    """Walk over the records in a window, all of which belong to the batch of this header.

    Raises:
        The errors of `glimpse_records`, and those of the window's stream.
    """
    with window.refusing():
        yield from _walk(window, header)


def _walk(  # noqa: C901, PLR0915 - one loop without calls for the usual one-byte varints
    window: Window, header: BatchHeader
) -> Iterator[Glimpse]:
    if header.record_count < 0:
        raise InvalidRecordError(f"{header.record_count} records")
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    headers_left, make = HEADERS_MAX, tuple.__new__
    data, pos = window.data, window.pos
    for _ in range(header.record_count):
        if len(data) - pos < _LENGTH_BYTES_MAX:
            window.pos = pos
            window.need(_LENGTH_BYTES_MAX)
            data, pos = window.data, window.pos
        byte = data[pos]
        pos += 1
        length = (byte >> 1) ^ -(byte & 1)
        if byte > 127:
            length, pos = continue_zigzag(data, pos, byte, 5)
        stop = pos + length
        if length < 0:
            raise InvalidRecordError(f"a record of {length} bytes")
        if stop > len(data):
            window.pos = pos
            long = _LongRecord(window, length, headers_left)
            time_delta, offset_delta, key_size, headers_left = long.fields()
            data, pos = window.data, window.pos
        else:
            byte = data[pos + 1]  # after the attributes, which mean nothing yet
            pos += 2
            time_delta = (byte >> 1) ^ -(byte & 1)
            if byte > 127:
                time_delta, pos = continue_zigzag(data, pos, byte, 10)
            byte = data[pos]
            pos += 1
            offset_delta = (byte >> 1) ^ -(byte & 1)
            if byte > 127:
                offset_delta, pos = continue_zigzag(data, pos, byte, 5)
            byte = data[pos]
            pos += 1
            key_size = (byte >> 1) ^ -(byte & 1)
            if byte > 127:
                key_size, pos = continue_zigzag(data, pos, byte, 5)
            if key_size > 0:
                pos += key_size
            byte = data[pos]
            pos += 1
            length = (byte >> 1) ^ -(byte & 1)
            if byte > 127:
                length, pos = continue_zigzag(data, pos, byte, 5)
            if length > 0:
                pos += length
            byte = data[pos]
            pos += 1
            if byte:
                pos, headers_left = _skip_headers(data, pos - 1, stop, headers_left)
            if pos != stop:
                raise InvalidRecordError("a record's length is not that of its fields")
        timestamp = base_timestamp + time_delta if append_time is None else append_time
        yield make(Glimpse, (base_offset + offset_delta, timestamp, key_size >= 0))
    window.pos = pos
    if window.need(1):
        raise InvalidRecordError("bytes after the last record")


def _skip_headers(data: bytes, pos: int, stop: int, left: int) -> tuple[int, int]:
    """Return the position behind a record's headers, and the headers left for the batch."""
    count, pos = read_zigzag(data, pos)
    left = _fewer(left, count, stop - pos)
    for _ in range(count):
        length, pos = read_zigzag(data, pos)
        if length < 0:
            raise InvalidRecordError(f"a header name of {length} bytes")
        length, pos = read_zigzag(data, pos + length)
        if length > 0:
            pos += length
        if pos > stop:
            raise InvalidRecordError("a header is longer than its record")
    return pos, left


def _fewer(left: int, count: int, size: int) -> int:
    if not 0 <= count * 2 <= size:
        raise InvalidRecordError(f"{count} headers do not fit in {size} bytes")
    if count > left:
        raise TooManyHeadersError(HEADERS_MAX)
    return left - count


class _LongRecord:
    """A record that is not whole in the window."""

    __slots__ = ("_headers_left", "_left", "_window")

    def __init__(self, window: Window, length: int, headers_left: int) -> None:
        self._window, self._left, self._headers_left = window, length, headers_left

    def fields(self) -> tuple[int, int, int, int]:
        """Deltas of timestamp and offset, size of the key, headers that others may still have."""
        self._skip(1)  # attributes
        time_delta, offset_delta, key_size = self._number(10), self._number(), self._number()
        self._skip(key_size)
        self._skip(self._number())
        count = self._number()
        self._headers_left = _fewer(self._headers_left, count, self._left)
        for _ in range(count):
            length = self._number()
            if length < 0:
                raise InvalidRecordError(f"a header name of {length} bytes")
            self._skip(length)
            self._skip(self._number())
        if self._left:
            raise InvalidRecordError("a record's length is not that of its fields")
        return time_delta, offset_delta, key_size, self._headers_left

    def _number(self, max_bytes: int = 5) -> int:
        window = self._window
        window.need(max_bytes)
        value, end = read_zigzag(window.data, window.pos, max_bytes)
        self._left -= end - window.pos
        window.pos = end
        return value

    def _skip(self, size: int) -> None:
        """Negative: null, there is nothing."""
        if size > 0:
            if size > self._left:
                raise InvalidRecordError("a field is longer than its record")
            self._window.skip(size)
            self._left -= size
