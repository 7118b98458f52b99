"""Later and again: timers on the process's event loop, or on a clock that tests move.

A scheduled function runs on the loop's thread and must return at once; long work goes to a pool.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import Protocol

from runtime.clock import ManualClock

_log = logging.getLogger(__name__)


class Timer(Protocol):
    """A call that has not happened yet, or happens again and again."""

    def cancel(self) -> None:
        """See to it that no further call starts; fine to call twice."""
        ...


class Scheduler(Protocol):
    """Calls functions at a later time."""

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        """Call `fn` once after `delay_ms`."""
        ...

    def every(self, interval_ms: float, fn: Callable[[], object], name: str) -> Timer:
        """Call `fn` each `interval_ms`, first after one; an error in it is logged, not fatal."""
        ...


def _run_guarded(fn: Callable[[], object], name: str) -> None:
    try:
        fn()
    except Exception:  # noqa: BLE001 - a loop top: one failed pass must not end all later ones
        _log.exception("scheduled task failed: name=%s", name)


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
        _run_guarded(self._fn, self._name)
        if self._handle is not None:
            self._handle = self._loop.call_later(self._interval_s, self._run)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class LoopScheduler:
    """Timers of an asyncio loop; use it from that loop's thread only."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        """Call `fn` once after `delay_ms`."""
        return self._loop.call_later(delay_ms / 1000, fn)

    def every(self, interval_ms: float, fn: Callable[[], object], name: str) -> Timer:
        """Call `fn` each `interval_ms`, first after one interval."""
        return _LoopRepeater(self._loop, interval_ms, fn, name)


class _ManualTimer:
    __slots__ = ("cancelled", "fn", "interval_ms", "name")

    def __init__(self, fn: Callable[[], object], interval_ms: float | None, name: str) -> None:
        self.fn, self.interval_ms, self.name = fn, interval_ms, name
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualScheduler:
    """Timers that run when a test moves the clock, in order of their due time."""

    __slots__ = ("_clock", "_queue", "_sequence")

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._queue: list[tuple[float, int, _ManualTimer]] = []
        self._sequence = 0

    def _push(self, due_ms: float, timer: _ManualTimer) -> None:
        self._sequence += 1  # equal due times run in the order they were asked for
        heapq.heappush(self._queue, (due_ms, self._sequence, timer))

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        """Call `fn` once when the clock has moved by `delay_ms`."""
        timer = _ManualTimer(fn, None, "once")
        self._push(self._clock.monotonic_ms() + delay_ms, timer)
        return timer

    def every(self, interval_ms: float, fn: Callable[[], object], name: str) -> Timer:
        """Call `fn` each time the clock has moved by `interval_ms`."""
        timer = _ManualTimer(fn, interval_ms, name)
        self._push(self._clock.monotonic_ms() + interval_ms, timer)
        return timer

    def advance(self, step_ms: int) -> None:
        """Move the clock, stopping at each due timer to run it."""
        target = self._clock.monotonic_ms() + step_ms
        while self._queue and self._queue[0][0] <= target:
            due_ms, _, timer = heapq.heappop(self._queue)
            self._clock.advance(max(0, int(due_ms) - self._clock.monotonic_ms()))
            if timer.cancelled:
                continue
            if timer.interval_ms is None:
                timer.fn()
                continue
            _run_guarded(timer.fn, timer.name)
            self._push(due_ms + timer.interval_ms, timer)
        self._clock.advance(target - self._clock.monotonic_ms())
