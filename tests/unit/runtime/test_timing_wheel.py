"""What the wheel does besides firing in time, for which it has a property test."""

import asyncio
from itertools import pairwise

import pytest

from runtime.clock import SystemClock
from runtime.scheduler import LoopScheduler
from runtime.timing_wheel import FIRED_AT_ONCE_MAX, TimingWheel
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(monotonic_ms=123_456)


def test_a_timer_may_be_set_again_by_the_one_that_fires(clock: ManualClock) -> None:
    scheduler, fired = ManualScheduler(clock), []

    def fire(key: str) -> None:
        fired.append(clock.monotonic_ms())
        if len(fired) < 3:
            wheel.set(key, clock.monotonic_ms() + 1_000)

    wheel = TimingWheel(clock, scheduler, fire)
    wheel.set("member", clock.monotonic_ms() + 1_000)
    scheduler.advance(10_000)
    assert len(fired) == 3


@pytest.mark.parametrize("wait_ms", [1, 6_003, 45_000, 20_000_000])
def test_a_session_ends_at_its_millisecond(clock: ManualClock, wait_ms: int) -> None:
    """A client that slept through a session asks within a millisecond or two."""
    scheduler, fired = ManualScheduler(clock), []
    wheel = TimingWheel(clock, scheduler, fired.append)
    wheel.set("member", clock.monotonic_ms() + wait_ms)
    scheduler.advance(wait_ms - 1)
    assert fired == []
    scheduler.advance(1)
    assert fired == ["member"]


def test_one_that_fires_may_cancel_another_that_is_due_as_well(clock: ManualClock) -> None:
    scheduler, fired = ManualScheduler(clock), []

    def fire(key: str) -> None:
        fired.append(key)
        wheel.cancel("b" if key == "a" else "a")

    wheel = TimingWheel(clock, scheduler, fire)
    wheel.set("a", clock.monotonic_ms() + 500)
    wheel.set("b", clock.monotonic_ms() + 500)
    scheduler.advance(10_000)
    assert fired == ["a"]


def test_an_error_of_one_timer_is_logged_and_the_others_fire(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler, fired = ManualScheduler(clock), []

    def fire(key: int) -> None:
        if key == 0:
            raise RuntimeError("wrong")
        fired.append(key)

    wheel = TimingWheel(clock, scheduler, fire)
    for key in range(3):
        wheel.set(key, clock.monotonic_ms() + 500)
    scheduler.advance(1_000)
    assert fired == [1, 2]
    assert "timing wheel" in caplog.text


def test_earlier_deadlines_leave_one_timer_on_the_loop(clock: ManualClock) -> None:
    scheduler = ManualScheduler(clock)
    wheel: TimingWheel[int] = TimingWheel(clock, scheduler, lambda _key: None)
    for key in range(10):
        wheel.set(key, clock.monotonic_ms() + 10_000 - 1_000 * key)
    assert sum(not timer.cancelled for _, _, timer in scheduler._queue) == 1


def test_nothing_fires_after_the_stop(clock: ManualClock) -> None:
    scheduler = ManualScheduler(clock)
    wheel = TimingWheel(clock, scheduler, lambda _key: pytest.fail("it has fired"))
    wheel.set("a", clock.monotonic_ms() + 500)
    wheel.stop()
    scheduler.advance(1_000)
    assert len(wheel) == 0


async def test_very_many_that_are_due_at_once_leave_turns_to_others() -> None:
    loop = asyncio.get_running_loop()
    count = 10 * FIRED_AT_ONCE_MAX
    fired: list[int] = []
    done = loop.create_future()

    def fire(key: int) -> None:
        fired.append(key)
        if len(fired) == count:
            done.set_result(None)

    clock = SystemClock()
    wheel = TimingWheel(clock, LoopScheduler(loop), fire)
    now_ms = clock.monotonic_ms()
    for key in range(count):
        wheel.set(key, now_ms)
    turns: list[int] = []
    while not done.done():
        turns.append(len(fired))
        await asyncio.sleep(0)
    assert max(after - before for before, after in pairwise(turns)) <= (FIRED_AT_ONCE_MAX)
    assert sorted(fired) == list(range(count))
