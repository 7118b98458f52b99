"""Producer snapshots (`.snapshot`): a partition's producer state up to an offset.

`int16 version 1`, `uint32 CRC-32C` of all bytes from 6 on, `int32 count`, then 46 bytes an entry.
Kafka writes only the last batch of each producer. We write earlier batches before it, each in its
own entry. A reader with a map by producer, such as Kafka, keeps the last one.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.wire.primitives import Buffer

VERSION = 1
ENTRY_SIZE = 46

_HEAD = Struct(">hIi")
_CRC_START = 6
_CRC = Struct(">I")
_ENTRY = Struct(">qhiqiqiq")


class ProducerEntry(NamedTuple):
    """State of one producer with a batch of it; the last one of a producer has its newest batch.

    Attributes:
        last_sequence: Of the batch's last record; -1 when only markers were seen.
        last_offset: Of that record (inclusive); -1 likewise.
        offset_delta: Last offset minus first offset of the batch.
        timestamp: Max timestamp (ms) of the batch, or of a marker that came after the newest one.
        coordinator_epoch: Of the last marker, -1 without.
        current_txn_first_offset: First offset of its open transaction, -1 without, and in all
            entries but the producer's last.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def dump(entries: Iterable[ProducerEntry]) -> bytearray:
    """Write a snapshot; entries keep their order.

    It may run on a thread beside an event loop: no step holds the interpreter's lock for long.
    """
    data = bytearray(_HEAD.size)
    for entry in entries:
        data += _ENTRY.pack(*entry)
    _HEAD.pack_into(data, 0, VERSION, 0, (len(data) - _HEAD.size) // ENTRY_SIZE)
    with memoryview(data) as view:
        _CRC.pack_into(data, 2, crc32c(view[_CRC_START:]))
    return data


def parse(data: Buffer) -> list[ProducerEntry]:
    """Read a snapshot, as `entries`."""
    return list(entries(data))


def entries(data: Buffer) -> Iterator[ProducerEntry]:
    """Read a snapshot that is whole, one entry at a time.

    Raises:
        CorruptFileError: See `check`.
    """
    return map(ProducerEntry._make, _ENTRY.iter_unpack(check(data)))


def check(data: Buffer) -> memoryview:
    """Check that a snapshot is whole, and return the bytes of its entries.

    Raises:
        CorruptFileError: Another version, wrong checksum, or a count that does not fit the bytes.
    """
    if len(data) < _HEAD.size:
        raise CorruptFileError(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptFileError(f"producer snapshot of version {version}")
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise CorruptFileError("wrong checksum of a producer snapshot")
    if count < 0 or _HEAD.size + count * ENTRY_SIZE != len(data):
        raise CorruptFileError(f"{count} producers announced in {len(data)} bytes")
    return memoryview(data)[_HEAD.size :]
