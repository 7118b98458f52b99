"""Work on a pool, one piece after the other, results back on the loop: without asyncio.

So the simulator runs it as it is: with its own pool and scheduler nothing here waits.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from runtime.executors import Pool
from runtime.long_work import OnPool, Run, Until, Wait, Work
from runtime.scheduler import Scheduler

T = TypeVar("T")


class _Piece(NamedTuple):
    work: Callable[[], Any]
    done: Callable[[Any], None]
    first: Wait | None


class WorkQueue:
    """Pieces of work in the order they were added; use it from the loop's thread only."""

    def __init__(
        self, pool: Pool, scheduler: Scheduler, on_error: Callable[[BaseException], None]
    ) -> None:
        """Begin with nothing to do.

        Args:
            pool: runs the work.
            scheduler: brings results back to the loop.
            on_error: gets what a piece of work, or what is told of it, raises; nothing is begun
                after it.
        """
        self._pool = pool
        self._scheduler = scheduler
        self._on_error = on_error
        self._waiting: deque[_Piece] = deque()
        self._run: Run[None] | None = None
        self._is_busy = False
        self._has_failed = False
        self._when_idle: list[Callable[[], None]] = []

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._is_busy and not self._waiting

    def add(
        self, work: Callable[[], T], done: Callable[[T], None], *, first: Wait | None = None
    ) -> None:
        """Do `work` on the pool after what was added before, then `done(result)` on the loop.

        With `first`, `first(begin)` is called on the loop when its turn has come, and the work
        begins when `begin` is called.
        """
        self._waiting.append(_Piece(work, done, first))
        if self._run is None and not self._has_failed:
            self._run = Run(
                self._work_off(),
                self._scheduler,
                done=lambda _: self._rest(),
                failed=self._fail,
            )
            self._run.start()

    def when_idle(self, fn: Callable[[], None]) -> None:
        """Call `fn` once there is nothing to do, or the work has failed; perhaps at once."""
        self._when_idle.append(fn)
        self._look_idle()

    def _work_off(self) -> Work[None]:
        while self._waiting:
            piece = self._waiting.popleft()
            self._is_busy = True
            if piece.first is not None:
                yield Until(piece.first)
            result = yield OnPool(self._pool, piece.work)
            self._is_busy = False
            piece.done(result)

    def _rest(self) -> None:
        self._run = None
        self._look_idle()

    def _fail(self, error: Exception) -> None:
        self._run, self._is_busy, self._has_failed = None, False, True
        self._waiting.clear()
        self._on_error(error)
        self._look_idle()

    def _look_idle(self) -> None:
        if self.is_idle or self._has_failed:
            waiting, self._when_idle = self._when_idle, []
            for fn in waiting:
                fn()
