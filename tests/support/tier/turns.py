"""Pool threads that take turns on one manual clock: where one waits for the store, others continue.

Only one thread runs at a time, and what wakes them are the clock's timers: each run is the same.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from rlm.workers import Done
from runtime.executors import spawn_thread
from tests.support.sim.scheduler import ManualScheduler

T = TypeVar("T")


class _Ended(BaseException):
    """The test is over."""


class _Actor:
    """A thread that runs when it is told to, until it waits or ends."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._work, self.is_over, self._ends = work, False, False
        spawn_thread("actor", self._run)

    def _run(self) -> None:
        try:
            self._wait()
            self._work()
        except _Ended:
            pass
        finally:
            self.is_over = True
            self._back.release()

    def _wait(self) -> None:
        self._go.acquire()
        if self._ends:
            raise _Ended

    def resume(self) -> None:
        """Run it; returns when it waits or has ended."""
        self._go.release()
        self._back.acquire()

    def wait(self) -> None:
        """From its own thread: give the turn back."""
        self._back.release()
        self._wait()

    def end(self) -> None:
        if not self.is_over:
            self._ends = True
            self.resume()


class TurnWorkers:
    """Pools of a few threads each, on a manual clock; see `rlm.workers.Workers`."""

    def __init__(self, scheduler: ManualScheduler, sizes: Mapping[str, int]) -> None:
        self._scheduler, self._sizes = scheduler, dict(sizes)
        self._jobs: defaultdict[str, deque[Callable[[], None]]] = defaultdict(deque)
        self._busy: defaultdict[str, int] = defaultdict(int)
        self._posted: deque[Callable[[], None]] = deque()
        self._actors: set[_Actor] = set()
        self._running: _Actor | None = None
        self._is_due = False

    def run(self, pool: str, job: Callable[[], T], done: Done[T]) -> None:
        def work() -> None:
            try:
                result = job()
            except Exception as error:
                self.post(partial(done, None, error))
            else:
                self.post(partial(done, result, None))

        self._jobs[pool].append(work)
        self._turn_soon()

    def post(self, call: Callable[[], None]) -> None:
        self._posted.append(call)
        self._turn_soon()

    def threads(self, pool: str) -> int:
        return self._sizes.get(pool, 1)

    def resize(self, pool: str, threads: int) -> None:
        self._sizes[pool] = threads

    def abandon(self, pool: str, thread_id: int) -> None:
        raise AssertionError("nothing hangs here")

    def queued(self, pool: str) -> int:
        return len(self._jobs[pool])

    def idle_share(self, pool: str) -> float:
        return 1.0

    def busy(self, pool: str) -> int:
        """Its threads that run a job."""
        return self._busy[pool]

    def pause(self, wait: Callable[[int], object] | None, ms: int) -> None:
        """From a job: let so much time pass, whatever is cancelled meanwhile."""
        actor = self._running
        assert actor is not None, "only threads of a pool wait"
        self._scheduler.call_later(ms, lambda: self._resume(actor))
        actor.wait()

    def end(self) -> None:
        """End all threads that wait."""
        for actor in list(self._actors):
            actor.end()

    def _turn_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._scheduler.call_later(0, self._turn)

    def _turn(self) -> None:
        self._is_due = False
        while self._posted:
            self._posted.popleft()()
        for pool, jobs in list(self._jobs.items()):
            while jobs and self._busy[pool] < self.threads(pool):
                self._busy[pool] += 1
                job = jobs.popleft()
                actor = _Actor(partial(self._work, pool, job))
                self._actors.add(actor)
                self._resume(actor)

    def _work(self, pool: str, job: Callable[[], Any]) -> None:
        try:
            job()
        finally:
            self._busy[pool] -= 1

    def _resume(self, actor: _Actor) -> None:
        self._running = actor
        actor.resume()
        self._running = None
        if actor.is_over:
            self._actors.discard(actor)
            self._turn_soon()
