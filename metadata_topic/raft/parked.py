"""Fetches that wait at a leader for something new.

There may be thousands, and each request, tick and flush is a step of the core. So nothing here but
`every` and `take` walks through all of them: what a replica asked before is found by its key, what
is due next by a heap.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from metadata_topic.raft.messages import FetchRequest
from metadata_topic.raft.voters import ReplicaKey

_LEFT_MAX: Final = 64
"""Deadlines of answered ones that may stay in the heap, besides as many as wait."""


@dataclass(slots=True)
class Parked:
    """A Fetch that waits for something new."""

    token: int
    request: FetchRequest
    deadline_ms: int


class ParkedFetches:
    """See the module; oldest first."""

    __slots__ = ("_by_token", "_deadlines", "_token_of")

    def __init__(self) -> None:
        self._by_token: dict[int, Parked] = {}
        self._token_of: dict[ReplicaKey, int] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """How many wait."""
        return len(self._by_token)

    def every(self) -> Iterator[Parked]:
        """All that wait."""
        return iter(self._by_token.values())

    def add(self, parked: Parked) -> None:
        """Let one wait; what its replica asked before is taken out by then."""
        self._by_token[parked.token] = parked
        if parked.request.replica.id >= 0:
            self._token_of[parked.request.replica] = parked.token
        if len(self._deadlines) > 2 * len(self._by_token) + _LEFT_MAX:
            self._deadlines = [(one.deadline_ms, one.token) for one in self.every()]
            heapify(self._deadlines)
        else:
            heappush(self._deadlines, (parked.deadline_ms, parked.token))

    def take_of(self, key: ReplicaKey) -> Parked | None:
        """Take out what a replica has asked, if that waits."""
        token = self._token_of.get(key)
        return None if token is None else self._take(token)

    def take(self, is_wanted: Callable[[Parked], bool], first: Container[int]) -> list[Parked]:
        """Take out all that are wanted, those of the replica ids in `first` before the others."""
        wanted = [one for one in self._by_token.values() if is_wanted(one)]
        for parked in wanted:
            self._take(parked.token)
        wanted.sort(key=lambda one: one.request.replica.id not in first)
        return wanted

    def take_due(self, now_ms: int) -> list[Parked]:
        """Take out those whose time is over."""
        due = []
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            due.append(self._take(heappop(self._deadlines)[1]))
        return due

    def next_deadline_ms(self) -> int | None:
        """When the next one's time is over; None if none waits."""
        while self._deadlines and self._deadlines[0][1] not in self._by_token:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _take(self, token: int) -> Parked:
        parked = self._by_token.pop(token)
        if self._token_of.get(parked.request.replica) == token:
            del self._token_of[parked.request.replica]
        return parked
