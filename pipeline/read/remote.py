"""Reads the rows of one remote segment, or of a part of it, as groups of whole batches.

Runs in the thread that reads ahead. Validates what bytes alone cannot show: whether the batches are
those of this segment.
"""

from collections.abc import Iterator

from kafka_protocol.records.batch import HEADER_SIZE
from pipeline.decode.asked import AbortedLookup
from pipeline.decode.group import Keep, Origin
from pipeline.errors import DamagedDataError
from pipeline.read.byte_range import (
    ByteRange,
    is_sound,
    needs_index,
    range_by_index,
    whole_range,
)
from pipeline.read.groups import BatchFront, Group, TwoBuffers, batch_front
from pipeline.read.segment_bytes import SegmentBytes, SegmentStream
from pipeline.values import RemotePiece


class RemoteGroups:
    """One piece while it is read.

    Attributes:
        name: of the segment's log.
        next_offset: behind the batches that were handed out (exclusive); -1 before the first.
    """

    def __init__(
        self, piece: RemotePiece, segment: SegmentBytes, buffers: TwoBuffers, group_bytes: int
    ) -> None:
        self._piece, self._bytes, self._buffers = piece, segment, buffers
        self._group_bytes = group_bytes
        self.name = segment.name
        self.next_offset = -1
        aborted = AbortedLookup(piece.aborted)
        self._keep = Keep(piece.first, piece.last, aborted, piece.segment.leader_epochs)

    def __iter__(self) -> Iterator[Group]:
        """All groups, ascending by offset.

        Raises:
            RemoteResourceNotFoundError: the segment is gone.
            DamagedDataError: what is there is not this segment.
            StoreUnreachableError: the store refuses or failed for too long.
            StoppedError: the reader was closed.
        """
        span = self._range()
        if span.begin >= span.end:
            return
        stream = self._bytes.open(span.begin, span.end)
        try:
            yield from self._groups(stream, span)
        finally:
            stream.close()

    def _range(self) -> ByteRange:
        if not needs_index(self._piece):
            return whole_range(self._piece)
        index = self._bytes.offset_index()
        if not is_sound(index, self._piece):
            raise DamagedDataError(
                f"{self._bytes.name}: the offset index of {len(index)} bytes is not one of this"
                " segment: its entries do not rise, or lead outside"
            )
        return range_by_index(self._piece, index)

    def _groups(self, stream: SegmentStream, span: ByteRange) -> Iterator[Group]:
        partition = self._piece.segment.topic_id_partition
        position, rest, wanted = span.begin, memoryview(b""), 0
        while position < span.end and self.next_offset <= self._piece.last:
            size = min(max(self._group_bytes, wanted, HEADER_SIZE), span.end - position)
            data = self._buffers.filling(size)
            data[: len(rest)] = rest
            count = len(rest) + stream.fill(data[len(rest) :])
            front = batch_front(data[:count])
            if front.size_bytes:
                self._check(front, position)
                origin = Origin(partition.topic, partition.partition, self._bytes.name, position)
                self._buffers.swap()
                yield Group(data[: front.size_bytes], origin, self._keep)
                position += front.size_bytes
            elif position + max(front.wanted_bytes, count + 1) > span.end:
                raise DamagedDataError(
                    f"{self._bytes.name}, byte {position}: a batch of"
                    f" {front.wanted_bytes or 'unknown'} bytes where {span.end - position} are left"
                )
            rest, wanted = data[front.size_bytes : count], front.wanted_bytes

    def _check(self, front: BatchFront, position: int) -> None:
        segment = self._piece.segment
        smallest = max(segment.start_offset, self.next_offset)
        if front.next_offset < 0:  # an impossible length at once: the decoder names it
            return
        if front.first_offset < smallest or front.next_offset - 1 > segment.end_offset:
            raise DamagedDataError(
                f"{self._bytes.name}, byte {position}: batches of offsets {front.first_offset} to"
                f" {front.next_offset - 1} where {smallest} to {segment.end_offset} are allowed"
            )
        self.next_offset = front.next_offset
