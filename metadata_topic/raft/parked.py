"""Fetches that wait at a leader for new records.

There may be thousands, and each request, tick and flush is a step of the core. So only `every` and
`take` iterate over all of them: a replica's Fetch is found by its key, the next deadline by a heap.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from metadata_topic.raft.messages import FetchRequest
from metadata_topic.raft.voters import ReplicaKey

_LEFT_MAX: Final = 64
"""Deadlines of answered Fetches that may stay in the heap, besides as many as wait."""


@dataclass(slots=True)
class Parked:
    """A Fetch that waits for new records."""

    token: int
    request: FetchRequest
    deadline_ms: int


class ParkedFetches:
    """Waiting Fetches, oldest first."""

    __slots__ = ("_by_token", "_deadlines", "_token_of")

    def __init__(self) -> None:
        self._by_token: dict[int, Parked] = {}
        self._token_of: dict[ReplicaKey, int] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """Number of waiting Fetches."""
        return len(self._by_token)

    def every(self) -> Iterator[Parked]:
        """Iterate over all, oldest first."""
        return iter(self._by_token.values())

    def add(self, parked: Parked) -> None:
        """Add a Fetch; the caller has removed an older one of the same replica."""
        self._by_token[parked.token] = parked
        if parked.request.replica.id >= 0:
            self._token_of[parked.request.replica] = parked.token
        if len(self._deadlines) > 2 * len(self._by_token) + _LEFT_MAX:
            self._deadlines = [(one.deadline_ms, one.token) for one in self.every()]
            heapify(self._deadlines)
        else:
            heappush(self._deadlines, (parked.deadline_ms, parked.token))

    def take_of(self, key: ReplicaKey) -> Parked | None:
        """Remove and return a replica's Fetch, if one waits."""
        token = self._token_of.get(key)
        return None if token is None else self._take(token)

    def take(self, is_wanted: Callable[[Parked], bool], first: Container[int]) -> list[Parked]:
        """Remove and return all wanted ones, those of replica ids in `first` before the others."""
        wanted = [one for one in self._by_token.values() if is_wanted(one)]
        for parked in wanted:
            self._take(parked.token)
        wanted.sort(key=lambda one: one.request.replica.id not in first)
        return wanted

    def take_due(self, now_ms: int) -> list[Parked]:
        """Remove and return those whose deadline has passed."""
        due = []
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            due.append(self._take(heappop(self._deadlines)[1]))
        return due

    def next_deadline_ms(self) -> int | None:
        """Return the next deadline; None if no Fetch waits."""
        while self._deadlines and self._deadlines[0][1] not in self._by_token:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _take(self, token: int) -> Parked:
        parked = self._by_token.pop(token)
        if self._token_of.get(parked.request.replica) == token:
            del self._token_of[parked.request.replica]
        return parked
