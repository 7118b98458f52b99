"""Records inside batches: read and built, off the hot path.

It serves lookups by time, checks of compressed records, compaction, control batches, and the
internal topics. Every mistake that a client can make ends in InvalidRecordError.

Source: KIP-98; formats of Apache Kafka 4.3.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kafka_protocol.errors import InvalidRecordError
from kafka_protocol.records.batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    pack_header,
    write_crc,
)
from kafka_protocol.records.compression import MAX_INFLATED_BYTES, compress, inflated
from kafka_protocol.records.walk import Window, body_of
from kafka_protocol.wire.primitives import continue_zigzag, encode_zigzag

__all__ = ["InvalidRecordError", "Record", "build_batch", "encode_records", "iter_records"]

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record, at its place in the log.

    Attributes:
        offset: Absolute.
        timestamp: Ms since the epoch; the append time where the batch has one.
        key: None for null.
        value: None for null (in a compacted topic: the key is deleted).
        headers: (name, value) in order; names may repeat.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


NewRecord = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""A record that has no offset yet: timestamp (ms), key, value, headers."""


def iter_records(
    buf: Buffer, position: int = 0, *, max_inflated_bytes: int = MAX_INFLATED_BYTES
) -> Iterator[Record]:
    """Read the records of the batch at `position`; its checksum is not checked.

    Only one record is in memory at a time, for any inflated size.

    Args:
        buf: Holds the whole batch.
        position: Of the batch's first byte.
        max_inflated_bytes: Most that compressed records may inflate to.

    Raises:
        InvalidRecordError: The records contradict themselves, the header's count or the bytes.
        InflatedTooLargeError: More than `max_inflated_bytes`.
        UnsupportedCodecError: The codec bits mean nothing.
    """
    header, body = body_of(buf, position)
    window = Window(inflated(header.codec, body, max_bytes=max_inflated_bytes))
    append_time = header.max_timestamp if header.is_log_append_time else None
    with window.refusing():
        yield from _decode(
            window, header.record_count, header.base_offset, header.base_timestamp, append_time
        )


