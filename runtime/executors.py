"""The only module that makes threads.

Results of a pool return to the event loop through `Pool.run` alone, so partition state is only
touched by the loop's thread.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from runtime.override import override

P = ParamSpec("P")
T = TypeVar("T")

LOG_COMMIT, LOG_READS, LOG_BACKGROUND, LOG_CHANGES = (
    "log-commit",
    "log-reads",
    "log-background",
    "log-changes",
)
THREADS: Final = {LOG_COMMIT: 4, LOG_READS: 4, LOG_BACKGROUND: 2, LOG_CHANGES: 1}
SWITCH_INTERVAL_S: Final = 0.0005
"""Python's own is ten times that; figures in docs/benchmarks.md."""


class Pool(Protocol):
    """Runs functions away from the event loop."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call; the result is in the future."""
        ...

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Queue a call and await its result on the running loop."""
        ...

    def shutdown(self, *, wait: bool = True) -> None:
        """Take no further calls; with `wait`, return when the queued ones are done."""
        ...


def _call(parts: Sequence[Any]) -> Any:
    fn, args, kwargs = parts
    return fn(*args, **kwargs)


class ThreadPool:
    """A bounded number of named threads, started when first needed."""

    __slots__ = ("_executor", "name", "threads")

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.threads = threads
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call; the result is in the future."""
        return self._executor.submit(fn, *args, **kwargs)

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Queue a call and await its result on the running loop."""
        parts: list[Any] = [fn, args, kwargs]
        future: Future[T] = self._executor.submit(_call, parts)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.cancelled():
                parts.clear()  # else the queue keeps them until their turn: requests of 100 MiB
            raise
        finally:
            del future  # else an error, this frame in its traceback and the future are a cycle

    @property
    def waiting(self) -> int:
        """Number of calls that no thread has begun."""
        return self._executor._work_queue.qsize()

    def shutdown(self, *, wait: bool = True) -> None:
        """Take no further calls; with `wait`, return when the queued ones are done."""
        self._executor.shutdown(wait=wait, cancel_futures=not wait)


class InlinePool:
    """Runs each call at once in the caller's thread: for tests and the simulator."""

    __slots__ = ("name",)

    def __init__(self, name: str = "inline") -> None:
        self.name = name

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make the call now; the future is done when this returns."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised again by `result`
            future.set_exception(error)
        return future

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make the call now."""
        return self.submit(fn, *args, **kwargs).result()

    def shutdown(self, *, wait: bool = True) -> None:
        """Nothing to stop."""


def make_pool(name: str, threads: int) -> Pool:
    """Make a pool of at most `threads` threads called `<name>_<n>`."""
    return ThreadPool(name, threads)


class Executors(Protocol):
    """The pools of a process, by name, shared by all callers."""

    @property
    def commit(self) -> Pool:
        """Fsyncs with a waiter; short calls only."""
        ...

    @property
    def reads(self) -> Pool:
        """Reads from disk with a waiter, and look-ups in their data."""
        ...

    @property
    def background(self) -> Pool:
        """Work on disks without a waiter: late flushes, checkpoints, unlinking."""
        ...

    @property
    def changes(self) -> Pool:
        """Work on partitions that are made, removed, or change their role: one batch at a time."""
        ...

    def pool(self, name: str, threads: int) -> Pool:
        """The pool of that name; its number of threads is set by the first call."""
        ...

    def waiting(self) -> Mapping[str, int]:
        """Number of calls that no thread has begun, by the name of the pool."""
        ...

    def shutdown(self, *, wait: bool = True) -> None:
        """Let the pools take no further calls; with `wait`, return when queued ones are done."""
        ...


class ThreadPools(Executors):
    """Pools of threads; none starts before its first call."""

    __slots__ = ("_pools",)

    def __init__(self) -> None:
        self._pools: dict[str, ThreadPool] = {}

    @property
    @override
    def commit(self) -> Pool:
        return self.pool(LOG_COMMIT, THREADS[LOG_COMMIT])

    @property
    @override
    def reads(self) -> Pool:
        return self.pool(LOG_READS, THREADS[LOG_READS])

    @property
    @override
    def background(self) -> Pool:
        return self.pool(LOG_BACKGROUND, THREADS[LOG_BACKGROUND])

    @property
    @override
    def changes(self) -> Pool:
        return self.pool(LOG_CHANGES, THREADS[LOG_CHANGES])

    def pool(self, name: str, threads: int) -> Pool:
        """The pool of that name; its threads are called `<name>_<n>`."""
        if name not in self._pools:
            self._pools[name] = ThreadPool(name, threads)
        return self._pools[name]

    @override
    def waiting(self) -> Mapping[str, int]:
        return {name: pool.waiting for name, pool in self._pools.copy().items()}

    def shutdown(self, *, wait: bool = True) -> None:
        """Let the pools take no further calls; with `wait`, return when queued ones are done."""
        for pool in self._pools.values():
            pool.shutdown(wait=wait)


AT_ONCE: Final = 8


def side_by_side(pool: Pool, calls: Sequence[Callable[[], T]]) -> list[Future[T]]:
    """Make calls on a pool and wait for all: a few at a time, so that other calls come between.

    Not for a thread of that pool.
    """
    futures: list[Future[T]] = []
    for call in calls:
        if len(futures) >= AT_ONCE:
            futures[-AT_ONCE].exception()
        futures.append(pool.submit(call))
    for future in futures:
        future.exception()
    return futures


mutexes: Callable[[], AbstractContextManager[object]] = threading.Lock
"""The type of `make_mutex`; a simulation, whose threads never block, sets its own."""


def make_mutex() -> AbstractContextManager[object]:
    """Make a lock for which the loop waits (checkpoints), or that is held while a thread waits."""
    return mutexes()


def favour_the_loop() -> None:
    """Shorten the switch interval, so that computing threads yield to the event loop sooner.

    The loop releases the interpreter's lock at each system call, several times a request. A thread
    that computes meanwhile returns it only after the switch interval. Affects the whole process.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def spawn_thread(name: str, fn: Callable[[], object], *, daemon: bool = True) -> threading.Thread:
    """Start a thread for work that never ends by itself, such as a link's reader."""
    thread = threading.Thread(target=fn, name=name, daemon=daemon)
    thread.start()
    return thread
