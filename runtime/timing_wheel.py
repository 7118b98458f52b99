"""Very many timers on one timer of the loop: a hierarchical timing wheel.

For deadlines that are set and cancelled far more often than they are met, such as sessions. Setting
and cancelling take the same time for any number of timers. A level has `SLOTS` slots. A slot of a
level holds the timers of a whole turn of the level below; at its time they move down. A bit mask
per level finds the next slot that is not empty.

Deadlines are monotonic milliseconds. A timer never fires early. It fires up to `TICK_MS` late, and
later only when the loop is held or very many timers are due at once.

Source: Varghese and Lauck, Hashed and Hierarchical Timing Wheels (1987).
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from runtime.clock import Clock
from runtime.scheduler import Scheduler, Timer, run_guarded

K = TypeVar("K", bound=Hashable)

TICK_MS: Final = 1
"""Clients count in ms: one that waits for the end of a session sends right after it."""
SLOTS: Final = 64
LEVELS: Final = 4
"""The highest level reaches 4.6 hours; later deadlines come down to their own place by then."""
FIRED_AT_ONCE_MAX: Final = 100
"""Timers that fire in one iteration of the loop; others come between."""

_BITS: Final = SLOTS.bit_length() - 1
_ALL: Final = (1 << SLOTS) - 1


class _Level(Generic[K]):
    """The slots of one level; `occupied` has a bit for each that is not empty."""

    __slots__ = ("occupied", "shift", "slots")

    def __init__(self, number: int) -> None:
        self.shift = number * _BITS
        self.slots: list[dict[K, int]] = [{} for _ in range(SLOTS)]
        self.occupied = 0

    def next_tick(self, now: int) -> int | None:
        """Beginning of the first slot that is not empty, None if all are."""
        if not self.occupied:
            return None
        position = now >> self.shift
        turned = position & (SLOTS - 1)
        mask = (self.occupied >> turned | self.occupied << (SLOTS - turned)) & _ALL
        return position + (mask & -mask).bit_length() - 1 << self.shift


class TimingWheel(Generic[K]):
    """Calls a function with a key at the key's time; on the loop's thread only."""

    __slots__ = ("_armed", "_clock", "_due", "_fire", "_levels", "_now", "_places", "_scheduler")

    def __init__(self, clock: Clock, scheduler: Scheduler, fire: Callable[[K], object]) -> None:
        """Wait for nothing yet; `fire` may set and cancel timers, its errors are logged."""
        self._clock, self._scheduler, self._fire = clock, scheduler, fire
        self._levels: list[_Level[K]] = [_Level(number) for number in range(LEVELS)]
        self._places: dict[K, tuple[_Level[K] | None, dict[K, int], int]] = {}
        self._due: dict[K, int] = {}  # fire now, in turns
        self._now = clock.monotonic_ms() // TICK_MS  # everything before this tick has fired
        self._armed: tuple[int, Timer] | None = None  # the tick at which the loop's timer comes

    def __len__(self) -> int:
        """Number of waiting timers."""
        return len(self._places)

    def set(self, key: K, at_ms: int) -> None:
        """Fire `key` at `at_ms` (monotonic); replaces an earlier timer of this key."""
        self.cancel(key)
        tick = -(-at_ms // TICK_MS)
        if not self._places:  # no timer waited, so the wheel stood still
            self._now = max(self._now, self._clock.monotonic_ms() // TICK_MS)
        self._place(key, tick)
        if self._armed is None or tick < self._armed[0]:
            self._arm()

    def cancel(self, key: K) -> None:
        """Do not fire `key`; does nothing if it has no timer."""
        place = self._places.pop(key, None)
        if place is not None:
            level, slot, index = place
            del slot[key]
            if level is not None and not slot:
                level.occupied &= ~(1 << index)

    def stop(self) -> None:
        """Cancel all timers."""
        self._places.clear()
        self._due.clear()
        self._levels = [_Level(number) for number in range(LEVELS)]
        if self._armed is not None:
            self._armed[1].cancel()
            self._armed = None

    # -- where a timer is

    def _place(self, key: K, tick: int) -> None:
        now = self._now
        begins = max(tick, now)
        for level in self._levels:
            position, wanted = now >> level.shift, begins >> level.shift
            if wanted - position < SLOTS:
                break
        else:
            level = self._levels[-1]
            wanted = (now >> level.shift) + SLOTS - 1
        index = wanted & (SLOTS - 1)
        slot = level.slots[index]
        slot[key] = tick
        level.occupied |= 1 << index
        self._places[key] = (level, slot, index)

    # -- time passes

    def _next(self) -> int | None:
        if self._due:
            return self._now
        ticks = [tick for level in self._levels if (tick := level.next_tick(self._now)) is not None]
        return min(ticks, default=None)

    def _arm(self) -> None:
        tick = self._next()
        armed, self._armed = self._armed, None
        if armed is not None:
            armed[1].cancel()
        if tick is not None:
            wait_ms = max(tick * TICK_MS - self._clock.monotonic_ms(), 0)
            self._armed = (tick, self._scheduler.call_later(wait_ms, self._wake))

    def _wake(self) -> None:
        self._armed = None
        target = self._clock.monotonic_ms() // TICK_MS
        while not self._due and (tick := self._next()) is not None and tick <= target:
            self._advance_to(tick)
        if not self._due:
            self._now = max(self._now, target)
        for key in list(self._due)[:FIRED_AT_ONCE_MAX]:
            if key in self._due:  # not cancelled by one of those before it
                del self._due[key], self._places[key]
                run_guarded(lambda key=key: self._fire(key), "timing wheel")  # type: ignore[misc]
        self._arm()

    def _advance_to(self, tick: int) -> None:
        """Take the timers of `tick` out of their slots, from the highest level down."""
        self._now = tick
        for level in reversed(self._levels):
            if tick & ((1 << level.shift) - 1):
                continue
            index = tick >> level.shift & (SLOTS - 1)
            if not level.occupied >> index & 1:
                continue
            moved, level.slots[index] = level.slots[index], {}
            level.occupied &= ~(1 << index)
            for key, due in moved.items():
                if due <= tick:
                    self._due[key] = due
                    self._places[key] = (None, self._due, 0)
                else:
                    self._place(key, due)
