"""A simulated cluster: the quorum's world, whose nodes are controllers, brokers, or both.

world = NodesWorld(nodes_plan_of(7))
world.start(); world.run(5000); world.calm_down()

What is simulated of a node ends at its connections: above them the product's metadata node, life of
a broker, forwarding and controllers' listener run as they are.
"""

from typing import TYPE_CHECKING

from tests.support.nodes_world.clients import Askers
from tests.support.nodes_world.faults import NodesFaults
from tests.support.nodes_world.lives import Lives
from tests.support.nodes_world.node import ClusterNode
from tests.support.nodes_world.plan import NodesPlan
from tests.support.nodes_world.tier import Tiers
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.liveness import NEVER
from tests.support.quorum_world.workload import Workload
from tests.support.quorum_world.world import Calm, QuorumWorld

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode

SERVED_WITHIN_MS = 60_000


class NodesWorkload(Workload):
    """Clients that ask brokers, brokers that are nothing but heartbeats, and tiers."""

    def __init__(self, world: "NodesWorld") -> None:
        super().__init__(world)
        self.askers = Askers(world)
        self.clients = self.askers  # type: ignore[assignment]
        self.tiers = Tiers(world)
        self.active_us: dict[int, int] = {}

    def start(self) -> None:
        super().start()
        self.askers.start()
        self.tiers.start()

    def stop(self) -> None:
        super().stop()
        self.tiers.stop()

    def validate_end(self) -> None:
        self.clients.validate_whole()
        self.askers.look()

    def validate(self, node: "QuorumNode") -> None:
        epoch = node.active_epoch
        super().validate(node)
        if node.active_epoch != epoch:
            self.active_us[node.active_epoch] = self.world.now_us


class NodesWorld(QuorumWorld):
    """See the module.

    Attributes:
        brokers: nodes that are brokers.
        lives: validates them.
    """

    plan: NodesPlan
    nodes: "dict[int, ClusterNode]"  # type: ignore[assignment]
    workload: NodesWorkload

    def __init__(self, plan: NodesPlan, *, trace_lines: int = 0) -> None:
        super().__init__(plan, trace_lines=trace_lines)
        self.lives = Lives(self)
        self.oracle.pending_max = 1 << 30  # who hangs for long answers nobody

    @property
    def brokers(self) -> list[ClusterNode]:
        return [self.nodes[one] for one in self.plan.broker_ids]

    def _node(self, node_id: int) -> ClusterNode:
        return ClusterNode(self, node_id)

    def _workload(self) -> NodesWorkload:
        return NodesWorkload(self)

    def _faults(self) -> NodesFaults:
        return NodesFaults(self)

    def turn(self) -> None:
        super().turn()
        for node in self.nodes.values():
            if node.up and node.process is not None and node.process.disk.is_over:
                self._ended(node)  # a task of its event loop has met its end
        if self.is_disturbed:
            self.lives.look()
            self.workload.askers.look()
        if self.broken is not None:
            raise self.broken

    def reaches_since(self, node: ClusterNode) -> int:
        """Since when nothing is between a node and the active controller; or `NEVER`."""
        liveness = self.liveness
        found = liveness.leader
        if found is None:
            return NEVER
        leader = self.nodes[found[0]]
        if not leader.up or leader.replica is None or not leader.replica.controller.is_active:
            return NEVER
        active_us = self.workload.active_us.get(leader.core.epoch, NEVER)
        return max(active_us, liveness.reaches_since(node, leader))

    def all_serve(self) -> bool:
        """Whether all brokers serve, by the metadata."""
        known = self.oracle.reference.brokers
        return all(
            node.broker is not None
            and node.broker.serves
            and node.id in known
            and not known[node.id].fenced
            and known[node.id].incarnation_id == node.broker.incarnation_id
            for node in self.brokers
        )

    def calm_down(self) -> Calm:
        calm = super().calm_down()
        if not self.run_until(self.all_serve, SERVED_WITHIN_MS):
            late = [node for node in self.brokers if node.broker is None or not node.broker.serves]
            raise Violation("calm lets all brokers serve", f"{late}: {self.states}")
        for node in self.brokers:
            if node.broker is not None and (problems := node.broker.problems()):
                raise Violation("a broker that follows is not unhealthy", f"{node}: {problems}")
        return calm
