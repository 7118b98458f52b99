"""The indexes of one remote segment in memory, and the borders of its chunks. Pure.

Chunk borders are positions of the offset index nearest above each multiple of the chunk size. Such
a position is the first byte of a batch. So every chunk consists of whole batches and can be checked
by itself. Borders depend on the index alone, so all readers of a segment share the same chunks.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise

from kafka_protocol.errors import TidemarkError
from kafka_protocol.files import offset_index, time_index
from rsm_plugins.segment import RemoteLogSegmentMetadata

OBJECTS_BYTES = 700
"""Memory of an index without entries; small segments are numerous."""


class DamagedIndexError(TidemarkError):
    """An index contradicts itself or the segment's metadata."""


def _big_endian_ints(data: bytes) -> "array[int]":
    numbers = array("i")
    numbers.frombytes(data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


class SegmentIndex:
    """Offset and time index of a remote segment.

    Attributes:
        borders: First byte of each chunk, ascending, followed by the segment's size.
        size_bytes: Approximate memory of this object.
    """

    __slots__ = (
        "_offsets",
        "_positions",
        "_slice_bytes",
        "_time_offsets",
        "_times",
        "base_offset",
        "borders",
        "size_bytes",
    )

    def __init__(
        self,
        metadata: RemoteLogSegmentMetadata,
        offset_index_bytes: bytes,
        time_index_bytes: bytes,
        chunk_bytes: int,
        slice_bytes: int,
    ) -> None:
        """Read and check the indexes; `chunk_bytes` and `slice_bytes` are approximate sizes.

        Raises:
            DamagedIndexError: They cannot belong to this segment.
        """
        if len(offset_index_bytes) % offset_index.ENTRY_SIZE:
            raise DamagedIndexError("offset index: no whole number of entries")
        if len(time_index_bytes) % time_index.ENTRY_SIZE:
            raise DamagedIndexError("time index: no whole number of entries")
        self.base_offset, self._slice_bytes = metadata.start_offset, slice_bytes
        numbers = _big_endian_ints(offset_index_bytes)
        self._offsets, self._positions = numbers[0::2], numbers[1::2]
        self._times = time_index_bytes
        self._time_offsets = _big_endian_ints(time_index_bytes)[2::3]
        if any(before > after for before, after in pairwise(self._time_offsets)):
            raise DamagedIndexError("time index: offsets fall")
        _check_ascending(self._offsets, metadata.end_offset - metadata.start_offset, "offsets")
        _check_ascending(self._positions, metadata.segment_size_bytes - 1, "positions")
        self.borders = self._cut(metadata.segment_size_bytes, chunk_bytes)
        entries_bytes = len(offset_index_bytes) + len(time_index_bytes) + 8 * len(self.borders)
        self.size_bytes = OBJECTS_BYTES + entries_bytes

    def _cut(self, size_bytes: int, chunk_bytes: int) -> list[int]:
        borders = [0]
        positions = self._positions
        wanted = chunk_bytes
        while True:
            slot = bisect_left(positions, wanted)
            if slot == len(positions):
                break
            borders.append(positions[slot])
            wanted = positions[slot] + chunk_bytes
        borders.append(size_bytes)
        return borders

    @property
    def chunk_count(self) -> int:
        """Number of chunks of the segment."""
        return len(self.borders) - 1

    def position_for(self, offset: int) -> int:
        """First byte of a batch at or before the batch of `offset`, where a search begins."""
        slot = bisect_right(self._offsets, offset - self.base_offset) - 1
        return self._positions[slot] if slot >= 0 else 0

    def chunk_at(self, position: int) -> int:
        """The number of the chunk that holds the byte at `position`."""
        return bisect_right(self.borders, position, 0, self.chunk_count) - 1

    def slice_at(self, position: int) -> tuple[int, int]:
        """The part [first, end) of a chunk that holds the byte at `position`.

        Slices are cut like chunks, at index entries, from the chunk's beginning; so all readers
        share them, too. `end` is exclusive.
        """
        number = self.chunk_at(position)
        first, chunk_end = self.borders[number], self.borders[number + 1]
        while True:
            slot = bisect_left(self._positions, first + self._slice_bytes)
            end = self._positions[slot] if slot < len(self._positions) else chunk_end
            if end > position or end >= chunk_end:
                return first, min(end, chunk_end)
            first = end

    def offset_for_timestamp(self, timestamp_ms: int) -> int:
        """An offset such that no record before it has a timestamp >= `timestamp_ms`."""
        # The largest entry strictly below: a batch before the entry's may hold an equal timestamp.
        return time_index.lookup(self._times, self.base_offset, timestamp_ms - 1).offset

    def offset_entries(self, first: int, end: int) -> set[tuple[int, int]]:
        """Entries with a position in [first, end), as (position from `first`, offset)."""
        low, high = bisect_left(self._positions, first), bisect_left(self._positions, end)
        return {
            (position - first, self.base_offset + offset)
            for position, offset in zip(
                self._positions[low:high], self._offsets[low:high], strict=True
            )
        }

    def time_entries(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """(timestamp, offset) of the time index's entries within the offsets, both inclusive."""
        low = bisect_left(self._time_offsets, first_offset - self.base_offset)
        end = bisect_right(self._time_offsets, last_offset - self.base_offset)
        entries = (
            time_index.read_entry(self._times, self.base_offset, slot) for slot in range(low, end)
        )
        return [(entry.timestamp, entry.offset) for entry in entries]


def _check_ascending(values: "array[int]", last_max: int, what: str) -> None:
    """Refuse values that do not rise, or that are outside [0, last_max]."""
    if not values:
        return
    found = values.tolist()
    if found != sorted(set(found)) or found[0] < 0 or found[-1] > last_max:
        raise DamagedIndexError(f"offset index: {what} do not fit the segment")
