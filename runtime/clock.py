"""What time it is, as a port: the machine's clocks.

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
