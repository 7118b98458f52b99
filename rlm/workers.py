"""Pools whose results are delivered on the thread that owns the tier's state.

A pool can be resized while it runs. A thread that hangs in a plugin's call can be abandoned. It
takes no further job, and ends when its call returns; another thread takes its place.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from runtime.clock import Clock
from runtime.executors import spawn_thread

COPIER_POOL, EXPIRATION_POOL, READER_POOL = "rlm-copier", "rlm-expiration", "remote-reader"
VALIDATION_POOL = "rlm-validation"
"""For takeovers and withdrawals: consumers of local data wait for these, so deletions have another
pool."""


T = TypeVar("T")
Done = Callable[[T | None, BaseException | None], None]

IDLE_WINDOW_MS = 60_000
POSTED_MS = 5


class Workers(Protocol):
    """Runs jobs in named pools; `done(result, error)` is called on the owner's thread."""

    def run(self, pool: str, job: Callable[[], T], done: Done[T]) -> None:
        """Queue a job."""
        ...

    def pause(self, wait: Callable[[int], object], wait_ms: int) -> None:
        """Let a job wait, in its thread, by calling `wait(wait_ms)`, which may return earlier."""
        ...

    def post(self, call: Callable[[], None]) -> None:
        """Call a function on the owner's thread; from any thread."""
        ...

    def threads(self, pool: str) -> int:
        """Number of threads that the pool may have, without abandoned ones."""
        ...

    def resize(self, pool: str, threads: int) -> None:
        """Let the pool have `threads` threads from now on; running jobs continue."""
        ...

    def abandon(self, pool: str, thread_id: int) -> None:
        """Abandon a thread that hangs; another takes its place."""
        ...

    def queued(self, pool: str) -> int:
        """Number of jobs that wait for a thread."""
        ...

    def idle_share(self, pool: str) -> float:
        """Idle part of the threads' time in the last minute, 0 to 1."""
        ...


class ElasticPool:
    """Threads of one name that take jobs from one queue, started when first needed."""

    def __init__(self, name: str, threads: int, clock: Clock) -> None:
        self._name, self._clock = name, clock
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._wanted, self._live, self._waiting, self._started = threads, 0, 0, 0
        self._stopped = False
        self._abandoned: set[int] = set()
        self._busy_since: dict[int, int] = {}
        self._busy_ms = 0
        self._history: deque[tuple[int, int]] = deque([(clock.monotonic_ms(), 0)])

    @property
    def threads(self) -> int:
        """Number of threads that it may have."""
        return self._wanted

    @property
    def queued(self) -> int:
        """Number of jobs that wait for a thread."""
        return len(self._jobs)

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job, which must not raise."""
        with self._changed:
            if self._stopped:
                return
            self._jobs.append(job)
            self._staff()
            self._changed.notify()

    def resize(self, threads: int) -> None:
        """Have `threads` threads from now on; a superfluous thread ends after its present job."""
        with self._changed:
            self._wanted = threads
            self._staff()
            self._changed.notify_all()

    def abandon(self, thread_id: int) -> None:
        """Abandon the thread, if it runs a job now."""
        with self._changed:
            if thread_id not in self._busy_since or thread_id in self._abandoned:
                return
            self._abandoned.add(thread_id)
            self._live -= 1
            self._staff()

    def stop(self) -> None:
        """Take no further jobs and drop the queued ones; running jobs continue."""
        with self._changed:
            self._stopped = True
            self._jobs.clear()
            self._changed.notify_all()

    def idle_share(self) -> float:
        """Idle part of the threads' time in the last minute, 0 to 1."""
        with self._changed:
            now_ms = self._clock.monotonic_ms()
            running_ms = sum(
                now_ms - since
                for thread_id, since in self._busy_since.items()
                if thread_id not in self._abandoned
            )
            busy_ms = self._busy_ms + running_ms
            self._history.append((now_ms, busy_ms))
            while len(self._history) > 2 and now_ms - self._history[1][0] >= IDLE_WINDOW_MS:
                self._history.popleft()
            began_ms, busy_then_ms = self._history[0]
            possible_ms = (now_ms - began_ms) * self._wanted
            if possible_ms <= 0:
                return 1.0
            return min(1.0, max(0.0, 1 - (busy_ms - busy_then_ms) / possible_ms))

    def _staff(self) -> None:
        """Start missing threads; the lock is held."""
        missing = min(len(self._jobs) - self._waiting, self._wanted - self._live)
        for _ in range(missing):
            self._live += 1
            self._started += 1
            spawn_thread(f"{self._name}_{self._started}", self._work)

    def _work(self) -> None:
        me = threading.get_ident()
        while True:
            with self._changed:
                while not self._jobs and not self._is_superfluous():
                    self._waiting += 1
                    self._changed.wait()
                    self._waiting -= 1
                if self._is_superfluous():
                    self._live -= 1
                    return
                job = self._jobs.popleft()
                self._busy_since[me] = self._clock.monotonic_ms()
            job()
            with self._changed:
                since_ms = self._busy_since.pop(me)
                if me in self._abandoned:
                    self._abandoned.discard(me)
                    return
                self._busy_ms += self._clock.monotonic_ms() - since_ms

    def _is_superfluous(self) -> bool:
        return self._stopped or self._live > self._wanted


class LoopWorkers:
    """Pools beside an asyncio loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, threads: Mapping[str, int], clock: Clock
    ) -> None:
        self._loop = loop
        self._posted: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._pools = {name: ElasticPool(name, count, clock) for name, count in threads.items()}

    def run(self, pool: str, job: Callable[[], T], done: Done[T]) -> None:
        """Queue a job."""
        self._pools[pool].submit(partial(self._work, job, done))

    def _work(self, job: Callable[[], T], done: Done[T]) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = job()
        except Exception as raised:  # noqa: BLE001 - handed to `done`
            error = raised
        self.post(partial(done, result, error))
        error = None  # its traceback holds this frame: the collector would have to find the cycle

    def pause(self, wait: Callable[[int], object], wait_ms: int) -> None:
        """Let a job wait; it holds its thread meanwhile."""
        wait(wait_ms)

    def post(self, call: Callable[[], None]) -> None:
        """Call a function on the loop's thread; from any thread."""
        self._posted.append(call)
        if not self._is_woken and not self._loop.is_closed():
            self._is_woken = True  # before the callback runs, which takes all posted until then
            self._loop.call_soon_threadsafe(self._take_posted)

    def _take_posted(self) -> None:
        """Call the posted functions, for some milliseconds at a time: thousands may be posted."""
        self._is_woken = False
        until_s = self._loop.time() + POSTED_MS / 1_000
        while self._posted:
            self._posted.popleft()()
            if self._posted and self._loop.time() > until_s:
                self._is_woken = True
                self._loop.call_soon(self._take_posted)
                return

    def threads(self, pool: str) -> int:
        """Number of threads that the pool may have."""
        return self._pools[pool].threads

    def resize(self, pool: str, threads: int) -> None:
        """Let the pool have `threads` threads from now on."""
        self._pools[pool].resize(threads)

    def abandon(self, pool: str, thread_id: int) -> None:
        """Abandon a thread that hangs; another takes its place."""
        self._pools[pool].abandon(thread_id)

    def queued(self, pool: str) -> int:
        """Jobs that wait for a thread."""
        return self._pools[pool].queued

    def idle_share(self, pool: str) -> float:
        """Idle part of the threads' time in the last minute, 0 to 1."""
        return self._pools[pool].idle_share()

    def shutdown(self) -> None:
        """Take no further jobs; running jobs continue."""
        for pool in self._pools.values():
            pool.stop()
