"""The transaction index (`.txnindex`): aborted transactions whose ABORT marker is in the segment.

An entry is `int16 version 0, int64 producer id, int64 first offset, int64 last offset, int64 last
stable offset`. Entries have the order of their markers. A segment without entries has no file.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.wire.primitives import Buffer

ENTRY_SIZE = 34
VERSION = 0

_ENTRY = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One aborted transaction.

    Attributes:
        first_offset: Its first data record, inclusive.
        last_offset: Its ABORT marker, inclusive.
        last_stable_offset: The partition's right after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def pack_entry(entry: AbortedTransaction) -> bytes:
    """Bytes of one entry."""
    return _ENTRY.pack(VERSION, *entry)


def iter_entries(buf: Buffer) -> Iterator[AbortedTransaction]:
    """All entries in order.

    Raises:
        CorruptFileError: Another version, or bytes left after the last whole entry.
    """
    if len(buf) % ENTRY_SIZE:
        raise CorruptFileError(f"{len(buf)} bytes are no whole number of entries")
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(buf):
        if version != VERSION:
            raise CorruptFileError(f"entry of version {version}")
        yield AbortedTransaction(producer_id, first, last, stable)


def entries_from(buf: Buffer, start: int) -> Iterator[AbortedTransaction]:
    """Return the entries whose marker is at or above `start`; markers ascend in the file.

    Raises:
        CorruptFileError: From `iter_entries`.
    """
    low, high = 0, len(buf) // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        if _ENTRY.unpack_from(buf, middle * ENTRY_SIZE)[3] < start:
            low = middle + 1
        else:
            high = middle
    return iter_entries(memoryview(buf)[low * ENTRY_SIZE :])


def overlapping(
    entries: Iterator[AbortedTransaction], start: int, end: int
) -> tuple[list[AbortedTransaction], bool]:
    """Pick the transactions that a read of offsets [start, end) must know.

    Args:
        entries: Of one segment, in file order.
        start: First offset read.
        end: First offset not read.

    Returns:
        The matching entries, and True if later segments have none (an entry's last stable offset
        is at or above `end`).
    """
    found: list[AbortedTransaction] = []
    for entry in entries:
        if entry.last_offset >= start and entry.first_offset < end:
            found.append(entry)
        if entry.last_stable_offset >= end:
            return found, True
    return found, False
