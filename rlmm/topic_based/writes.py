"""Pending writes: records that went to the port and are not read back yet, found without a scan."""

import heapq
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

from rlmm.api import Fence
from rlmm.events import MetadataEvent
from rlmm.store import PartitionKey, partition_key

R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Write(Generic[R]):
    """A record that went to the port and is not read back yet.

    Attributes:
        role: Of its owner; None: the remover's.
        done: Of the caller; None: part of a barrier that a later record completes.
        ends_barrier: The barrier of `role` is complete when this record is read back.
        offset: Its offset in the log, if known; -1: written at an unknown offset.
        failure: The error of the append; `maybe_written` says whether it may still land.
        number: Number of the call.
    """

    event: MetadataEvent
    role: R | None
    done: "Future[None] | None"
    deadline_ms: int
    ends_barrier: bool = False
    offset: int | None = None
    failure: str | None = None
    maybe_written: bool = True
    number: int = 0

    def lost(self, position: int, now_ms: int) -> str | None:
        """Why its outcome stays unknown once all below `position` was read; None: it may come."""
        if self.offset is not None and position > self.offset:
            return "nobody knows its place" if self.offset < 0 else "its place was passed unseen"
        if self.failure is None and now_ms >= self.deadline_ms:
            return "not read back in time"
        return self.failure


_IN_ORDER = attrgetter("number")


class Writes(Generic[R]):
    """Pending writes of one metadata partition, in the order of the calls; not thread-safe.

    Their deadlines must not fall in that order.
    """

    __slots__ = ("_added", "_answered", "_by_partition", "_by_role", "_placed", "_writes")

    def __init__(self) -> None:
        self._writes: dict[Write[R], None] = {}
        self._answered: list[Write[R]] = []  # without an offset
        self._placed: list[tuple[int, int, Write[R]]] = []  # a heap by offset, some are removed
        self._added = 0
        self._by_role: dict[int, dict[Write[R], None]] = {}  # by identity of the role, or of None
        self._by_partition: Counter[tuple[PartitionKey, Fence]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._writes)

    def __iter__(self) -> Iterator[Write[R]]:
        return iter(self._writes)

    def __contains__(self, write: Write[R]) -> bool:
        return write in self._writes

    def add(self, write: Write[R]) -> None:
        """Add a pending write."""
        self._added += 1
        write.number = self._added
        self._writes[write] = None
        self._by_role.setdefault(id(write.role), {})[write] = None
        self._by_partition[_names(write.event)] += 1

    def remove(self, write: Write[R]) -> None:
        """Remove a write that is read back or given up."""
        del self._writes[write]
        of_role = self._by_role[id(write.role)]
        del of_role[write]
        if not of_role:
            del self._by_role[id(write.role)]
        names = _names(write.event)
        self._by_partition[names] -= 1
        if not self._by_partition[names]:
            del self._by_partition[names]

    def answered(self, write: Write[R]) -> None:
        """The port's answer is noted in the write."""
        if write not in self._writes:
            return
        if write.offset is None or write.offset < 0:
            self._answered.append(write)
        else:
            heapq.heappush(self._placed, (write.offset, write.number, write))

    def take_due(self, position: int, now_ms: int) -> list[Write[R]]:
        """Writes to be decided by the next record, the port's answer or the time, in order.

        They are not removed. Each offset is returned once: the records that are read from
        `position` on end its write.
        """
        due, self._answered = dict.fromkeys(self._answered), []
        while self._placed and self._placed[0][0] < position:
            due[heapq.heappop(self._placed)[2]] = None
        for write in self._writes:
            if write.deadline_ms > now_ms:
                break
            due[write] = None
        return sorted((write for write in due if write in self._writes), key=_IN_ORDER)

    def take_of(self, role: R | None) -> list[Write[R]]:
        """Remove and return the writes of a role; None: the remover's."""
        found = list(self._by_role.get(id(role), ()))
        for write in found:
            self.remove(write)
        return found

    def await_event(self, event: MetadataEvent) -> bool:
        """True if a record may be a pending write."""
        return _names(event) in self._by_partition


def _names(event: MetadataEvent) -> tuple[PartitionKey, Fence]:
    return partition_key(event.topic_id_partition), event.stamp.fence
