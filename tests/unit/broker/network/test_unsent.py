"""What waits for all peers: which connections are closed, and how many; no sockets."""

from collections.abc import Callable

from broker.network.unsent import FREED_PART, Unsent
from runtime.metrics import Registry

BOUND = 800


class Holder:
    """A connection with bytes that wait."""

    def __init__(self, world: "World", waiting_bytes: int) -> None:
        self.world, self.waiting_bytes = world, waiting_bytes
        world.holders.append(self)
        world.unsent.change(waiting_bytes)

    def close(self, reason: str) -> None:
        self.world.closed.append(reason)
        self.world.holders.remove(self)
        self.world.unsent.change(-self.waiting_bytes)


class World:
    """Connections, and what is wanted called later."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.holders: list[Holder] = []
        self.closed: list[str] = []
        self.metrics = Registry()
        self.unsent = Unsent(BOUND, self.calls.append, self.holders, self.metrics)

    def turn(self) -> None:
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def shown(self) -> float:
        self.unsent.show()
        (one,) = self.metrics.samples()
        return one.value


def test_nobody_is_closed_at_the_bound_and_the_most_above_it() -> None:
    world = World()
    for waiting_bytes in (100, 400, 300):
        Holder(world, waiting_bytes)
    world.turn()
    assert world.closed == []
    Holder(world, 1)
    world.turn()
    assert [one.split()[0] for one in world.closed] == ["400"]
    assert "tidemark.connections.unsent.bytes.max=800" in world.closed[0]


def test_an_eighth_is_free_after_it() -> None:
    """Else each answer of a peer that does read would close another one."""
    world = World()
    for _ in range(81):
        Holder(world, 10)
    world.turn()
    assert world.unsent.bytes == BOUND - BOUND // FREED_PART
    assert len(world.closed) == 11


def test_what_was_read_in_the_meantime_spares_them() -> None:
    world = World()
    one = Holder(world, BOUND + 1)
    assert len(world.calls) == 1
    one.waiting_bytes -= 1
    world.unsent.change(-1)
    world.turn()
    assert world.closed == []
    world.unsent.change(1)
    assert len(world.calls) == 1, "it is looked at again"


def test_the_metric_is_what_waits_now() -> None:
    world = World()
    Holder(world, 300)
    assert world.shown() == 300
    assert world.shown() == 300
    world.holders[0].close("")
    assert world.shown() == 0
