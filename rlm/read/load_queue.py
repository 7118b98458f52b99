"""Which load a free thread takes next: what somebody waits for comes before what is loaded ahead.

Of what is waited for each reader's loads come in turn, so that one that asks for a thousand
partitions holds up nobody but itself.

Loads are added, hurried and dropped by the owner's thread and taken by pool threads. Loads ahead
never take all threads, so that whoever comes new finds one.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Protocol

from rlm.read.fair_line import FairLine


class Queued(Protocol):
    """What waits in the queue."""

    urgent: bool

    @property
    def reader(self) -> str:
        """Who waits for it."""
        ...


class LoadQueue:
    """Two lines of loads: the urgent ones fairly between readers, the others oldest first."""

    def __init__(self, ahead_max: Callable[[], int]) -> None:
        """`ahead_max` says how many loads ahead may run at a time."""
        self._ahead_max, self._lock = ahead_max, Lock()
        self._urgent = FairLine[Queued]()
        self._ahead: deque[Queued] = deque()
        self._ahead_running = 0
        self._refused = 0

    def __len__(self) -> int:
        """Loads that wait."""
        return len(self._urgent) + len(self._ahead)

    def add(self, load: Queued) -> None:
        """Put a load at the end of its line; one `take` is to follow."""
        with self._lock:
            if load.urgent:
                self._urgent.add(load.reader, load)
            else:
                self._ahead.append(load)

    def hurry(self, load: Queued) -> bool:
        """Somebody waits for it now; says whether a `take` more is needed."""
        with self._lock:
            if load.urgent or load not in self._ahead:
                return False
            self._ahead.remove(load)
            load.urgent = True
            self._urgent.add(load.reader, load)
            return self._pardon()

    def drop(self, load: Queued) -> bool:
        """Take out a load that nobody waits for; False if it has begun."""
        with self._lock:
            if load not in self._ahead:
                return False
            self._ahead.remove(load)
            return True

    def take(self) -> Queued | None:
        """The load to begin now; None if there is none that may begin."""
        with self._lock:
            if self._urgent:
                return self._urgent.take()
            if not self._ahead:
                return None
            if self._ahead_running >= self._ahead_max():
                self._refused += 1
                return None
            self._ahead_running += 1
            return self._ahead.popleft()

    def ended(self, load: Queued) -> bool:
        """A load that was taken is over; says whether a `take` more is needed."""
        with self._lock:
            if not load.urgent:
                self._ahead_running -= 1
            return self._pardon()

    def _pardon(self) -> bool:
        """Whether a `take` that was refused is to be made up for; the lock is held."""
        if not self._refused:
            return False
        self._refused -= 1
        return True
