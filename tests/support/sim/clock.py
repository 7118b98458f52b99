"""A clock that tests move by hand."""


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

    def monotonic_ns(self) -> int:
        """The same in nanoseconds."""
        return self._monotonic_ms * 1_000_000

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
