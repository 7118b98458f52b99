"""Average, maximum and share of time of what happened lately."""

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.clock import Clock

WINDOW_MS = 60_000


class Recent:
    """Values of the last half to one window: the newer half is counted while the older one ages."""

    __slots__ = ("_began_ms", "_clock", "_halves", "_since_ms", "_window_ms")

    def __init__(self, clock: Clock, window_ms: int = WINDOW_MS) -> None:
        self._clock, self._window_ms = clock, window_ms
        self._began_ms = self._since_ms = clock.monotonic_ms()
        self._halves = ((0, 0.0, 0.0), (0, 0.0, 0.0))

    def note(self, value: float) -> None:
        """One value, now."""
        self._age()
        older, (count, total, longest) = self._halves
        self._halves = older, (count + 1, total + value, max(longest, value))

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Note how long the block takes, in ms."""
        began_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            self.note(self._clock.monotonic_ms() - began_ms)

    @property
    def average(self) -> float:
        """Of all values of the window; 0 without any."""
        self._age()
        (older, older_total, _), (newer, newer_total, _) = self._halves
        return (older_total + newer_total) / max(older + newer, 1)

    @property
    def longest(self) -> float:
        """The largest value of the window; 0 without any."""
        self._age()
        return max(half[2] for half in self._halves)

    @property
    def idle_ratio(self) -> float:
        """Which part of the window was not taken by the values, as times in ms: 1 for all of it."""
        self._age()
        began_ms = max(self._began_ms - self._window_ms // 2, self._since_ms)
        passed_ms = self._clock.monotonic_ms() - began_ms
        busy_ms = self._halves[0][1] + self._halves[1][1]
        return 1.0 if passed_ms <= 0 else max(0.0, 1.0 - busy_ms / passed_ms)

    def _age(self) -> None:
        now_ms = self._clock.monotonic_ms()
        passed = (now_ms - self._began_ms) * 2 // self._window_ms
        if passed > 0:
            nothing = (0, 0.0, 0.0)
            self._halves = (self._halves[1] if passed == 1 else nothing), nothing
            self._began_ms += passed * self._window_ms // 2
