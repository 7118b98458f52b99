"""The network between simulated replicas: delays, loses, duplicates, reorders, and is cut."""

from typing import TYPE_CHECKING, Any

from metadata_topic.raft.effects import Send
from metadata_topic.raft.messages import Request, Response
from tests.support.raft.sim_node import Route, SimNode

if TYPE_CHECKING:
    from tests.support.raft.world import World


class SimNet:
    """See the module.

    Attributes:
        cuts: (from, to) without a way, by the moment until which; each direction for itself.
        only: if set, decides whether a message goes: (from, to, message).
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.cuts: dict[tuple[int, int], int] = {}
        self.loss = world.plan.loss
        self.duplication = world.plan.duplication
        self.only: Any = None

    def cut(self, source: int, target: int, until_us: int) -> None:
        """Let nothing go from one to another until a moment."""
        self.cuts[source, target] = max(until_us, self.cuts.get((source, target), 0))

    def is_cut(self, source: int, target: int) -> bool:
        """Whether nothing goes that way now."""
        return bool(self.cuts) and self.cuts.get((source, target), 0) > self.world.now_us

    def request(self, source: SimNode, send: Send) -> None:
        """Bring a request to where it is addressed."""
        world = self.world
        world.oracle.asks(source, send.request)
        target = world.by_address.get((send.to.host, send.to.port))
        assert target is not None, f"{source} sends to an unknown address: {send.to}"
        route = (source, source.life, send.number)
        if self._is_lost(source, target, send.request):
            return
        world.at_any_life(self._arrival(), target, self._arrives, target, route, send.request)
        if self.duplication and world.net_dice.random() < self.duplication:
            arrival = self._arrival()
            world.at_any_life(arrival, target, self._arrives, target, route, send.request)

    def _arrives(self, target: SimNode, route: Route, request: Request) -> None:
        if target.up:
            target.deliver(route, request)
        elif not self.is_cut(target.id, route[0].id):
            self._is_refused(route)

    def _is_refused(self, route: Route) -> None:
        """The connection is."""
        source, life, number = route
        if source.life == life:
            self.world.at_node(self._arrival(), source, source.hear, number, None)

    def response(self, source: SimNode, route: Route, response: Response) -> None:
        """Bring an answer back, if its asker still lives."""
        target, life, number = route
        if self._is_lost(source, target, response):
            return
        if target.life == life:
            self.world.at_node(self._arrival(), target, target.hear, number, response)

    def _is_lost(self, source: SimNode, target: SimNode, message: Request | Response) -> bool:
        if self.is_cut(source.id, target.id):
            return True
        if self.only is not None and not self.only(source.id, target.id, message):
            return True
        return bool(self.loss) and self.world.net_dice.random() < self.loss

    def _arrival(self) -> int:
        least, mean = self.world.delay_us
        if not mean:
            return self.world.now_us + least
        dice = self.world.net_dice
        delay = least + int(dice.random() * 2 * mean)
        if dice.random() < 0.02:
            delay *= 10
        return self.world.now_us + delay
