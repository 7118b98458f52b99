"""Work that must not hold the event loop: turns on the loop, jobs beside it.

Such work is a generator. It runs on the loop's thread; where it yields a call, that call runs on a
pool and its result is sent back, and where it yields NEXT_TURN, everybody else has a turn first.

    def work() -> Steps:
        for some in chunked(partitions, 100):
            written = yield lambda: write(some)     # on the pool
            take(written)                           # on the loop
            yield NEXT_TURN
"""

import logging
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Final

from runtime.executors import Pool
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)

NEXT_TURN: Final = None
Job = Callable[[], Any]
Steps = Generator[Job | None, Any, None]


class StepRunner:
    """Runs one generator after another, never two at a time; lives on the loop.

    With a pool that makes each call at once, `start` returns when the work waits for nothing more.
    """

    __slots__ = ("_begin", "_is_stopped", "_job", "_name", "_pool", "_scheduler", "_steps")

    def __init__(
        self, begin: Callable[[], Steps], *, pool: Pool, scheduler: Scheduler, name: str
    ) -> None:
        """Run nothing yet.

        Args:
            begin: makes the generator; it ends when there is nothing to do.
            pool: runs its jobs.
            scheduler: of the loop.
            name: for the log.
        """
        self._begin, self._pool, self._scheduler, self._name = begin, pool, scheduler, name
        self._steps: Steps | None = None
        self._job: Future[Any] | None = None
        self._is_stopped = False

    @property
    def is_running(self) -> bool:
        """Whether there is work that has not ended."""
        return self._steps is not None

    def start(self) -> None:
        """Begin, unless it runs already: then it looks for more work itself before it ends."""
        if self._steps is None and not self._is_stopped:
            self._steps = self._begin()
            self._go_on(None)

    async def stop(self) -> None:
        """Do nothing more; returns when the job that runs has ended."""
        self._is_stopped = True
        job, steps = self._job, self._steps
        if job is not None:
            await self._pool.run(job.exception)
        if steps is not None:
            steps.close()
            self._steps = None

    def _go_on(self, done: "Future[Any] | None") -> None:
        """Run turns until a job is not done, or somebody else is to have a turn."""
        while self._steps is not None and not self._is_stopped:
            self._job = None
            try:
                if done is None:
                    effect = self._steps.send(None)
                elif (error := done.exception()) is not None:
                    effect = self._steps.throw(error)
                else:
                    effect = self._steps.send(done.result())
            except StopIteration:
                self._steps = None
                return
            except Exception:  # a loop top: the next start begins anew
                log.exception("work ended before its end: name=%s", self._name)
                self._steps = None
                return
            if effect is NEXT_TURN:
                self._scheduler.call_soon(lambda: self._go_on(None))
                return
            done = self._job = self._pool.submit(effect)
            if not done.done():
                done.add_done_callback(
                    lambda future: self._scheduler.call_soon(lambda: self._go_on(future))
                )
                return
