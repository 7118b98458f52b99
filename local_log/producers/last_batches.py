"""The newest batch of each producer of a log, for a pass of the cleaner.

A log may have a million producers: they are collected on the loop, some in each slice, and packed.
Batches appended meanwhile are above the range of the pass, so it does not matter whether they are
included.
"""

from array import array
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from local_log.producers.state import ProducerStates


class LastBatch(NamedTuple):
    """State of a producer, for the cleaner.

    Attributes:
        offset: Last offset of its newest data batch; -1 if it has only markers in this epoch.
        epoch: Its newest one.
    """

    offset: int
    epoch: int


class LastBatches:
    """Collected for offsets from `first` (inclusive) to `end` (exclusive); on the loop.

    Attributes:
        packed: The result: producer id, offset and epoch of each, 8 bytes per number.
    """

    __slots__ = ("_at", "_count", "_end", "_first", "_forgotten", "_ids", "_states", "packed")

    def __init__(self, states: ProducerStates, first: int, end: int) -> None:
        self._states, self._first, self._end = states, first, end
        self._at, self._forgotten = 0, states.forgotten
        self._count = len(states.producers)  # later ones follow these in the dict
        self._ids: Iterator[int] = iter(states.producers)
        self.packed = bytearray()

    def take(self, count: int) -> bool:
        """Collect the next ones, up to `count`; False: those were the last."""
        states = self._states
        if (
            gone := states.forgotten - self._forgotten
        ):  # some of them may have preceded this position
            self._at, self._forgotten = max(self._at - gone, 0), states.forgotten
            self._ids = islice(states.producers, self._at, None)
        count = min(count, self._count - self._at)
        ids: list[int] | None = None
        while ids is None:
            try:
                ids = list(islice(self._ids, count))
            except RuntimeError:  # ids were added, behind those collected
                self._ids = islice(states.producers, self._at, None)
        self._at += len(ids)
        found = array("q")
        for producer_id in ids:
            state = states.producers[producer_id]
            offset = state.batches[-1][1] if state.batches else -1
            if offset == -1 or self._first <= offset < self._end:
                found.extend((producer_id, offset, state.epoch))
        self.packed += found.tobytes()
        return bool(ids) and self._at < self._count


def unpacked(packed: bytes) -> dict[int, LastBatch]:
    """Unpack by producer id; the packing process must be on the same machine."""
    numbers = array("q", packed)
    return {
        numbers[at]: LastBatch(numbers[at + 1], numbers[at + 2]) for at in range(0, len(numbers), 3)
    }
