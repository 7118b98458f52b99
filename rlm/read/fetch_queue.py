"""The queue of reads while the fetch quota is used up: readers in turn, by bytes (KIP-956).

A read is admitted once, before anything is loaded for it, and is charged its maximum then. At its
end the charge is corrected to the bytes that it read. So no more reads are admitted than the quota
has room for, and loaded bytes always reach their reader. A read whose time is up is answered
without records; its reader keeps its position. Belongs to the owner's thread.
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
        reader: Name of the reader; all its reads share one turn.
        charged_bytes: Bytes charged while the read is under way.
        let_in: Called when the read is admitted, unless `FetchQueue.ask` admits it at once.
        is_in: The read is admitted.
    """

    reader: str
    charged_bytes: int
    let_in: Callable[[], None]
    is_in: bool = False


class FetchQueue:
    """Admits reads as the quota has room."""

    def __init__(self, quota: RateQuota, clock: Clock, scheduler: Scheduler) -> None:
        self._quota, self._clock, self._scheduler = quota, clock, scheduler
        self._queue = FairQueue[QueuedRead]()
        self._timer: Timer | None = None
        self._is_letting_in = self._is_due = False

    def __len__(self) -> int:
        """Number of waiting reads."""
        return len(self._queue)

    def ask(self, queued: QueuedRead) -> None:
        """Queue a read. It `is_in` afterwards, or `let_in` is called in its turn."""
        self._queue.add(queued.reader, queued, queued.charged_bytes)
        self._let_in(queued)
        if not queued.is_in:
            now_ms = self._clock.monotonic_ms()
            self._quota.throttled(self._quota.wait_ms(now_ms), now_ms)

    def ended(self, queued: QueuedRead, size_bytes: int) -> None:
        """End a read; `size_bytes` were read for it."""
        if not queued.is_in:
            self._queue.remove(queued.reader, queued)
            return
        more_bytes = size_bytes - queued.charged_bytes
        self._queue.charge(queued.reader, more_bytes)
        self._quota.record(more_bytes, self._clock.monotonic_ms())
        if more_bytes < 0 and self._queue:
            self.proceed()

    def proceed(self) -> None:
        """Admit reads after bytes were given back, or after a change of the limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._let_in(None)

    def _let_in(self, asking: QueuedRead | None) -> None:
        """Admit the reads for which there is room, a bounded number at a time.

        An admitted read may end before its `let_in` returns. This loop uses that room: nested calls
        of thousands of reads would exceed the stack.
        """
        if self._timer is not None or self._is_letting_in or self._is_due:
            return  # closed until then, or the running loop continues
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
