"""What goes wrong in a simulated cluster beyond a quorum's faults."""

from random import Random
from typing import TYPE_CHECKING

from tests.support.quorum_world.faults import Fault, QuorumFaults

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode


class NodesFaults(QuorumFaults):
    """See the module."""

    def _hang(self, node: "QuorumNode", coming: Fault) -> None:
        """The active controller hangs, for as long as a session may last; its machine does not."""
        leaders = [one for one in self._world.nodes.values() if one.leads]
        for one in leaders or [node]:
            self._pause_until(one, self._world.now_us + (500 + coming.for_ms * 3) * 1000)

    def _strand(self, node: "QuorumNode", coming: Fault) -> None:
        """The active controller is cut off with some brokers; it does not know yet, others vote."""
        world = self._world
        rng = Random(f"nodes-strand-{world.plan.seed}-{coming.number}")
        leader = next((one.id for one in world.nodes.values() if one.leads), node.id)
        with_it = {leader, *(one for one in world.plan.observers if rng.random() < 0.5)}
        for one in with_it:
            for other in world.nodes.keys() - with_it:
                self._cut(one, other, coming)
                self._cut(other, one, coming)

    def _pause(self, node: "QuorumNode", coming: Fault) -> None:
        self._pause_until(node, self._world.now_us + coming.for_ms * 1500)

    def _pause_until(self, node: "QuorumNode", until_us: int) -> None:
        """A pause within a longer one ends with that."""
        node.paused_until = max(node.paused_until, until_us)
