"""Pools whose results come back to the thread that owns the tier's state."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from runtime.executors import Pool, make_pool

T = TypeVar("T")
Done = Callable[[T | None, BaseException | None], None]


class Workers(Protocol):
    """Runs jobs in named pools; `done(result, error)` is called on the owner's thread."""

    def run(self, pool: str, job: Callable[[], T], done: Done[T]) -> None:
        """Queue a job."""
        ...

    def post(self, call: Callable[[], None]) -> None:
        """Call something on the owner's thread, from any thread."""
        ...


class LoopWorkers:
    """Pools beside an asyncio loop; a pool is made when its first job comes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: dict[str, int]) -> None:
        self._loop, self._threads = loop, threads
        self._pools: dict[str, Pool] = {}

    def run(self, pool: str, job: Callable[[], T], done: Done[T]) -> None:
        """Queue a job."""
        if pool not in self._pools:
            self._pools[pool] = make_pool(pool, self._threads[pool])

        def work() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = job()
            except Exception as raised:  # noqa: BLE001 - handed to `done`
                error = raised
            self.post(lambda: done(result, error))

        self._pools[pool].submit(work)

    def post(self, call: Callable[[], None]) -> None:
        """Call something on the loop's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def shutdown(self) -> None:
        """Take no further jobs; running ones are left alone."""
        for pool in self._pools.values():
            pool.shutdown(wait=False)
