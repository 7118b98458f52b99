"""Timers on a clock that tests move."""

import heapq
from collections.abc import Callable

from runtime.scheduler import Timer, run_guarded
from tests.support.sim.clock import ManualClock


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

    @property
    def waiting(self) -> int:
        """Timers that will run."""
        return sum(not timer.cancelled for _, _, timer in self._queue)

    def _push(self, due_ms: float, timer: _ManualTimer) -> None:
        self._sequence += 1  # equal due times run in the order they were asked for
        heapq.heappush(self._queue, (due_ms, self._sequence, timer))

    def call_soon(self, fn: Callable[[], object]) -> None:
        """Call `fn` now."""
        fn()

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
            run_guarded(timer.fn, timer.name)
            self._push(due_ms + timer.interval_ms, timer)
        self._clock.advance(target - self._clock.monotonic_ms())
