"""Later and again: timers on the process's event loop.

A scheduled function runs on the loop's thread and must return at once; long work goes to a pool.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from runtime.incidents import Incident
from runtime.log_context import limited

log = logging.getLogger(__name__)


class Timer(Protocol):
    """A call that has not happened yet, or happens again and again."""

    def cancel(self) -> None:
        """Prevent all further calls; may be called twice."""
        ...


class Scheduler(Protocol):
    """Calls functions at a later time."""

    def call_soon(self, fn: Callable[[], object]) -> None:
        """Call `fn` on the loop's thread, after the calls due there now; from any thread."""
        ...

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        """Call `fn` once after `delay_ms`."""
        ...

    def every(self, interval_ms: float, fn: Callable[[], object], name: str) -> Timer:
        """Call `fn` each `interval_ms`, first after one; an error in it is logged, not fatal."""
        ...


def run_guarded(fn: Callable[[], object], name: str) -> None:
    """Run a scheduled function; its errors are logged."""
    try:
        fn()
    except OSError as error:
        line = Incident.TASK_FAILED.line(task=name, error=error)
        limited.error(log, line, name)
    except Exception as error:  # noqa: BLE001 - logged; one failed pass must not end all later ones
        line = Incident.DEFECT.line(what=f"scheduled task failed: name={name}")
        limited.error(log, line, (name, type(error)), exc_info=error)


class _LoopRepeater:
    """Re-arms itself after each run, so that slow runs cannot pile up."""

    __slots__ = ("_fn", "_handle", "_interval_s", "_loop", "_name")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interval_ms: float,
        fn: Callable[[], object],
        name: str,
    ) -> None:
        self._loop, self._interval_s, self._fn, self._name = loop, interval_ms / 1000, fn, name
        self._handle: asyncio.TimerHandle | None = loop.call_later(self._interval_s, self._run)

    def _run(self) -> None:
        run_guarded(self._fn, self._name)
        if self._handle is not None:
            self._handle = self._loop.call_later(self._interval_s, self._run)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class LoopScheduler:
    """Timers of an asyncio loop; only `call_soon` may be called from other threads."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_soon(self, fn: Callable[[], object]) -> None:
        """Call `fn` on the loop's thread soon; from any thread."""
        if asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(fn)  # it is awake: no need to go through its pipe
        else:
            self._loop.call_soon_threadsafe(fn)

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        """Call `fn` once after `delay_ms`."""
        return self._loop.call_later(delay_ms / 1000, fn)

    def every(self, interval_ms: float, fn: Callable[[], object], name: str) -> Timer:
        """Call `fn` each `interval_ms`, first after one interval."""
        return _LoopRepeater(self._loop, interval_ms, fn, name)


async def pause(scheduler: Scheduler, delay_ms: int) -> None:
    """Wait by the scheduler's clock."""
    over = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    timer = scheduler.call_later(delay_ms, end)
    try:
        await over
    finally:
        timer.cancel()
