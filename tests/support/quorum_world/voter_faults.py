"""Faults of a simulated quorum whose voters change: any controller may be a voter, or be none."""

from random import Random
from typing import TYPE_CHECKING

from tests.support.quorum_world.faults import Fault, QuorumFaults, can_tell
from tests.support.quorum_world.plan import VOTER_FAULTS

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode


class VoterFaults(QuorumFaults):
    """Those of disks, votes and addresses are others where voters change."""

    def _target(self, coming: Fault) -> "QuorumNode":
        controllers = self._world.plan.controllers
        if coming.kind in VOTER_FAULTS and not coming.of_leader:
            return self._world.nodes[controllers[int(coming.place * len(controllers))]]
        return super()._target(coming)

    def _spreads(self, node: "QuorumNode") -> bool:
        return False  # it may be removed, and may not stand then

    def _lose_disk(self, node: "QuorumNode", coming: Fault) -> None:
        """Where a majority of all voters that may be in force keeps its disks."""
        world = self._world
        if node.config.can_vote and not self._may_lose(node):
            world.crash_for(node, coming.for_ms)
            return
        if node.config.can_vote:
            self.counts("lose_disk")
        world.crash_for(node, coming.for_ms)
        world.lose_disk(node)

    def _may_lose(self, node: "QuorumNode") -> bool:
        world = self._world
        # Who is asked for the leader by a node with nothing on its disk.
        servers = [world.nodes[one].disk for one in world.plan.voters if one != node.id]
        if not any(disk.end_offset for disk in servers):
            return False
        operator, sets = world.operator, world.oracle.voters.in_use
        # Perhaps it is being added this very moment.
        added = [(*keys, node.key) for keys in sets if all(one.id != node.id for one in keys)]
        return operator.is_idle and all(operator.can_lose(one, node.key) for one in [*sets, *added])

    def _lose_vote(self, node: "QuorumNode", coming: Fault) -> None:
        """Not where its own log may say that it votes alone: it would not notice."""
        world = self._world
        if not node.config.can_vote:
            return
        world.crash_for(node, coming.for_ms)
        alone = [said for _, said in node.disk.voters_by_offset[-2:] if len(said.voters) < 2]
        if can_tell(node, is_alone=False) and not alone:
            self.counts("lose_vote")
            node.lose_vote()

    def _move(self, node: "QuorumNode", coming: Fault) -> None:
        """It listens elsewhere from its next start on, and tells the leader so itself."""
        world = self._world
        if not node.config.can_vote or coming.part < 0.3:
            self._take_address(node, coming)
            return
        self.counts("move")
        rng = Random(f"quorum-move-{world.plan.seed}-{coming.number}")
        world.crash_for(node, coming.for_ms)
        world.addresses.relocate(node, self._heir(node, rng))
