"""Averages of what happened lately forget what is old."""

from runtime.metrics import WINDOW_MS, Recent
from tests.support.sim.clock import ManualClock


def test_the_average_and_the_longest_of_what_happened_lately() -> None:
    clock = ManualClock()
    recent = Recent(clock)
    assert (recent.average, recent.longest) == (0, 0)
    recent.note(10)
    recent.note(30)
    assert (recent.average, recent.longest) == (20, 30)
    clock.advance(WINDOW_MS // 2)
    recent.note(5)
    assert (recent.average, recent.longest) == (15, 30)
    clock.advance(WINDOW_MS // 2)
    assert (recent.average, recent.longest) == (5, 5)
    clock.advance(WINDOW_MS)
    assert (recent.average, recent.longest) == (0, 0)


def test_the_part_of_the_time_in_which_nothing_was_done() -> None:
    clock = ManualClock()
    recent = Recent(clock)
    assert recent.idle_ratio == 1
    clock.advance(1_000)
    recent.note(250)
    assert recent.idle_ratio == 0.75
    clock.advance(1_000)
    assert recent.idle_ratio == 0.875
    clock.advance(WINDOW_MS)
    assert recent.idle_ratio == 1, "it is long ago"
    recent.note(10 * WINDOW_MS)
    assert recent.idle_ratio == 0
