"""Notes the partitions in which something changed since a fetch has looked at them.

A fetch of thousands of partitions reads all of them once, then only those that were noted. They
have new visible bytes, or their role, log start or existence has changed. Any other partition would
answer the same again.
"""

import asyncio
from typing import Any, Final, Generic, Protocol, TypeVar

SLICE_PARTITIONS: Final = 500
"""Partitions that are left in one iteration of the event loop."""


class Waiter(Protocol):
    """Something parked on partitions (a fetch)."""

    def on_bytes(self, size_bytes: int) -> None:
        """So many bytes became visible in a partition."""

    def on_change(self) -> None:
        """Role, epoch, log start or existence changed: look again now."""


class Watched(Protocol):
    """The part of a partition that a watch needs."""

    watches: "dict[FetchWatch[Any], None]"
    log_watches: "dict[FetchWatch[Any], None]"
    deleted: bool


Partition = TypeVar("Partition", bound=Watched)


class FetchWatch(Generic[Partition]):
    """Registered at each partition that a fetch has looked at.

    Without a parked fetch, a partition notes a change once, and drops the watch until the next
    pass. So appends cost nothing for a client that is not waiting.

    Attributes:
        changed: Partitions that were noted and not yet looked at again.
        parked: The fetch that waits now.
        is_replicas: A follower fetches: it waits for appended records, not for visible ones.
    """

    __slots__ = ("_watched", "changed", "is_replicas", "parked")

    def __init__(self) -> None:
        self.changed: set[Partition] = set()
        self.is_replicas = False
        self.parked: Waiter | None = None
        self._watched: set[Partition] = set()

    def add(self, partition: Partition) -> None:
        """Watch a partition from now on.

        Call it in the iteration of the loop in which it is read.
        """
        self._watched.add(partition)
        watches = partition.log_watches if self.is_replicas else partition.watches
        watches[self] = None

    def note(self, partition: Partition) -> None:
        """Note news for the next fetch; a parked fetch does not wake for it."""
        self.changed.add(partition)
        if self.parked is None:
            self.leave(partition)

    def on_bytes(self, partition: Partition, size_bytes: int) -> None:
        """So many bytes became visible there, or were appended; see `is_replicas`."""
        self.changed.add(partition)
        if self.parked is None:
            self.leave(partition)
        else:
            self.parked.on_bytes(size_bytes)

    def on_change(self, partition: Partition) -> None:
        """Role, epoch, log start or existence changed there."""
        self.changed.add(partition)
        if self.parked is None or partition.deleted:
            self.leave(partition)
        if self.parked is not None:
            self.parked.on_change()

    def take_changed(self) -> set[Partition]:
        """The partitions to look at again; from now on they count as looked at."""
        changed, self.changed = self.changed, set()
        return changed

    def leave(self, partition: Partition) -> None:
        """Watch it no longer."""
        self._watched.discard(partition)
        partition.watches.pop(self, None)
        partition.log_watches.pop(self, None)

    def close(self) -> None:
        """Leave all partitions, some in each iteration of the loop; fine to call twice."""
        watched, self._watched = self._watched, set()
        self._leave_some(watched)
        self.changed = set()

    def _leave_some(self, watched: set[Partition]) -> None:
        for _ in range(min(SLICE_PARTITIONS, len(watched))):
            self.leave(watched.pop())
        if watched:
            asyncio.get_running_loop().call_soon(self._leave_some, watched)
