"""Work on a pool, one piece after the other, results back on the loop: without asyncio.

So the simulator runs it as it is: with its own pool and scheduler nothing here waits.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from runtime.executors import Pool
from runtime.scheduler import Scheduler

T = TypeVar("T")


class WorkQueue:
    """Pieces of work in the order they were added; use it from the loop's thread only."""

    def __init__(
        self, pool: Pool, scheduler: Scheduler, on_error: Callable[[BaseException], None]
    ) -> None:
        """Begin with nothing to do.

        Args:
            pool: runs the work.
            scheduler: brings results back to the loop.
            on_error: gets what a piece of work raises; nothing is begun after it.
        """
        self._pool = pool
        self._scheduler = scheduler
        self._on_error = on_error
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self._is_busy = False
        self._has_failed = False
        self._when_idle: list[Callable[[], None]] = []

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._is_busy and not self._waiting

    def add(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do `work` on the pool after what was added before, then `done(result)` on the loop."""
        self._waiting.append((work, done))
        self._next()

    def when_idle(self, fn: Callable[[], None]) -> None:
        """Call `fn` once there is nothing to do, or the work has failed; perhaps at once."""
        self._when_idle.append(fn)
        self._look_idle()

    def _next(self) -> None:
        if self._is_busy or self._has_failed or not self._waiting:
            return
        self._is_busy = True
        work, done = self._waiting.popleft()
        self._pool.submit(work).add_done_callback(partial(self._come_back, done))

    def _come_back(self, done: Callable[[Any], None], future: "Future[Any]") -> None:
        # On a thread of the pool, or, with a pool without threads, inside `add`.
        self._scheduler.call_soon(partial(self._finish, done, future))

    def _finish(self, done: Callable[[Any], None], future: "Future[Any]") -> None:
        self._is_busy = False
        error = future.exception()
        if error is not None:
            self._has_failed = True
            self._waiting.clear()
            self._on_error(error)
        else:
            done(future.result())
            self._next()
        self._look_idle()

    def _look_idle(self) -> None:
        if self.is_idle or self._has_failed:
            waiting, self._when_idle = self._when_idle, []
            for fn in waiting:
                fn()
