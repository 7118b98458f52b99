"""Batches of keys and values alone, all of one time: what a coordinator writes.

The same bytes as `build_batch` makes of such records, in a third of the time.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kafka_protocol.records.batch import HEADER_SIZE, MAGIC, BatchHeader, pack_header, write_crc
from kafka_protocol.records.compression import compress
from kafka_protocol.wire.primitives import encode_zigzag

_SMALL: Final = [bytes(encode_zigzag(number)) for number in range(1024)]
"""Varints of the usual lengths and deltas."""


class Keyed(Protocol):
    """A key, and its value: None for a tombstone."""

    @property
    def key(self) -> bytes:
        """The key."""
        ...

    @property
    def value(self) -> bytes | None:
        """The value."""
        ...


def _varint(number: int) -> bytes:
    return _SMALL[number] if number < len(_SMALL) else bytes(encode_zigzag(number))


def keyed_batch(records: Sequence[Keyed], *, timestamp_ms: int, codec: int = 0) -> bytearray:
    """Build a batch that has no producer, no offsets and no headers of records.

    Args:
        records: at least one.
        timestamp_ms: of them all.
        codec: compression of the records.

    Returns:
        The batch with its checksum; a bytearray, so that it can be patched in place.
    """
    parts: list[bytes] = []
    for number, record in enumerate(records):
        key, value, delta = record.key, record.value, _varint(number)
        key_size = _varint(len(key))
        size = 3 + len(delta) + len(key_size) + len(key)
        if value is None:
            parts += (_varint(size + 1), b"\0\0", delta, key_size, key, b"\1\0")
        else:
            value_size = _varint(len(value))
            size += len(value_size) + len(value)
            parts += (_varint(size), b"\0\0", delta, key_size, key, value_size, value, b"\0")
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
