"""The whole batches at the front of some bytes: how long they are and which offsets they span.

Only lengths and offsets are looked at; checksums are the decoder's matter.
"""

from struct import Struct
from typing import NamedTuple

from kafka_protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, Buffer

_SPAN = Struct(">qi11xi")
"""Base offset, batch length, and behind epoch, magic, checksum and attributes the offset delta."""
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD


class BatchFront(NamedTuple):
    """What is at the front.

    Attributes:
        size_bytes: of the whole batches. All of the data where a length is impossible: the decoder
            then says what is wrong.
        first_offset: of the first of them.
        next_offset: behind the last of them (exclusive).
        wanted_bytes: how long the batch behind them says that it is, 0 where its header is cut.
    """

    size_bytes: int
    first_offset: int
    next_offset: int
    wanted_bytes: int


def batch_front(data: Buffer) -> BatchFront:
    """Walk the batches."""
    position, end = 0, len(data)
    first_offset = next_offset = -1
    unpack = _SPAN.unpack_from
    while position + HEADER_SIZE <= end:
        base, length, delta = unpack(data, position)
        if length < _LENGTH_MIN:
            return BatchFront(end, first_offset, next_offset, 0)
        following = position + length + LOG_OVERHEAD
        if following > end:
            return BatchFront(position, first_offset, next_offset, length + LOG_OVERHEAD)
        if first_offset < 0:
            first_offset = base
        next_offset = base + delta + 1
        position = following
    return BatchFront(position, first_offset, next_offset, 0)
