"""What time it is, as a port: a real clock and one that tests move by hand.

Two times are needed. `wall_ms` is what records and clients speak of and may jump; `monotonic_ms` is
for deadlines and never jumps, but does run on while the machine is suspended (CLOCK_BOOTTIME), so
that a deadline that others also count cannot stand still here.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time; nothing else of ours may ask the operating system for it."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump in both directions."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back, runs during suspension."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since boot, suspension included."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ManualClock:
    """A clock that stands still until it is told to move."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        """The wall time it was last moved to."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """The sum of all steps made so far."""
        return self._monotonic_ms

    def advance(self, step_ms: int) -> None:
        """Move both times forward.

        Raises:
            ValueError: the step is negative.
        """
        if step_ms < 0:
            raise ValueError(f"time does not go back: {step_ms} ms")
        self._wall_ms += step_ms
        self._monotonic_ms += step_ms

    def jump_wall(self, wall_ms: int) -> None:
        """Set the wall time alone, as an operator or NTP may do."""
        self._wall_ms = wall_ms
