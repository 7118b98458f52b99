"""A line: first come, first served, and an event costs what it lets continue, not what waits."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.read.remote_store import Readiness
from rlm.read.wait_queue import CALLS_MAX, READERS_MAX, STALE_MAX, FairQueue, WaitQueue
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler


class World:
    def __init__(self) -> None:
        self.scheduler = ManualScheduler(ManualClock())
        self.line = WaitQueue(self.scheduler)
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
    assert readiness._queues == {}


def taken(line: FairQueue[str], count: int) -> str:
    return "".join(str(line.take()) for _ in range(count))


def test_one_reader_is_served_in_order_and_an_empty_line_gives_nothing() -> None:
    line = FairQueue[str]()
    for item in "abc":
        line.add("one", item)
    assert len(line) == 3
    assert taken(line, 3) == "abc"
    assert line.take() is None
    assert len(line) == 0


def test_a_reader_that_comes_new_is_served_within_a_round() -> None:
    line = FairQueue[str]()
    for item in "abcdefgh":
        line.add("many", item)
    assert taken(line, 3) == "abc"
    line.add("new", "N")
    line.add("other", "O")
    assert set(taken(line, 3)) == {"d", "N", "O"}


def test_silence_saves_nothing_up() -> None:
    line = FairQueue[str]()
    line.add("silent", "s")
    for item in "abcdef":
        line.add("busy", item)
    taken(line, 6)
    for item in "STUV":
        line.add("silent", item)
    for item in "ghi":
        line.add("busy", item)
    assert sorted(taken(line, 4), key=str.lower) != sorted("STUV")


def test_a_reader_with_large_items_has_as_many_fewer() -> None:
    line = FairQueue[str]()
    for n in range(40):
        line.add("small", f"s{n}", 1)
        line.add("large", f"l{n}", 4)
    assert Counter(str(line.take())[0] for _ in range(25)) == {"s": 20, "l": 5}


def test_what_an_item_cost_beyond_what_was_said_counts_against_its_reader() -> None:
    line = FairQueue[str]()
    for item in "abc":
        line.add("one", item)
        line.add("two", item.upper())
    assert set(taken(line, 2)) == set("aA")
    line.charge("one", 2)
    assert taken(line, 4) == "BCbc"


def test_who_leaves_without_having_been_served_keeps_its_turn() -> None:
    line = FairQueue[str]()
    for item in "abc":
        line.add("one", item)
    line.add("two", "x")
    assert taken(line, 1) == "a"
    line.remove("two", "x")
    assert len(line) == 2
    line.add("three", "y")
    line.add("two", "z")
    assert taken(line, 1) == "z"


def test_readers_that_come_and_go_leave_nothing_behind() -> None:
    line = FairQueue[str]()
    for number in range(2 * READERS_MAX):
        line.add(str(number), "x")
        line.remove(str(number), "x")
        line.remove(str(number), "x")
    assert len(line) == 0
    assert len(line._heap) <= STALE_MAX
    for number in range(2 * READERS_MAX):
        line.add(str(number), "x")
        line.take()
    assert len(line._ends) <= READERS_MAX


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), min_size=1, max_size=60))
def test_shares_of_waiting_readers_differ_by_at_most_their_largest_items(
    items: list[tuple[int, int]],
) -> None:
    """Each is taken once, and what two waiting readers got differs by their largest items."""
    line, costs = FairQueue[int](), dict[int, tuple[int, int]]()
    for number, (reader, cost) in enumerate(items):
        line.add(str(reader), number, cost)
        costs[number] = (reader, cost)
    left, got, order = Counter(reader for reader, _ in items), Counter[int](), list[int]()
    while left:
        number = line.take()
        assert number is not None
        reader, cost = costs[number]
        order.append(number)
        got[reader] += cost
        for other in left:
            assert got[reader] - got[other] <= 2 * 9
        left[reader] -= 1
        left += Counter()
    assert sorted(order) == list(range(len(items)))
    assert line.take() is None
