"""The machine's clocks, as a port.

`wall_ms` is the time in records and for clients, and may jump. `monotonic_ms` is for deadlines and
never jumps. It also runs while the machine is suspended (CLOCK_BOOTTIME), since other nodes count
these deadlines, too.
"""

import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """The time; no other code of ours may ask the operating system for it."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump in both directions."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back, runs during suspension."""
        ...

    def monotonic_ns(self) -> int:
        """The same time in nanoseconds; cheaper to call."""
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

    monotonic_ns = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME))


class ShiftedClock:
    """Another clock with its wall time moved forward, for tests that let days pass.

    Attributes:
        offset_ms: wall time here minus that of the other clock; may be set at any time.
    """

    __slots__ = ("_clock", "offset_ms")

    def __init__(self, clock: Clock, offset_ms: int = 0) -> None:
        self._clock, self.offset_ms = clock, offset_ms

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, moved by the offset."""
        return self._clock.wall_ms() + self.offset_ms

    def monotonic_ms(self) -> int:
        """Milliseconds of the other clock: deadlines and sessions are not moved."""
        return self._clock.monotonic_ms()

    def monotonic_ns(self) -> int:
        """Nanoseconds of the other clock."""
        return self._clock.monotonic_ns()


def shift(clock: Clock, offset_ms: int) -> None:
    """Move the wall time of a `ShiftedClock`; does nothing for any other clock."""
    if isinstance(clock, ShiftedClock):
        clock.offset_ms = offset_ms


def offset_of(clock: Clock) -> int:
    """How far the wall time of a clock is moved, in ms; 0 for all but a `ShiftedClock`."""
    return clock.offset_ms if isinstance(clock, ShiftedClock) else 0