def _decode(  # noqa: C901, PLR0915 - one loop without calls for the usual one-byte varints
    window: Window, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Iterator[Record]:
    """Decode `count` records; they must end exactly at the end of the window's stream."""
    if count < 0:
        raise InvalidRecordError(f"{count} records")
    make = tuple.__new__  # a third of the time of calling Record
    data, pos, size = window.data, 0, len(window.data)
    for _ in range(count):
        if size - pos < 5:  # of its length
            window.pos = pos
            window.need(5)
            data, pos, size = window.data, window.pos, len(window.data)
        byte = data[pos]
        pos += 1
        length = (byte >> 1) ^ -(byte & 1)
        if byte > 127:
            length, pos = continue_zigzag(data, pos, byte, 5)
        stop = pos + length
        if length < 0 or stop > size:
            window.pos = pos
            if length < 0 or not window.need(length):
                raise InvalidRecordError(f"a record of {length} bytes is not there")
            data, pos, size = window.data, window.pos, len(window.data)
            stop = pos + length
        byte = data[pos + 1]  # after the attributes, which mean nothing yet
        pos += 2
        delta = (byte >> 1) ^ -(byte & 1)
        if byte > 127:
            delta, pos = continue_zigzag(data, pos, byte, 10)
        timestamp = base_timestamp + delta if append_time is None else append_time
        byte = data[pos]
        pos += 1
        delta = (byte >> 1) ^ -(byte & 1)
        if byte > 127:
            delta, pos = continue_zigzag(data, pos, byte, 5)
        byte = data[pos]
        pos += 1
        length = (byte >> 1) ^ -(byte & 1)
        if byte > 127:
            length, pos = continue_zigzag(data, pos, byte, 5)
        key = value = None
        if length >= 0:
            key = data[pos : pos + length]
            pos += length
        byte = data[pos]
        pos += 1
        length = (byte >> 1) ^ -(byte & 1)
        if byte > 127:
            length, pos = continue_zigzag(data, pos, byte, 5)
        if length >= 0:
            value = data[pos : pos + length]
            pos += length
        byte = data[pos]
        pos += 1
        headers: list[Header] = []
        if byte:
            headers, pos = _decode_headers(data, pos - 1, stop)
        if pos != stop:
            raise InvalidRecordError("a record's length is not that of its fields")
        yield make(Record, (base_offset + delta, timestamp, key, value, headers))
    window.pos = pos
    if window.need(1):
        raise InvalidRecordError("bytes after the last record")


def _decode_headers(data: bytes, pos: int, stop: int) -> tuple[list[Header], int]:
    count, pos = continue_zigzag(data, pos + 1, data[pos], 5)
    if not 0 <= count * 2 <= stop - pos:
        raise InvalidRecordError(f"{count} headers do not fit in {stop - pos} bytes")
    headers: list[Header] = []
    for _ in range(count):
        length, pos = continue_zigzag(data, pos + 1, data[pos], 5)
        end = pos + length
        if length < 0 or end > stop:
            raise InvalidRecordError(f"a header name of {length} bytes")
        name = data[pos:end].decode()
        length, pos = continue_zigzag(data, end + 1, data[end], 5)
        value = None
        if length >= 0:
            value = data[pos : pos + length]
            pos += length
        if pos > stop:
            raise InvalidRecordError("a header is longer than its record")
        headers.append((name, value))
    return headers, pos


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Encode records one behind the other, uncompressed, relative to the batch's base."""
    out = bytearray()
    for offset, timestamp, key, value, headers in records:
        body = bytearray(b"\0")
        body += encode_zigzag(timestamp - base_timestamp)
        body += encode_zigzag(offset - base_offset)
        _put(body, key)
        _put(body, value)
        body += encode_zigzag(len(headers))
        for name, content in headers:
            _put(body, name.encode())
            _put(body, content)
        out += encode_zigzag(len(body))
        out += body
    return bytes(out)


def _put(body: bytearray, data: bytes | None) -> None:
    if data is None:
        body += b"\x01"
    else:
        body += encode_zigzag(len(data))
        body += data


def build_batch(
    records: Iterable[Record | NewRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """Build a batch.

    Args:
        records: A `Record` keeps its offset (holes are fine). A tuple of four gets the offset after
            the record before it.
        base_offset: Of the first record.
        leader_epoch: -1 from clients.
        codec: Compression of the records.
        producer_id: -1 without idempotence.
        producer_epoch: Likewise.
        base_sequence: Sequence number of the first record, likewise.
        is_transactional: Sets bit 4.
        is_control: Sets bit 5.
        log_append_time_ms: The broker's time instead of the records' own.
        level: Of the codec, None for its default.

    Returns:
        The batch with its checksum; a bytearray, so that it can be patched in place.
    """
    placed: list[Record] = []
    following = base_offset
    for given in records:
        if isinstance(given, Record):
            placed.append(given)
        else:
            timestamp, key, value, headers = given
            placed.append(Record(following, timestamp, key, value, list(headers)))
        following = placed[-1].offset + 1
    base_timestamp = placed[0].timestamp if placed else NO_TIMESTAMP
    max_timestamp = max((record.timestamp for record in placed), default=NO_TIMESTAMP)
    attributes = codec
    if is_transactional:
        attributes |= TRANSACTIONAL_FLAG
    if is_control:
        attributes |= CONTROL_FLAG
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = log_append_time_ms
    body = compress(codec, encode_records(placed, base_offset, base_timestamp), level=level)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_SIZE - 12 + len(body),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=max(following - 1 - base_offset, 0),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(placed),
    )
    batch = bytearray(pack_header(header))
    batch += body
    write_crc(batch, 0, len(batch))
    return batch
