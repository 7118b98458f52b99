"""A checked part of a remote segment: whole batches in a memory file, with their positions.

Each batch's checksum and framing are checked. Offsets must rise and stay within the segment. Each
batch must have the leader epoch that the metadata names for its offset. And the batches must be
those in the segment's own indexes: this detects a swapped object whose checksums are all right.
"""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from kafka_protocol.errors import TidemarkError
from kafka_protocol.records.batch import CRC_START, HEADER_SIZE, LOG_OVERHEAD
from rlm.read.segment_index import SegmentIndex
from rlmm.lineage import epoch_at
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.disk import OpenFile

_MAGIC = 2
# base offset, length, epoch, magic, crc, attributes, last offset delta, base and max timestamp
_HEAD = Struct(">qiibIhiqq")


class DamagedChunkError(TidemarkError):
    """The bytes are not those of this segment."""


class BatchTable:
    """Positions of a chunk's batches, counted from the chunk's first byte.

    Attributes:
        positions: First byte of each batch, followed by the chunk's size.
        last_offsets, max_timestamps: Of each batch; offsets are inclusive.
    """

    __slots__ = ("last_offsets", "max_timestamps", "positions")

    def __init__(self) -> None:
        self.positions = array("q")
        self.last_offsets = array("q")
        self.max_timestamps = array("q")


@dataclass(frozen=True, slots=True)
class Selection:
    """Bytes [position, position + size_bytes) of a chunk: whole batches.

    They are the batches [first_batch, end_batch) of its table.
    """

    position: int
    size_bytes: int
    next_offset: int
    first_batch: int
    end_batch: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Cost of one ranged GET."""

    first_byte_ms: int
    transfer_ms: int
    size_bytes: int


@dataclass(slots=True)
class Chunk:
    """A cached chunk. The bytes of `file` do not change while the chunk exists.

    Attributes:
        first, end: Position of its bytes in the segment, [first, end).
        token: Name of this chunk, never reused.
        capacity_bytes: Memory of the file, at least `size_bytes`.
        fetched: Only on the last chunk of a GET: the cost of that GET.
        handed_out: Descriptors that the broker holds.
        is_ahead: Loaded ahead, and not entered by any reader yet.
    """

    first: int
    end: int
    file: OpenFile
    capacity_bytes: int
    table: BatchTable
    fetched: Fetched | None = None
    token: int = 0
    handed_out: int = 0
    is_ahead: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of the segment in this chunk."""
        return self.end - self.first

    @property
    def last_offset(self) -> int:
        """Last offset of its last batch (inclusive)."""
        return self.table.last_offsets[-1]


def check_chunk(
    view: memoryview, metadata: RemoteLogSegmentMetadata, index: SegmentIndex, first: int
) -> BatchTable:
    """Check the bytes of a segment that begin at position `first`, and list their batches.

    Raises:
        DamagedChunkError: The defect; none of the bytes may be served.
    """
    table = _walk(view, metadata)
    if first == 0 and metadata.start_offset > _first_offset(view):
        raise DamagedChunkError("begins before the segment")
    is_end = first + len(view) == metadata.segment_size_bytes
    if is_end and table.last_offsets[-1] > metadata.end_offset:
        raise DamagedChunkError("ends after the segment")
    found = set(zip(table.positions, table.last_offsets, strict=False))
    wanted = index.offset_entries(first, first + len(view))
    if not wanted <= found:
        position, offset = min(wanted - found)
        raise DamagedChunkError(
            f"the offset index knows a batch ending at {offset} at byte {first + position},"
            " the log does not"
        )
    _check_times(view, table, index)
    return table


def _first_offset(view: memoryview) -> int:
    return int.from_bytes(view[:8], "big", signed=True)


def _walk(view: memoryview, metadata: RemoteLogSegmentMetadata) -> BatchTable:
    table, position, end = BatchTable(), 0, len(view)
    positions, last_offsets = table.positions, table.last_offsets
    max_timestamps = table.max_timestamps
    epochs = metadata.leader_epochs
    only_epoch = epochs[0].epoch if len(epochs) == 1 else None
    # Batches before this offset were below the log start offset when the segment was copied. The
    # metadata does not name their epochs, and they are never served.
    first_known = epochs[0].start_offset
    before = metadata.start_offset - 1
    while position < end:
        if end - position < HEADER_SIZE:
            raise DamagedChunkError(f"cut inside a batch header at byte {position} of the chunk")
        base, length, epoch, magic, crc, _, delta, _, max_timestamp = _HEAD.unpack_from(
            view, position
        )
        following = position + length + LOG_OVERHEAD
        if magic != _MAGIC or length < HEADER_SIZE - LOG_OVERHEAD or following > end:
            raise DamagedChunkError(f"no whole batch at byte {position} of the chunk")
        if crc32c(view[position + CRC_START : following]) != crc:
            raise DamagedChunkError(f"checksum of the batch at offset {base} is wrong")
        last = base + delta
        if base <= before or delta < 0 or last > metadata.end_offset:
            raise DamagedChunkError(f"batch of offsets {base} to {last} is out of place")
        named = epoch_at(epochs, max(base, first_known)) if only_epoch is None else only_epoch
        # A batch without records stands for lost offsets; it has no epoch.
        stands_for_lost = epoch == -1 and length == HEADER_SIZE - LOG_OVERHEAD
        if epoch != named and last >= first_known and not stands_for_lost:
            raise DamagedChunkError(f"batch at offset {base} is of leader epoch {epoch}")
        positions.append(position)
        last_offsets.append(last)
        max_timestamps.append(max_timestamp)
        position, before = following, last
    if not last_offsets:
        raise DamagedChunkError("no batch")
    positions.append(end)
    return table


def _check_times(view: memoryview, table: BatchTable, index: SegmentIndex) -> None:
    for timestamp, offset in index.time_entries(_first_offset(view), table.last_offsets[-1]):
        slot = bisect_left(table.last_offsets, offset)
        if table.max_timestamps[slot] != timestamp:
            raise DamagedChunkError(
                f"the time index knows timestamp {timestamp} at offset {offset},"
                f" the log has {table.max_timestamps[slot]}"
            )


def select(
    table: BatchTable, offset: int, end_offset: int, max_bytes: int, *, min_one_batch: bool
) -> Selection | None:
    """Select whole batches, beginning with the one that holds `offset` (or the first after it).

    Args:
        table: Of a chunk.
        offset: First wanted offset.
        end_offset: Exclusive; a batch that reaches it is left out.
        max_bytes: Bound of the selection.
        min_one_batch: The first batch may exceed that bound.

    Returns:
        The selection, or None if it would be empty.
    """
    first = bisect_left(table.last_offsets, offset)
    stop = bisect_left(table.last_offsets, end_offset)
    if first >= stop:
        return None
    start = table.positions[first]
    fitting = bisect_right(table.positions, start + max_bytes) - 1
    end = min(fitting, stop)
    if end <= first:
        if not min_one_batch:
            return None
        end = first + 1
    size_bytes = table.positions[end] - start
    return Selection(start, size_bytes, table.last_offsets[end - 1] + 1, first, end)
