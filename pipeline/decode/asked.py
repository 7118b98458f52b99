"""The columns to decode, and the rows to keep."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafka_protocol.types import EpochEntry
from pipeline.aborted import AbortedRanges

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_OFFSET_MIN = -(1 << 63)


class AbortedLookup:
    """Ranges by producer, ascending by first offset within each."""

    def __init__(self, ranges: AbortedRanges | None = None) -> None:
        """Unpack and sort them.

        Args:
            ranges: None: nothing is aborted.
        """
        packed = ranges or AbortedRanges()
        columns = np.frombuffer(packed.columns(), "<i8").reshape(3, packed.count)
        producer, first, last = columns[:, np.argsort(columns[0], kind="stable")]
        self._producer, self._first = producer, first
        self._farthest = _rising_within(producer, last)

    def __len__(self) -> int:
        """How many ranges."""
        return len(self._producer)

    def touches(self, producer: Ints, first: Ints, last: Ints) -> Bools:
        """Whether each batch shares an offset with a range of its producer.

        Args:
            producer: id of each batch.
            first: its smallest offset (inclusive).
            last: its largest one (inclusive).
        """
        low = np.searchsorted(self._producer, producer, side="left")
        begin, high = low, np.searchsorted(self._producer, producer, side="right")
        for _ in range(len(self).bit_length()):  # all bisections at once
            middle = (low + high) // 2
            is_open = low < high
            begins = is_open & (self._first[np.where(is_open, middle, 0)] <= last)
            low = np.where(begins, middle + 1, low)
            high = np.where(is_open & ~begins, middle, high)
        found = low > begin
        return found & (self._farthest[np.where(found, low - 1, 0)] >= first)


def _rising_within(producer: Ints, last: Ints) -> Ints:
    """The largest of `last` so far, again for each producer; producers stand together."""
    found = last.copy()
    step = 1
    while step < len(found):
        same = producer[step:] == producer[:-step]
        before = np.where(same, found[:-step], _OFFSET_MIN)
        found[step:] = np.maximum(found[step:], before)
        step *= 2
    return found


NOTHING_ABORTED = AbortedLookup()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where bytes come from: for rows and for messages.

    Attributes:
        name: the object, or the broker.
        position: of the data's first byte in it.
    """

    topic: str
    partition: int
    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Which rows are wanted.

    Attributes:
        first: smallest offset (inclusive).
        last: largest offset (inclusive).
        aborted: transactions whose records are excluded.
        epochs: where given, every batch must be of this chain's epoch at its base offset; one
            below the first entry may be of any.
    """

    first: int
    last: int
    aborted: AbortedLookup = NOTHING_ABORTED
    epochs: tuple[EpochEntry, ...] = ()
