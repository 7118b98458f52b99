"""Those who wait for something scarce, first come first served, with no timer of their own.

Belongs to the owner's thread. When some of it is there, they are called in their order until one
comes back to wait: what is there did not do for it, so the others behind it are not asked. So an
event costs no more than what it lets go on, however many wait.
"""

from collections import OrderedDict
from collections.abc import Callable

from runtime.scheduler import Scheduler

Waiter = Callable[[], None]

CALLS_MAX = 32
"""So many are called at a time; then somebody else gets the thread."""


class Line:
    """One line. A waiter stands in it once, and is called once unless it joins again."""

    __slots__ = ("_called", "_is_calling", "_is_due", "_scheduler", "_waiters")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()
        self._called: Waiter | None = None
        self._is_calling = self._is_due = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters)

    def join(self, waiter: Waiter) -> None:
        """Wait: at the end, or again at the front for one that is being called."""
        self._waiters[waiter] = None
        if waiter == self._called:
            self._waiters.move_to_end(waiter, last=False)

    def leave(self, waiter: Waiter) -> None:
        """Wait no longer; fine for one that does not."""
        self._waiters.pop(waiter, None)

    def call(self) -> None:
        """There is some of it: call them, until one comes back to wait."""
        if self._is_calling or self._is_due:
            return
        self._is_calling = True
        for _ in range(CALLS_MAX):
            if not self._waiters:
                break
            waiter = self._called = self._waiters.popitem(last=False)[0]
            waiter()
            if waiter in self._waiters:
                break
        else:
            self._is_due = True
            self._scheduler.call_later(0, self._go_on)
        self._called, self._is_calling = None, False

    def _go_on(self) -> None:
        self._is_due = False
        self.call()
