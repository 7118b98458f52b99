"""Which bytes of a segment a piece reads: pure, from the piece and the offset index.

An entry of the index is (last offset of a batch, position of its first byte). Positions are of a
batch's first byte; `begin` is inclusive, `end` exclusive.
"""

from typing import NamedTuple

from kafka_protocol.files import offset_index
from kafka_protocol.files.offset_index import ENTRY_SIZE, lookup
from kafka_protocol.wire.primitives import Buffer
from pipeline.values import RemotePiece

_WHOLE_BYTES_MAX = 4 << 20
"""A segment up to this size is read whole where the offsets alone would cut it."""


class ByteRange(NamedTuple):
    """Bytes `[begin, end)` of a segment, both where a batch begins (or the segment ends)."""

    begin: int
    end: int


def needs_index(piece: RemotePiece) -> bool:
    """Whether the range cannot be said without the segment's offset index."""
    segment = piece.segment
    size_bytes = segment.segment_size_bytes
    if piece.byte_from > 0 or piece.byte_to < size_bytes:
        return True
    is_whole = piece.first <= segment.start_offset and piece.last >= segment.end_offset
    return not is_whole and size_bytes > _WHOLE_BYTES_MAX


def whole_range(piece: RemotePiece) -> ByteRange:
    """The range of a piece that needs no index."""
    return ByteRange(0, piece.segment.segment_size_bytes)


def is_sound(index: Buffer, piece: RemotePiece) -> bool:
    """Whether an index can be of this segment."""
    segment = piece.segment
    if not offset_index.is_sound(index, segment.segment_size_bytes):
        return False
    if not index:
        return True
    newest = offset_index.read_entry(index, segment.start_offset, len(index) // ENTRY_SIZE - 1)
    return newest.offset <= segment.end_offset


def range_by_index(piece: RemotePiece, index: Buffer) -> ByteRange:
    """The range of a piece: between its cuts, and no more than its offsets need.

    Args:
        piece: what is read.
        index: the segment's offset index; must be sound.
    """
    segment = piece.segment
    base, size_bytes = segment.start_offset, segment.segment_size_bytes
    begin, end = cut(index, size_bytes, piece.byte_from), cut(index, size_bytes, piece.byte_to)
    if piece.first > base:
        # The floor entry's batch ends at or before `first`: nothing before it is wanted.
        begin = max(begin, lookup(index, base, piece.first).position)
    if piece.last < segment.end_offset:
        end = min(end, _end_of_offsets(index, base, piece.last, size_bytes))
    return ByteRange(begin, max(begin, end))


def cut(index: Buffer, size_bytes: int, position: int) -> int:
    """`cut` of `RemotePiece`: the largest position in the index that is <= `position`."""
    if position >= size_bytes:
        return size_bytes
    low, high = 0, len(index) // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        if offset_index.read_entry(index, 0, middle).position <= position:
            low = middle + 1
        else:
            high = middle
    return offset_index.read_entry(index, 0, low - 1).position if low else 0


def _end_of_offsets(index: Buffer, base: int, last: int, size_bytes: int) -> int:
    """Where no batch that begins there or later can hold `last` or less.

    The batch of the first entry at or above `last` may hold it; the batches of later entries begin
    behind that one.
    """
    low, high = 0, len(index) // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        if offset_index.read_entry(index, base, middle).offset < last:
            low = middle + 1
        else:
            high = middle
    later = low + 1
    if later < len(index) // ENTRY_SIZE:
        return offset_index.read_entry(index, base, later).position
    return size_bytes
