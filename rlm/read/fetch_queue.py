"""The queue of reads while the fetch quota is used up: readers in turn, by bytes (KIP-956).

A read is let in once, before anything is loaded for it, and charged then with what it may take;
when it ends the difference to what it took is made good. So no more is let in than the quota has
room for, and what was loaded for a read is given to it. A read whose time is up is answered with
nothing; its reader keeps its position. Belongs to the owner's thread.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rlm.quota import RateQuota
from rlm.read.wait_queue import CALLS_MAX, FairQueue
from runtime.clock import Clock
from runtime.scheduler import Scheduler, Timer


@dataclass(slots=True, eq=False)
class QueuedRead:
    """One read in the queue.

    Attributes:
        reader: who asks; all its reads share what one reader may get.
        charged_bytes: what counts as read while it is under way.
        let_in: called when it may go, unless `FetchQueue.ask` has said so.
        is_in: it may go.
    """

    reader: str
    charged_bytes: int
    let_in: Callable[[], None]
    is_in: bool = False


class FetchQueue:
    """Lets reads in as the quota has room."""

    def __init__(self, quota: RateQuota, clock: Clock, scheduler: Scheduler) -> None:
        self._quota, self._clock, self._scheduler = quota, clock, scheduler
        self._queue = FairQueue[QueuedRead]()
        self._timer: Timer | None = None
        self._is_letting_in = self._is_due = False

    def __len__(self) -> int:
        """Reads that wait."""
        return len(self._queue)

    def ask(self, queued: QueuedRead) -> None:
        """Let a read in, at once if it `is_in` afterwards, or when it is the next."""
        self._queue.add(queued.reader, queued, queued.charged_bytes)
        self._let_in(queued)
        if not queued.is_in:
            now_ms = self._clock.monotonic_ms()
            self._quota.throttled(self._quota.wait_ms(now_ms), now_ms)

    def ended(self, queued: QueuedRead, size_bytes: int) -> None:
        """A read is over; `size_bytes` were read for it."""
        if not queued.is_in:
            self._queue.remove(queued.reader, queued)
            return
        more_bytes = size_bytes - queued.charged_bytes
        self._queue.charge(queued.reader, more_bytes)
        self._quota.record(more_bytes, self._clock.monotonic_ms())
        if more_bytes < 0 and self._queue:
            self.proceed()

    def proceed(self) -> None:
        """There may be room: bytes were given back, or the limit was changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._let_in(None)

    def _let_in(self, asking: QueuedRead | None) -> None:
        """Let in those that there is room for, some at a time.

        One that is let in may be over before `let_in` returns: that room is used by this loop, for
        calls within calls of thousands would not end.
        """
        if self._timer is not None or self._is_letting_in or self._is_due:
            return  # closed until then, or it continues without us
        self._is_letting_in = True
        try:
            for _ in range(CALLS_MAX):
                if not self._let_in_one(asking):
                    return
            self._is_due = True
            self._scheduler.call_later(0, self._continue)
        finally:
            self._is_letting_in = False

    def _let_in_one(self, asking: QueuedRead | None) -> bool:
        if not self._queue:
            return False
        now_ms = self._clock.monotonic_ms()
        wait_ms = self._quota.wait_ms(now_ms)
        if wait_ms > 0:
            self._timer = self._scheduler.call_later(wait_ms, self.proceed)
            return False
        queued = self._queue.take()
        assert queued is not None, "the queue is not empty"
        self._quota.record(queued.charged_bytes, now_ms)
        queued.is_in = True
        if queued is not asking:
            queued.let_in()
        return True

    def _continue(self) -> None:
        self._is_due = False
        self._let_in(None)
