"""A clock whose wall time tests move forward."""

from runtime.clock import ShiftedClock, SystemClock, offset_of, shift
from tests.support.sim.clock import ManualClock


def test_only_the_wall_time_is_moved() -> None:
    machine = ManualClock(1_000, 50)
    clock = ShiftedClock(machine)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_000, 50)
    clock.offset_ms = 700
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_700, 50)
    machine.advance(3)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_703, 53)


def test_the_offset_is_that_of_a_moved_clock_and_others_are_left_alone() -> None:
    clock, machine = ShiftedClock(ManualClock(), 5), SystemClock()
    assert (offset_of(clock), offset_of(machine)) == (5, 0)
    shift(clock, 9)
    shift(machine, 9)
    assert (offset_of(clock), offset_of(machine)) == (9, 0)
