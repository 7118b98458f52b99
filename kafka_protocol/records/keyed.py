"""Builds batches of a coordinator: keys and values alone, with one timestamp for all.

The bytes equal those of `build_batch`, and take a third of the time.
"""

from collections.abc import Sequence
from typing import Final

from kafka_protocol.records.batch import HEADER_SIZE, MAGIC, BatchHeader, pack_header, write_crc
from kafka_protocol.records.compression import compress
from kafka_protocol.wire.primitives import encode_zigzag

_SMALL: Final = [bytes(encode_zigzag(number)) for number in range(1024)]
"""Varints of the usual lengths and deltas."""
_SMALL_MAX: Final = len(_SMALL)


Keyed = tuple[bytes, bytes | None]
"""A key, and its value: None for a tombstone."""


def _varint(number: int) -> bytes:
    return _SMALL[number] if number < _SMALL_MAX else bytes(encode_zigzag(number))


def keyed_batch(records: Sequence[Keyed], *, timestamp_ms: int, codec: int = 0) -> bytearray:
    """Build a batch that has no producer, no offsets and no headers of records.

    Args:
        records: At least one.
        timestamp_ms: Of them all.
        codec: Compression of the records.

    Returns:
        The batch with its checksum; a bytearray, so that it can be patched in place.
    """
    parts: list[bytes] = []
    key_length, value_length, fixed, key_size, value_size = -1, -1, 0, b"", b""
    for number, (key, value) in enumerate(records):
        delta = _varint(number)
        if value is None:
            key_size = _varint(len(key))
            size = 4 + len(delta) + len(key_size) + len(key)
            parts += (_varint(size), b"\0\0", delta, key_size, key, b"\1\0")
            key_length = -1
            continue
        if len(key) != key_length or len(value) != value_length:  # mostly as the one before
            key_length, value_length = len(key), len(value)
            key_size, value_size = _varint(key_length), _varint(value_length)
            fixed = 3 + len(key_size) + key_length + len(value_size) + value_length
        size = fixed + len(delta)
        size_bytes = _SMALL[size] if size < _SMALL_MAX else _varint(size)
        parts += (size_bytes, b"\0\0", delta, key_size, key, value_size, value, b"\0")
    body = compress(codec, b"".join(parts))
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_SIZE - 12 + len(body),
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=len(records) - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=len(records),
    )
    batch = bytearray(pack_header(header))
    batch += body
    write_crc(batch, 0, len(batch))
    return batch
