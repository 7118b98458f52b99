"""Who is served next, and when nobody has to wait: the queues alone; no sockets."""

from collections.abc import Callable

from broker.network.time_slices import QUEUES_NS, SLICE_NS, Account, TimeSlices
from tests.support.sim.clock import ManualClock

TURN_MS = SLICE_NS // 1_000_000
AT_ONCE = QUEUES_NS // SLICE_NS
"""Turns before the loop looks for newcomers."""


class World:
    """Lines, what they want called later, and who was served."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.calls: list[Callable[[], None]] = []
        self.turns = TimeSlices(self.clock, self.calls.append)
        self.served: list[str] = []

    def turn(self) -> None:
        """One iteration of the loop."""
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def join(self, *names: str, cost_ms: int = 0) -> list["Connection"]:
        """Connections "address/number", which wait in the queue in this order."""
        made = [Connection(self, name, cost_ms) for name in names]
        for one in made:
            self.turns.join(one)
        return made


class Connection:
    """Is done after one time slice, which takes its time."""

    def __init__(self, world: World, name: str, cost_ms: int) -> None:
        self.world, self.name, self.cost_ms = world, name, cost_ms
        self.account: Account = world.turns.account(name.partition("/")[0])

    def run_slice(self, now_ns: int) -> None:
        assert now_ns == self.world.clock.monotonic_ns()
        self.world.served.append(self.name)
        self.world.clock.advance(self.cost_ms)


def test_a_connection_queues_only_while_its_address_waits() -> None:
    world = World()
    first, _ = world.join("a/1", "a/2")
    assert first.account.is_over, "others of its address are before it"
    world.turn()
    assert world.served == ["a/1", "a/2"]
    assert not first.account.is_over, "nobody is before it"
    assert world.calls == [], "nothing is left to do"


def test_what_costs_nothing_is_served_in_one_turn_of_an_address() -> None:
    world = World()
    world.join(*(f"a/{n}" for n in range(20)))
    world.join("b/1")
    world.turn()
    assert world.served[-1] == "b/1"
    assert len(world.served) == 21


def test_addresses_have_their_turns_one_after_the_other() -> None:
    world = World()
    world.join("a/1", "a/2", "a/3", "b/1", "c/1", "c/2", cost_ms=TURN_MS)
    world.turn()
    assert world.served == ["a/1", "b/1", "c/1", "a/2"]
    world.turn()
    assert world.served[AT_ONCE:] == ["c/2", "a/3"]
    assert world.calls == []


def test_a_connection_that_closed_is_not_served() -> None:
    world = World()
    gone, stays = world.join("a/1", "a/2")
    world.turns.leave(gone)
    world.turns.leave(gone)
    world.turn()
    assert world.served == [stays.name]


def test_an_address_that_has_had_its_turn_begins_anew_in_the_next_one() -> None:
    world = World()
    account = world.turns.account("a")
    account.used_ns = 2 * SLICE_NS
    world.turns.end(account)
    assert account.is_over
    world.turn()
    assert (account.is_over, account.used_ns) == (False, 0)


def test_an_address_with_queued_connections_waits_in_its_next_slice_too() -> None:
    """A newcomer of it would else be served before those, each time."""
    world = World()
    world.join(*(f"b/{n}" for n in range(AT_ONCE)), cost_ms=QUEUES_NS // 1_000_000)
    one, *_ = world.join("a/1", "a/2", cost_ms=TURN_MS)
    world.turns.end(one.account)
    world.turn()
    assert world.served == ["b/0"]
    assert one.account.is_over


def test_the_account_of_an_address_goes_with_its_last_connection() -> None:
    world = World()
    (one,) = world.join("a/1")
    assert world.turns.account("a") is one.account
    world.turn()
    del one
    assert len(world.turns._accounts) == 0
