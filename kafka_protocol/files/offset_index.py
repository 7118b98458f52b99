"""The offset index (`.index`): from an offset to a batch's position in the segment.

An entry is `int32 relative offset` (last offset of a batch minus the segment's base offset) and
`int32 position` (first byte of that batch), both big endian. Offsets strictly ascend. A lookup
returns the floor entry: a reader starts at its position, at most one index interval too early.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from operator import lt
from struct import Struct
from typing import Any, NamedTuple

from kafka_protocol.wire.primitives import Buffer

ENTRY_SIZE = 8

_ENTRY = Struct(">ii")
_RELATIVE = Struct(">i")


class OffsetPosition(NamedTuple):
    """Where to read: a batch with last offset `offset` begins at byte `position`."""

    offset: int
    position: int


def pack_entry(relative_offset: int, position: int) -> bytes:
    """Bytes of one entry; `relative_offset` counts from the segment's base offset."""
    return _ENTRY.pack(relative_offset, position)


def read_entry(buf: Buffer, base_offset: int, slot: int) -> OffsetPosition:
    """Read entry number `slot`, with its offset made absolute."""
    relative, position = _ENTRY.unpack_from(buf, slot * ENTRY_SIZE)
    return OffsetPosition(base_offset + relative, position)


def lookup(
    buf: Buffer, base_offset: int, target: int, entries: int | None = None
) -> OffsetPosition:
    """Find the largest entry whose offset is <= `target`.

    Args:
        buf: The index file's bytes.
        base_offset: The segment's.
        target: The wanted offset.
        entries: Valid entries in `buf`; None: all of it (an active index has a zero tail).

    Returns:
        The entry, or (base_offset, 0) if every entry is above `target`.
    """
    low, high = 0, len(buf) // ENTRY_SIZE if entries is None else entries
    wanted = target - base_offset
    read = _RELATIVE.unpack_from
    while low < high:
        middle = (low + high) // 2
        if read(buf, middle * ENTRY_SIZE)[0] <= wanted:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return OffsetPosition(base_offset, 0)
    return read_entry(buf, base_offset, low - 1)


def iter_entries(
    buf: Buffer, base_offset: int, entries: int | None = None
) -> Iterator[OffsetPosition]:
    """All entries in order, with absolute offsets; bytes after the last whole entry are left."""
    count = len(buf) // ENTRY_SIZE if entries is None else entries
    for relative, position in _ENTRY.iter_unpack(memoryview(buf)[: count * ENTRY_SIZE]):
        yield OffsetPosition(base_offset + relative, position)


def columns(buf: Buffer) -> tuple["array[int]", "array[int]"]:
    """Relative offsets and positions of all entries, at the speed of C.

    `buf` is whole entries.
    """
    both = array("i", bytes(buf))
    if sys.byteorder == "little":
        both.byteswap()
    return both[::2], both[1::2]


def is_sound(buf: Buffer, size_bytes: int) -> bool:
    """True if a closed index has whole, ascending entries within a segment of `size_bytes`.

    Positions are above 0: the first batch of a segment has no entry.
    """
    if len(buf) % ENTRY_SIZE:
        return False
    relatives, positions = columns(buf)
    if not relatives:
        return True
    within = relatives[0] >= 0 and positions[0] > 0 and positions[-1] < size_bytes
    return within and rises(relatives) and rises(positions)


_SLICE = 4_096
"""Number of values compared at a time, because other threads wait for the interpreter."""


def rises(values: Sequence[Any]) -> bool:
    """True if each value is less than the next; compared at the speed of C."""
    return all(
        all(map(lt, values[start : start + _SLICE], values[start + 1 : start + _SLICE + 1]))
        for start in range(0, len(values), _SLICE)
    )
