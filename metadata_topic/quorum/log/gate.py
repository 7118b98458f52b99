"""Counts uses of the metadata log outside of the loop, so that none overlaps with a cut.

A truncation, or a fetched snapshot that replaces the log, changes segments and files on a pool
thread. It shuts the gate first: no new use begins, and the work starts once all uses in progress
have ended. Appends, and flushes in the same queue as that work, need no gate.

    reads = log.gate.pool(executors.reads, scheduler)    # counts its calls
    log.gate.when_open(lambda: reads.submit(...))
    log.gate.shut(begin)                                 # `begin` is called once all have ended
    log.gate.open()
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

from runtime.executors import Pool
from runtime.scheduler import Scheduler

P = ParamSpec("P")
T = TypeVar("T")


class LogGate:
    """The gate of one log; used from the loop's thread only."""

    __slots__ = ("_outside", "_shut_by", "_used_by", "_waiting")

    def __init__(self) -> None:
        self._used_by = self._shut_by = 0
        self._waiting: list[Callable[[], None]] = []
        self._outside: list[Callable[[], None]] = []

    @property
    def is_shut(self) -> bool:
        """True if no new use may begin."""
        return self._shut_by > 0

    def enter(self) -> None:
        """Begin a use of the log, which `leave` ends; only while the gate is open."""
        assert not self.is_shut, "the metadata log is being cut"
        self._used_by += 1

    def leave(self) -> None:
        """End a use of the log."""
        self._used_by -= 1
        self._look()

    def pool(self, pool: Pool, scheduler: Scheduler) -> Pool:
        """Wrap a pool: each call is a use of the log, from its submission to its end."""
        return _CountingPool(self, pool, scheduler)

    def shut(self, then: Callable[[], None]) -> None:
        """Allow no new uses, and call `then` once all uses have ended; perhaps at once."""
        self._shut_by += 1
        self._waiting.append(then)
        self._look()

    def open(self) -> None:
        """End one `shut`."""
        self._shut_by -= 1
        while self._outside and not self.is_shut:
            self._outside.pop(0)()

    def when_open(self, fn: Callable[[], None]) -> None:
        """Call `fn` once the gate is open; perhaps at once."""
        if self.is_shut:
            self._outside.append(fn)
        else:
            fn()

    def _look(self) -> None:
        while self._waiting and self._used_by == 0:
            self._waiting.pop(0)()


class _CountingPool:
    __slots__ = ("_gate", "_pool", "_scheduler")

    def __init__(self, gate: LogGate, pool: Pool, scheduler: Scheduler) -> None:
        self._gate, self._pool, self._scheduler = gate, pool, scheduler

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit `fn` as a use of the log."""
        self._gate.enter()
        future = self._pool.submit(fn, *args, **kwargs)
        future.add_done_callback(lambda _: self._scheduler.call_soon(self._gate.leave))
        return future

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` as a use of the log."""
        self._gate.enter()
        try:
            return await self._pool.run(fn, *args, **kwargs)
        finally:
            self._gate.leave()

    def shutdown(self, *, wait: bool = True) -> None:
        """Do nothing: the pool is shared."""
