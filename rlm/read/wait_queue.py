"""Waiters for a scarce resource, without a timer each: readers in turn.

It belongs to the owner's thread. When some of the resource is free, waiters are called in their
order until one joins again. The free amount was not enough for that one, so the waiters behind it
are not called. So an event costs no more than the waiters that it lets continue. The waiters of one
reader are called first come, first served.
"""

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from runtime.scheduler import Scheduler

READERS_MAX = 4_096
"""Bound of the readers whose last end is remembered; a forgotten one counts as new."""

STALE_MAX = 64
"""Entries of readers that have left the queue; more are removed when the next reader leaves."""

Item = TypeVar("Item")

Waiter = Callable[[], None]

CALLS_MAX = 32
"""Waiters called at a time; then the thread is free for other work."""


class FairQueue(Generic[Item]):
    """Items of several readers; those of one reader keep their order.

    Start-time fair queueing: a reader's next item starts where its last one ended, counted in
    costs, but not before the item that is being served. The earliest start is served first. So a
    reader with a thousand items delays only itself, a new reader is served within a round, and a
    pause gives no advantage. Not thread-safe: the user holds a lock where needed.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, OrderedDict[Item, int]] = {}  # with their costs
        self._heap: list[tuple[int, int, str]] = []  # start, order of coming, reader
        self._listed: set[str] = set()  # readers with an entry in the heap
        self._ends: OrderedDict[str, int] = OrderedDict()
        self._now = self._count = self._size = 0

    def __len__(self) -> int:
        """Number of waiting items."""
        return self._size

    def add(self, reader: str, item: Item, cost: int = 1) -> None:
        """Queue an item."""
        self._waiting.setdefault(reader, OrderedDict())[item] = cost
        self._size += 1
        if reader not in self._listed:
            self._list(reader, max(self._now, self._ends.get(reader, 0)))

    def remove(self, reader: str, item: Item) -> None:
        """Remove an item if it waits; its reader keeps its place for the next one."""
        items = self._waiting.get(reader)
        if items is None or items.pop(item, None) is None:
            return
        self._size -= 1
        if not items:
            del self._waiting[reader]
            if len(self._heap) > 2 * len(self._waiting) + STALE_MAX:
                self._heap = [entry for entry in self._heap if entry[2] in self._waiting]
                heapify(self._heap)
                self._listed = set(self._waiting)

    def put_back(self, reader: str, item: Item, cost: int = 1) -> None:
        """Queue a taken item again as its reader's next: it could not be served."""
        self.charge(reader, -cost)
        self.add(reader, item, cost)
        self._waiting[reader].move_to_end(item, last=False)

    def take(self) -> Item | None:
        """The next item, None if none waits."""
        while self._heap:
            start, _, reader = heappop(self._heap)
            self._listed.discard(reader)
            items = self._waiting.get(reader)
            if items is None:
                continue
            end = self._ends.get(reader, 0)
            if end > start:  # it was charged since then
                self._list(reader, end)
                continue
            item = next(iter(items))
            cost = items.pop(item)
            self._size -= 1
            self._now = start
            self._ends[reader] = start + cost
            self._ends.move_to_end(reader)
            if len(self._ends) > READERS_MAX:
                self._ends.popitem(last=False)
            if items:
                self._list(reader, start + cost)
            else:
                del self._waiting[reader]
            return item
        return None

    def charge(self, reader: str, cost: int) -> None:
        """Correct the cost of a taken item by `cost`, which may be negative."""
        if reader in self._ends:
            self._ends[reader] += cost

    def _list(self, reader: str, start: int) -> None:
        self._count += 1
        heappush(self._heap, (start, self._count, reader))
        self._listed.add(reader)


class WaitQueue:
    """One queue. A waiter is in it once, and is called once unless it joins again."""

    __slots__ = ("_called", "_is_calling", "_is_due", "_queue", "_readers", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._queue = FairQueue[Waiter]()
        self._readers: dict[Waiter, str] = {}
        self._called: Waiter | None = None
        self._is_calling = self._is_due = False

    def __len__(self) -> int:
        """Number of waiters."""
        return len(self._queue)

    def join(self, waiter: Waiter, reader: str = "") -> None:
        """Wait: at the end, or at the front for a waiter that is being called."""
        if waiter in self._readers:
            return
        self._readers[waiter] = reader
        if waiter == self._called:
            self._queue.put_back(reader, waiter)
        else:
            self._queue.add(reader, waiter)

    def leave(self, waiter: Waiter) -> None:
        """Do not call `waiter` any more; it need not be waiting."""
        reader = self._readers.pop(waiter, None)
        if reader is not None:
            self._queue.remove(reader, waiter)

    def call(self) -> None:
        """Some of the resource is free: call waiters until one joins again."""
        if self._is_calling or self._is_due:
            return
        self._is_calling = True
        try:
            for _ in range(CALLS_MAX):
                waiter = self._called = self._queue.take()
                if waiter is None:
                    break
                del self._readers[waiter]
                waiter()
                if waiter in self._readers:
                    break
            else:
                self._is_due = True
                self._scheduler.call_later(0, self._continue)
        finally:
            self._called, self._is_calling = None, False

    def _continue(self) -> None:
        self._is_due = False
        self.call()
