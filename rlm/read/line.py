"""Those who wait for something scarce, with no timer of their own: readers in turn.

Belongs to the owner's thread. When some of it is there, they are called in their order until one
comes back to wait: what is there did not do for it, so the others behind it are not asked. So an
event costs no more than what it lets go on, however many wait. The waiters of one reader are
called first come, first served.
"""

from collections.abc import Callable

from rlm.read.fair_line import FairLine
from runtime.scheduler import Scheduler

Waiter = Callable[[], None]

CALLS_MAX = 32
"""So many are called at a time; then somebody else gets the thread."""


class Line:
    """One line. A waiter stands in it once, and is called once unless it joins again."""

    __slots__ = ("_called", "_is_calling", "_is_due", "_line", "_readers", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._line = FairLine[Waiter]()
        self._readers: dict[Waiter, str] = {}
        self._called: Waiter | None = None
        self._is_calling = self._is_due = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def join(self, waiter: Waiter, reader: str = "") -> None:
        """Wait: at the end, or again at the front for one that is being called."""
        if waiter in self._readers:
            return
        self._readers[waiter] = reader
        if waiter == self._called:
            self._line.put_back(reader, waiter)
        else:
            self._line.add(reader, waiter)

    def leave(self, waiter: Waiter) -> None:
        """Wait no longer; fine for one that does not."""
        reader = self._readers.pop(waiter, None)
        if reader is not None:
            self._line.remove(reader, waiter)

    def call(self) -> None:
        """There is some of it: call them, until one comes back to wait."""
        if self._is_calling or self._is_due:
            return
        self._is_calling = True
        try:
            for _ in range(CALLS_MAX):
                waiter = self._called = self._line.take()
                if waiter is None:
                    break
                del self._readers[waiter]
                waiter()
                if waiter in self._readers:
                    break
            else:
                self._is_due = True
                self._scheduler.call_later(0, self._go_on)
        finally:
            self._called, self._is_calling = None, False

    def _go_on(self) -> None:
        self._is_due = False
        self.call()
