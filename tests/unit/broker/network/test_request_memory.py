"""The pool of memory for large requests: who may take it, and in which order; no sockets."""

from collections.abc import Callable
from random import Random

import pytest

from broker.network.limits import NO_BOUND
from broker.network.request_memory import CALLED_AT_ONCE_MAX, SHARES, RequestMemory, of_frames
from runtime.metrics import Registry
from tests.support.sim.clock import ManualClock

BOUND = 1_000
USED = "kafka_network_SocketServer_MemoryPoolUsed"
AVAILABLE = "kafka_network_SocketServer_MemoryPoolAvailable"
DEPLETED_MS = "kafka_server_socket_server_metrics_MemoryPoolDepletedTimeTotal"
WAITING = "tidemark_connections_waiting_for_memory"


class World:
    """A pool, what it wants called later, and who got memory in which order."""

    def __init__(self, bound: int = BOUND) -> None:
        self.clock, self.metrics = ManualClock(), Registry()
        self.calls: list[Callable[[], None]] = []
        self.memory = RequestMemory(bound, self.clock, self._later, of_frames(self.metrics))
        self.served: list[str] = []
        self.failed: list[Exception] = []

    def _later(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def turn(self) -> None:
        """One iteration of the loop."""
        calls, self.calls = self.calls, []
        for call in calls:
            call()

    def all_turns(self) -> None:
        while self.calls:
            self.turn()

    def asks(self, *names: str, size_bytes: int = 100) -> list["Connection"]:
        """Connections "address/number", which ask in this order."""
        made = [Connection(self, name, size_bytes) for name in names]
        for one in made:
            one.ask()
        return made

    def value(self, name: str) -> float:
        self.memory.show()
        (found,) = [one.value for one in self.metrics.samples() if one.name == name]
        return found


class Connection:
    """Takes what it wants as soon as it may."""

    def __init__(self, world: World, name: str, size_bytes: int) -> None:
        self.world, self.name, self.size_bytes = world, name, size_bytes
        self.address = name.partition("/")[0]
        self.has = False

    def ask(self) -> None:
        if self.world.memory.ask(self):
            self.world.memory.take(self.address, self.size_bytes)
            self.world.served.append(self.name)
            self.has = True

    memory_is_there = ask

    def fail(self, error: Exception) -> None:
        self.world.failed.append(error)

    def end(self) -> None:
        self.world.memory.give_back(self.address, self.size_bytes)
        self.has = False


def test_a_request_begins_while_memory_is_left_and_may_exceed_the_bound() -> None:
    world = World()
    world.asks("a/1", "b/1", size_bytes=499)
    assert world.memory.used_bytes == 998
    world.asks("c/1", "d/1", size_bytes=900)
    assert world.served == ["a/1", "b/1", "c/1"], "as in Kafka: 2 bytes were left"
    assert world.memory.used_bytes == 998 + 900
    assert world.value(AVAILABLE) == -898


def test_who_waits_gets_it_when_others_give_it_back() -> None:
    world = World()
    first, *_ = world.asks("a/1", "b/1", "c/1", size_bytes=700)
    assert world.served == ["a/1", "b/1"]
    first.end()
    assert world.served == ["a/1", "b/1"], "in a turn of its own"
    world.turn()
    assert world.served == ["a/1", "b/1", "c/1"]
    assert not world.calls


def test_addresses_take_turns_and_their_connections_keep_their_order() -> None:
    world = World()
    holders = world.asks("x/1", "y/1", size_bytes=500)
    world.asks(*(f"a/{n}" for n in range(4)), "b/0", "b/1", "c/0", size_bytes=1)
    for each in holders:
        each.end()
    world.all_turns()
    assert world.served[2:] == ["a/0", "b/0", "c/0", "a/1", "b/1", "a/2", "a/3"]


def test_an_address_that_holds_half_waits_and_others_do_not() -> None:
    world = World()
    first, _ = world.asks("a/1", "a/2", size_bytes=BOUND // SHARES)
    world.asks("b/1", "c/1")
    assert world.served == ["a/1", "b/1", "c/1"]
    first.end()
    world.all_turns()
    assert world.served[-1] == "a/2"


def test_a_newcomer_does_not_overtake_those_who_were_called() -> None:
    world = World()
    (first,) = world.asks("a/1", size_bytes=2 * BOUND)
    world.asks("b/1")
    first.end()
    world.asks("c/1", "b/2")
    assert world.served == ["a/1"]
    world.all_turns()
    assert world.served == ["a/1", "b/1", "c/1", "b/2"]


def test_who_leaves_the_line_is_not_called() -> None:
    world = World()
    (first,) = world.asks("a/1", size_bytes=2 * BOUND)
    gone, _, gone_too = world.asks("b/1", "c/1", "d/1")
    for each in (gone, gone_too, gone):
        world.memory.leave(each)
    assert world.value(WAITING) == 1
    first.end()
    world.all_turns()
    assert world.served == ["a/1", "c/1"]
    assert world.value(WAITING) == 0


def test_one_that_takes_nothing_in_its_turn_holds_nobody_up() -> None:
    world = World()
    (first,) = world.asks("a/1", size_bytes=2 * BOUND)
    busy, _ = world.asks("b/1", "c/1")
    busy.memory_is_there = lambda: None  # type: ignore[method-assign]
    first.end()
    world.all_turns()
    assert world.served == ["a/1", "c/1"]


def test_one_that_fails_in_its_turn_ends_and_the_others_continue() -> None:
    world = World()
    (first,) = world.asks("a/1", size_bytes=2 * BOUND)
    broken, *_ = world.asks(*(f"b/{n}" for n in range(CALLED_AT_ONCE_MAX + 9)), size_bytes=1)
    broken.size_bytes = None  # type: ignore[assignment]
    first.end()
    world.all_turns()
    assert [type(error) for error in world.failed] == [TypeError]
    assert len(world.served) == 1 + CALLED_AT_ONCE_MAX + 8


def test_few_connections_continue_in_one_turn() -> None:
    world = World()
    (first,) = world.asks("a/1", size_bytes=2 * BOUND)
    world.asks(*(f"b/{n}" for n in range(3 * CALLED_AT_ONCE_MAX)), size_bytes=1)
    first.end()
    world.turn()
    assert len(world.served) == 1 + CALLED_AT_ONCE_MAX
    world.all_turns()
    assert len(world.served) == 1 + 3 * CALLED_AT_ONCE_MAX


def test_without_a_bound_nobody_waits() -> None:
    world = World(NO_BOUND)
    world.asks(*(f"a/{n}" for n in range(100)), size_bytes=1 << 40)
    assert len(world.served) == 100
    assert world.value(USED) == 100 << 40


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_also_the_smallest_bound_lets_one_continue(bound: int) -> None:
    world = World(bound)
    for _ in range(3):
        (one,) = world.asks("a/1", size_bytes=10)
        assert one.has
        one.end()


def test_metrics_say_what_is_used_and_for_how_long_somebody_waited() -> None:
    world = World()
    (first,) = world.asks("a/1", size_bytes=BOUND)
    assert (world.value(USED), world.value(AVAILABLE)) == (BOUND, 0)
    world.clock.advance(50)
    world.asks("b/1", "c/1")
    assert world.value(WAITING) == 2
    world.clock.advance(300)
    assert world.memory.longest_wait_ms(world.clock.monotonic_ms()) == 300
    world.memory.show()
    assert world.value(DEPLETED_MS) == 300
    world.clock.advance(40)
    first.end()
    world.all_turns()
    world.clock.advance(1_000)
    world.memory.show()
    assert world.value(DEPLETED_MS) == 340
    assert (world.value(USED), world.value(WAITING)) == (200, 0)
    assert world.memory.longest_wait_ms(world.clock.monotonic_ms()) == 0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_bound_is_kept_and_all_are_served(seed: int) -> None:
    rng, world = Random(seed), World()
    largest = 400
    made: list[Connection] = []
    for n in range(300):
        match rng.randrange(4):
            case 0 | 1:
                name = f"{rng.choice('abc')}/{n}"
                made += world.asks(name, size_bytes=rng.randrange(1, largest))
            case 2 if any(one.has for one in made):
                rng.choice([one for one in made if one.has]).end()
            case _:
                world.turn()
        assert world.memory.used_bytes < BOUND + largest
        assert world.memory.used_bytes == sum(one.size_bytes for one in made if one.has)
    while any(one.has for one in made):
        rng.choice([one for one in made if one.has]).end()
        world.all_turns()
    assert len(world.served) == len(made)
    assert (world.memory.used_bytes, world.memory._held, world.memory._queues) == (0, {}, {})
