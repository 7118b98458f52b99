"""Long work of an event loop's thread, without asyncio: in steps, and with calls on pools between.

Such work is a generator. It yields None where other work of the loop may come first, an `OnPool`
where something is to be done beside the loop: it is sent the result, or what the call raised is
raised there. With an `Until` it waits for something that others bring about.

    def copied(pool: Pool, source: Path) -> Work[int]:
        data = yield OnPool(pool, source.read_bytes)
        total = yield from checksum.steps(data)     # `kafka_protocol.steps`
        return total

    run = Run(copied(pool, path), scheduler, done=print, failed=report)
    run.start()

`runtime.turns` does the same for coroutines.
"""

from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from runtime.clock import Clock
from runtime.collector import look_after_step
from runtime.executors import Pool
from runtime.scheduler import Scheduler

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class OnPool:
    """Make this call on a pool, and go on with its result."""

    pool: Pool
    call: Callable[[], object]


Wait = Callable[[Callable[[], None]], None]
"""Calls the function that it is given on the loop, once, now or later."""


@dataclass(frozen=True, slots=True)
class Until:
    """Go on when `wait` has called what it is given."""

    wait: Wait


Work = Generator[OnPool | Until | None, Any, R_co]
_GO_ON: Final = (None, None)


class Run(Generic[R]):
    """One piece of work on its way; use it from the loop's thread only.

    Attributes:
        is_over: it has ended, failed or was cancelled.
    """

    __slots__ = ("_done", "_failed", "_in_turn", "_next", "_scheduler", "_work", "is_over")

    def __init__(
        self,
        work: Work[R],
        scheduler: Scheduler,
        *,
        done: Callable[[R], object],
        failed: Callable[[Exception], object],
    ) -> None:
        """Take the work; nothing of it is done before `start`.

        Args:
            work: see the module.
            scheduler: calls on the loop's thread.
            done: is given the result.
            failed: is given what the work raised.
        """
        self._work, self._scheduler = work, scheduler
        self._done, self._failed = done, failed
        self._in_turn = False
        self._next: tuple[Any, BaseException | None] | None = None
        self.is_over = False

    def start(self) -> None:
        """Take the first step now; short work ends in it."""
        self._resume(_GO_ON)

    def cancel(self) -> None:
        """End it where it is; neither `done` nor `failed` is called any more."""
        self.is_over = True
        if not self._in_turn:
            self._work.close()

    def _resume(self, given: tuple[Any, BaseException | None]) -> None:
        """Go on; a scheduler that calls at once must not make the stack deeper with each step."""
        self._next = given
        if self._in_turn:
            return
        self._in_turn = True
        try:
            while self._next is not None and not self.is_over:
                given, self._next = self._next, None
                self._step(*given)
        finally:
            self._in_turn = False

    def _step(self, value: Any, error: BaseException | None) -> None:
        try:
            wanted = self._work.send(value) if error is None else self._work.throw(error)
        except StopIteration as end:
            if not self.is_over:
                self.is_over = True
                self._done(end.value)
        except Exception as caught:  # noqa: BLE001 - handed over to the one who wants the result
            if not self.is_over:
                self.is_over = True
                self._failed(caught)
        else:
            self.go_on_after(wanted)

    def go_on_after(self, wanted: OnPool | Until | None) -> None:
        """Go on when this is done, which the work has yielded."""
        match wanted:
            case None:
                look_after_step()
                self._scheduler.call_soon(partial(self._resume, _GO_ON))
            case Until(wait):
                wait(partial(self._resume, _GO_ON))
            case OnPool(pool, call):
                pool.submit(call).add_done_callback(self._pool_done)

    def _pool_done(self, future: "Future[object]") -> None:
        """On any thread."""
        self._scheduler.call_soon(partial(self._settle, future))

    def _settle(self, future: "Future[object]") -> None:
        if self.is_over or future.cancelled():
            return
        error = future.exception()
        self._resume((None if error else future.result(), error))


def timed(work: Work[R], clock: Clock, took: Callable[[int], object]) -> Work[R]:
    """The same work; `took` hears how long each of its turns held the loop, in ms."""
    value: Any = None
    error: Exception | None = None
    try:
        while True:
            began_ms = clock.monotonic_ms()
            try:
                wanted = work.send(value) if error is None else work.throw(error)
            except StopIteration as end:
                result: R = end.value
                return result
            finally:
                took(clock.monotonic_ms() - began_ms)
            value = error = None
            try:
                value = yield wanted
            except Exception as thrown:  # noqa: BLE001  (the work's own matter)
                error = thrown
    finally:
        work.close()
