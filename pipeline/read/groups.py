"""Groups of whole batches, from the thread that reads to the one that decodes."""

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from kafka_protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, Buffer
from pipeline.decode.group import Keep, Origin

_SPAN = Struct(">qi11xi")
"""Base offset, batch length, and behind epoch, magic, checksum and attributes the offset delta."""
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much is read at once, and how long is waited for it.

    Attributes:
        group_bytes: stored bytes that are read and decoded at once; two such buffers are held, and
            a larger batch gets larger ones. Four times as much is no faster.
        call_bytes: most that one call of a stream is asked for: between two calls a reader that is
            closed ends.
        retry_s: a store or a broker that fails for now is asked again, for so long since the last
            byte that came. Above what one call of a plugin may take (S3: 60 s).
        silence_s: so long without a byte, retries or none, and the store counts as unreachable.
        tail_bytes: most that one answer of a broker should hold.
    """

    group_bytes: int = 8 << 20
    call_bytes: int = 4 << 20
    retry_s: float = 120.0
    silence_s: float = 300.0
    tail_bytes: int = 50 << 20


@dataclass(frozen=True, slots=True)
class Group:
    """Whole batches that lie in memory.

    Attributes:
        data: valid until the second next group is asked for: its buffer is used again.
        origin: where they come from.
        keep: which of their rows are wanted.
    """

    data: memoryview
    origin: Origin
    keep: Keep


class TwoBuffers:
    """Memory for groups: one is filled while the other one is decoded."""

    def __init__(self) -> None:
        self._filling, self._decoding = bytearray(), bytearray()

    def filling(self, size_bytes: int) -> memoryview:
        """The buffer that is filled now, at least `size_bytes` long; a larger one is a new one."""
        if len(self._filling) < size_bytes:
            self._filling = bytearray(size_bytes)
        return memoryview(self._filling)[:size_bytes]

    def swap(self) -> None:
        """The group that was filled is handed out; the one before it is done with."""
        self._filling, self._decoding = self._decoding, self._filling


class BatchFront(NamedTuple):
    """The group at the front.

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
    """Walk the batches.

    Only lengths and offsets are looked at; checksums are the decoder's matter.
    """
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
