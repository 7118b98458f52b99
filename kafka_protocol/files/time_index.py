"""The time index (`.timeindex`): from a timestamp to an offset in the segment.

An entry is `int64 timestamp` (largest so far in the segment, ms) and `int32 relative offset` (last
offset of the batch with it). Timestamps strictly ascend. No record up to that offset has a larger
timestamp, so records with a larger one come after it.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kafka_protocol.files.offset_index import rises
from kafka_protocol.wire.primitives import Buffer

ENTRY_SIZE = 12

_ENTRY = Struct(">qi")
_TIMESTAMP = Struct(">q")


class TimestampOffset(NamedTuple):
    """Up to `offset` (inclusive) no record of the segment is later than `timestamp` (ms)."""

    timestamp: int
    offset: int


def pack_entry(timestamp_ms: int, relative_offset: int) -> bytes:
    """Bytes of one entry; `relative_offset` counts from the segment's base offset."""
    return _ENTRY.pack(timestamp_ms, relative_offset)


def read_entry(buf: Buffer, base_offset: int, slot: int) -> TimestampOffset:
    """Read entry number `slot`, with its offset made absolute."""
    timestamp, relative = _ENTRY.unpack_from(buf, slot * ENTRY_SIZE)
    return TimestampOffset(timestamp, base_offset + relative)


def lookup(
    buf: Buffer, base_offset: int, target_ms: int, entries: int | None = None
) -> TimestampOffset:
    """Find the largest entry whose timestamp is <= `target_ms`.

    Args:
        buf: The index file's bytes.
        base_offset: The segment's.
        target_ms: The wanted timestamp.
        entries: Valid entries in `buf`; None: all of it.

    Returns:
        The entry, or (-1, base_offset) if every entry is above `target_ms`.
    """
    low, high = 0, len(buf) // ENTRY_SIZE if entries is None else entries
    read = _TIMESTAMP.unpack_from
    while low < high:
        middle = (low + high) // 2
        if read(buf, middle * ENTRY_SIZE)[0] <= target_ms:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return TimestampOffset(-1, base_offset)
    return read_entry(buf, base_offset, low - 1)


def iter_entries(
    buf: Buffer, base_offset: int, entries: int | None = None
) -> Iterator[TimestampOffset]:
    """All entries in order, with absolute offsets; bytes after the last whole entry are left."""
    count = len(buf) // ENTRY_SIZE if entries is None else entries
    for timestamp, relative in _ENTRY.iter_unpack(memoryview(buf)[: count * ENTRY_SIZE]):
        yield TimestampOffset(timestamp, base_offset + relative)


def is_sound(buf: Buffer) -> bool:
    """True if a closed index has whole entries with ascending timestamps and offsets."""
    return not len(buf) % ENTRY_SIZE and rises(list(_ENTRY.iter_unpack(buf)))
