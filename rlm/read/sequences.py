"""Readers that go on: known by the offset at which each will ask next.

A reader has no name: who asks where an answer ended is taken for the one who got that answer. One
that does not come back is forgotten, and what was to be loaded for it is let go.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from rlm.read.read_ahead_policy import Pace

READERS_MAX = 4_096
IDLE_MS = 5_000
"""A reader that has not come back for so long does not count as one."""

Place = tuple[bytes, int, int]
"""Topic id, partition, offset."""


@dataclass(slots=True)
class Sequence:
    """One reader.

    Attributes:
        number: names it.
        token: of the last chunk it was given bytes of.
        seen_ms: when it last asked.
    """

    number: int
    pace: Pace
    token: int = 0
    seen_ms: int = 0


class Sequences:
    """All readers, the longest silent first."""

    def __init__(self, gone: Callable[[int], None]) -> None:
        """`gone` is called with the number of a reader that is forgotten."""
        self._gone = gone
        self._readers: OrderedDict[Place, Sequence] = OrderedDict()
        self._asking: OrderedDict[int, int] = OrderedDict()  # number and since when
        self._next = self._resting = 0

    def __len__(self) -> int:
        """Remembered places, of those too who asked just once."""
        return len(self._readers)

    @property
    def active(self) -> int:
        """Readers that go on: who waits for an answer, and who is expected back."""
        return self._resting + len(self._asking)

    def take(self, place: Place, now_ms: int) -> Sequence:
        """The reader who would ask there next, or a new one."""
        found = self._readers.pop(place, None)
        if found is None:
            self._next += 1
            return Sequence(self._next, Pace())
        if found.pace.streak > 1:
            self._resting -= 1
            self._asking[found.number] = now_ms
        return found

    def remember(self, place: Place, sequence: Sequence, now_ms: int) -> None:
        """A reader will ask there next."""
        self.forget_silent(now_ms)
        self._asking.pop(sequence.number, None)
        before = self._readers.pop(place, None)
        if before is not None:  # side by side: one stands for both
            self._uncount(before)
            if before.pace.streak > sequence.pace.streak:
                sequence = before
        sequence.seen_ms = now_ms
        self._readers[place] = sequence
        if sequence.pace.streak > 1:
            self._resting += 1
        if len(self._readers) > READERS_MAX:
            self._forget_first()

    def forget_silent(self, now_ms: int) -> None:
        """Forget who has not come back."""
        limit_ms = now_ms - IDLE_MS
        while self._readers and next(iter(self._readers.values())).seen_ms < limit_ms:
            self._forget_first()
        while self._asking and next(iter(self._asking.values())) < limit_ms:
            self._gone(self._asking.popitem(last=False)[0])

    def _forget_first(self) -> None:
        _, sequence = self._readers.popitem(last=False)
        self._uncount(sequence)
        self._gone(sequence.number)

    def _uncount(self, sequence: Sequence) -> None:
        if sequence.pace.streak > 1:
            self._resting -= 1

    def deepest(self) -> int:
        """The largest depth of any reader."""
        return max((each.pace.depth for each in self._readers.values()), default=0)
