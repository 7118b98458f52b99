"""The timing wheel fires what a plain table of deadlines would, never early and in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.timing_wheel import LEVELS, SLOTS, TICK_MS, TimingWheel
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler

KEYS = st.integers(0, 7)
EDGES = [TICK_MS * SLOTS**level + more for level in range(LEVELS + 1) for more in range(-20, 21)]
"""Around a whole turn of each level."""
DELAYS = st.one_of(
    st.sampled_from(EDGES),
    st.integers(-50, 2_000),
    st.integers(0, 100_000),
    st.integers(0, 10_000_000),
    st.integers(0, 1 << 36),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, DELAYS),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 30_000_000)),
    ),
    max_size=40,
)


@given(begin=st.integers(0, 1 << 34), steps=STEPS)
def test_each_timer_fires_once_in_time_and_no_other_does(
    begin: int, steps: list[tuple[str, int, int]]
) -> None:
    clock = ManualClock(monotonic_ms=begin)
    scheduler = ManualScheduler(clock)
    wanted: dict[int, int] = {}

    def fired(key: int) -> None:
        late_ms = clock.monotonic_ms() - wanted.pop(key)
        assert late_ms >= 0
        lateness.append(late_ms)

    lateness: list[int] = []
    wheel = TimingWheel(clock, scheduler, fired)
    for what, key, ms in steps:
        if what == "set":
            # A deadline in the past is due from the moment it is set.
            wanted[key] = max(clock.monotonic_ms() + ms, clock.monotonic_ms())
            wheel.set(key, clock.monotonic_ms() + ms)
        elif what == "cancel":
            wanted.pop(key, None)
            wheel.cancel(key)
        else:
            scheduler.advance(ms)
            overdue = {k: at for k, at in wanted.items() if at <= clock.monotonic_ms() - TICK_MS}
            assert not overdue
        assert len(wheel) == len(wanted)
    scheduler.advance(1 << 37)
    assert not wanted
    assert len(wheel) == 0
    assert all(late_ms <= TICK_MS for late_ms in lateness)


@pytest.mark.parametrize("delay_ms", EDGES)
@pytest.mark.parametrize("begin", [0, 5 * TICK_MS + 9, TICK_MS * SLOTS**2 + 77])
def test_a_deadline_around_a_turn_of_a_level_is_met(begin: int, delay_ms: int) -> None:
    clock = ManualClock(monotonic_ms=begin)
    scheduler = ManualScheduler(clock)
    fired: list[int] = []
    wheel = TimingWheel(clock, scheduler, lambda _key: fired.append(clock.monotonic_ms()))
    wheel.set("only", begin + delay_ms)
    scheduler.advance(TICK_MS * SLOTS**LEVELS * 2)
    [at_ms] = fired
    assert max(delay_ms, 0) <= at_ms - begin <= max(delay_ms, 0) + TICK_MS
