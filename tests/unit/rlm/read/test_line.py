"""A line: first come, first served, and an event costs what it lets go on, not what waits."""

from collections.abc import Callable

import pytest

from rlm.read.line import CALLS_MAX, Line
from rlm.read.remote_store import Readiness
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler


class World:
    def __init__(self) -> None:
        self.scheduler = ManualScheduler(ManualClock())
        self.line = Line(self.scheduler)
        self.called: list[int] = []
        self.room = 0

    def waiter(self, number: int) -> Callable[[], None]:
        """Takes a piece of what is there, or comes back to wait."""

        def called() -> None:
            self.called.append(number)
            if self.room:
                self.room -= 1
            else:
                self.line.join(called)

        return called


@pytest.fixture
def world() -> World:
    return World()


def test_they_are_called_in_their_order_until_there_is_nothing_left(world: World) -> None:
    for number in range(1_000):
        world.line.join(world.waiter(number))
    for _ in range(3):
        world.room = 2
        world.line.call()
        world.scheduler.advance(1_000)
    # The one that there was nothing left for keeps its place.
    assert world.called == [0, 1, 2, 2, 3, 4, 4, 5, 6]
    assert len(world.line) == 994


def test_a_waiter_that_fails_does_not_end_the_line(world: World) -> None:
    def broken() -> None:
        raise ValueError("ours")

    world.line.join(broken)
    world.line.join(world.waiter(1))
    with pytest.raises(ValueError, match="ours"):
        world.line.call()
    world.room = 1
    world.line.call()
    assert world.called == [1]
    assert len(world.line) == 0


def test_a_long_line_is_called_in_slices(world: World) -> None:
    for number in range(CALLS_MAX + 2):
        world.line.join(world.waiter(number))
    world.room = 1_000
    world.line.call()
    assert world.called == list(range(CALLS_MAX))
    world.line.call()  # it is on its way
    assert len(world.called) == CALLS_MAX
    world.scheduler.advance(1)
    assert world.called == list(range(CALLS_MAX + 2))
    assert not world.line


def test_whoever_joins_twice_or_leaves_is_called_once_or_never(world: World) -> None:
    first, second = world.waiter(1), world.waiter(2)
    for waiter in (first, second, first):
        world.line.join(waiter)
    world.line.leave(second)
    world.line.leave(second)
    world.room = 9
    world.line.call()
    assert world.called == [1]


def test_what_comes_during_a_call_is_no_second_call(world: World) -> None:
    def gives_back() -> None:
        world.called.append(0)
        world.line.call()

    world.line.join(gives_back)
    world.line.join(world.waiter(1))
    world.line.join(world.waiter(2))
    world.line.call()
    assert world.called == [0, 1]


def test_a_partition_that_nobody_waits_for_keeps_no_line(world: World) -> None:
    readiness, waiter = Readiness(world.scheduler), world.waiter(1)
    orders, others = (b"o" * 16, 0), (b"o" * 16, 1)
    readiness.wait(orders, waiter)
    readiness.may_be_readable(others)
    assert world.called == []
    world.room = 1
    readiness.may_be_readable(orders)
    assert world.called == [1]
    readiness.wait(orders, waiter)
    readiness.leave(orders, waiter)
    readiness.leave(orders, waiter)
    assert readiness._lines == {}
