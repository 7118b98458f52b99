"""The one place that makes threads.

A pool's results come back into the event loop by `Pool.run` alone, so partition state is only ever
touched by the loop's thread.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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
        return await asyncio.wrap_future(self._executor.submit(fn, *args, **kwargs))

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
        except Exception as error:  # noqa: BLE001 - handed over to whoever asks for the result
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


def make_mutex() -> AbstractContextManager[object]:
    """Make a lock for the few things that the loop and a pool thread both write (checkpoints)."""
    return threading.Lock()


def spawn_thread(name: str, fn: Callable[[], object], *, daemon: bool = True) -> threading.Thread:
    """Start a thread of its own for work that never ends by itself (a link's reader, say)."""
    thread = threading.Thread(target=fn, name=name, daemon=daemon)
    thread.start()
    return thread
