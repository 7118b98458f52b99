"""Batches of a log in their order, to be found by offset."""

from bisect import bisect_left
from dataclasses import dataclass

from metadata_topic.raft.messages import BatchFacts


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch in a log."""

    facts: BatchFacts
    payload: bytes


class BatchIndex:
    """See the module.

    Attributes:
        start_offset: of the log.
        batches: all there are, in order.
        bases: the offset at which each begins.
    """

    start_offset: int
    end_offset: int

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.bases: list[int] = []

    def add(self, batch: Batch) -> None:
        """Let a batch follow the others."""
        self.batches.append(batch)
        self.bases.append(batch.facts.base_offset)

    def clear(self) -> None:
        """Forget all."""
        self.batches, self.bases = [], []

    def keep(self, kept: slice) -> None:
        """Forget all but a part."""
        self.batches, self.bases = self.batches[kept], self.bases[kept]

    def index_at(self, offset: int) -> int:
        """Place of the batch that begins at `offset`, or of the first after it."""
        return bisect_left(self.bases, offset)

    def is_boundary(self, offset: int) -> bool:
        """Whether no batch has records both below and from `offset` on."""
        if offset in (self.start_offset, self.end_offset):
            return True
        index = self.index_at(offset)
        return index < len(self.bases) and self.bases[index] == offset

    def batch_ending_at(self, end_offset: int) -> Batch | None:
        """The batch before a boundary; None below the first one."""
        index = self.index_at(end_offset)
        return self.batches[index - 1] if index else None
