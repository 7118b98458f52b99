"""What goes wrong with leaders and followers of partitions, beyond a cluster's faults."""

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from metadata_topic.controller.directories import (
    forget_directory,
    has_other_copies,
    replicas_of_broker,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.active.decisions import Done, Outcome
from tests.support.nodes_world.faults import NodesFaults
from tests.support.quorum_world.faults import Fault
from tests.support.replication_world.tier_lies import Lie

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.replication_world.node import ReplicaNode
    from tests.support.replication_world.world import ReplicationWorld

FORGETS_EVERY_US = 200_000
CHANGES_OF_A_BOOTSTRAP = 120
LOST_RECORDS_MAX = 8


class ReplicationFaults(NodesFaults):
    """See the module."""

    _world: "ReplicationWorld"

    def _partition(self, coming: Fault) -> Any:
        known = list(self._world.validator.partitions.values())
        return known[int(coming.part * len(known))] if known else None

    def _some(self, coming: Fault, *, leads: bool) -> "ReplicaNode | None":
        """The leader, or a follower, of some partition."""
        told = self._partition(coming)
        if told is None:
            return None
        one = told.image
        those = [replica for replica in one.replicas if (replica == one.leader) is leads]
        if not those:
            return None
        return self._world.nodes[those[int(coming.place * len(those))]]

    def _end_leader(self, node: "QuorumNode", coming: Fault) -> None:
        self._ends(self._some(coming, leads=True), coming)

    def _end_follower(self, node: "QuorumNode", coming: Fault) -> None:
        self._ends(self._some(coming, leads=False), coming)

    def _ends(self, node: "ReplicaNode | None", coming: Fault) -> None:
        if node is not None:
            self._world.crash_for(node, coming.for_ms, power=coming.number % 2 == 0)

    def _power_of_two(self, node: "QuorumNode", coming: Fault) -> None:
        """Two machines lose their power, the second a little later."""
        first, second = self._some(coming, leads=True), self._some(coming, leads=False)
        world = self._world
        for one, late_us in ((first, 0), (second, int(coming.part * 2_000_000))):
            if one is not None:
                world.at(world.now_us + late_us, self._loses_power, one, coming.for_ms)

    def _loses_power(self, node: "ReplicaNode", for_ms: int) -> None:
        if self._world.is_disturbed:
            self._world.crash_for(node, for_ms, power=True)

    def _cut_leader(self, node: "QuorumNode", coming: Fault) -> None:
        self._cut_off(self._some(coming, leads=True), coming)

    def _cut_follower(self, node: "QuorumNode", coming: Fault) -> None:
        self._cut_off(self._some(coming, leads=False), coming)

    def _cut_off(self, node: "ReplicaNode | None", coming: Fault) -> None:
        """From all, from other brokers only, or from the controllers only; in both directions."""
        if node is None:
            return
        world, plan = self._world, self._world.plan
        rng = Random(f"replication-cut-{plan.seed}-{coming.number}")
        among = rng.choice((plan.nodes, plan.broker_ids, plan.voters, plan.broker_ids[:2]))
        for other in among:
            if other != node.id:
                world.net.cut(node.id, other, world.now_us + coming.for_ms * 2000)
                world.net.cut(other, node.id, world.now_us + coming.for_ms * 2000)

    def _pause_leader(self, node: "QuorumNode", coming: Fault) -> None:
        one = self._some(coming, leads=True)
        if one is not None:
            self._pause_until(one, self._world.now_us + (300 + coming.for_ms) * 1500)

    def _elect(self, node: "QuorumNode", coming: Fault) -> None:
        self._world.workload.data.elect(int(coming.part < 0.1))

    def _reassign(self, node: "QuorumNode", coming: Fault) -> None:
        self._world.workload.data.mover.move(coming.number)

    # -- the remote tier

    def _end_tier(self, node: "QuorumNode", coming: Fault) -> None:
        """Of a leader or a follower; what it has sent may land later."""
        one = self._some(coming, leads=coming.number % 3 > 0)
        tier = None if one is None or one.broker is None else one.broker.tier
        if one is not None and tier is not None and tier.state().process == "up":
            assert one.tier_process is not None
            one.tier_process.kill()

    def _store_away(self, node: "QuorumNode", coming: Fault) -> None:
        remote, world = self._world.remote_objects, self._world
        remote.is_away_until = world.now_us + coming.for_ms * 1_000

    def _store_slow(self, node: "QuorumNode", coming: Fault) -> None:
        remote, world = self._world.remote_objects, self._world
        remote.is_slow_until = world.now_us + coming.for_ms * 1_000

    def _store_loses_answers(self, node: "QuorumNode", coming: Fault) -> None:
        remote, world = self._world.remote_objects, self._world
        remote.loses_answers_until = world.now_us + coming.for_ms * 2_000

    def _store_lies(self, node: "QuorumNode", coming: Fault) -> None:
        """For some seconds: a copy may wait for what it does not find for ten."""
        lies, world = self._world.remote_objects.lies, self._world
        lie = list(Lie)[int(coming.part * len(Lie))]
        lies.until_us[lie] = world.now_us + (500 + coming.for_ms) * 3_000

    def _lose_metadata(self, node: "QuorumNode", coming: Fault) -> None:
        """The last records of a metadata partition, as far as nothing rests on them."""
        world, topic = self._world, self._world.tier_topic
        tiers = [None if one.broker is None else one.broker.tier for one in world.brokers]
        if any(one is None or one.state().process != "up" for one in tiers):
            return  # a broker without a tier hears of it late, and drops what is in no segment
        if any(one.paused_until > world.now_us for one in world.brokers):
            return
        partition = coming.number % len(topic.logs)
        end = len(topic.logs[partition])
        least = max(end - 1 - int(coming.part * LOST_RECORDS_MAX), 0)
        for lost_from in range(least, end):
            if world.tier_validator.may_lose(partition, lost_from):
                world.tell(f"metadata partition {partition} ends at {lost_from}, not {end}")
                topic.lose(partition, lost_from)
                return

    # -- a disk for partitions is lost, and given up

    def _lose_logs(self, node: "QuorumNode", coming: Fault) -> None:
        """Of a broker that is not the last with what is committed, nor the second voter so."""
        one, world = self._some(coming, leads=coming.number % 2 == 0), self._world
        if one is None or one.closing or self._has_last_copies(one):
            return
        voters = [world.nodes[voter] for voter in world.plan.voters]
        if one in voters and any(voter.is_without_logs for voter in voters):
            return
        if one.up:
            one.crash()
        elif one.is_without_logs:
            return
        world.validator.loses_logs(one)
        lost = one.logs_id
        one.lose_logs()
        tier = world.plan.tier
        if tier is not None and tier.ends_bootstraps and coming.number % 3:
            one.ends_building_after = 1 + int(coming.part * CHANGES_OF_A_BOOTSTRAP)
            one.power_goes, one.down_ms = coming.number % 2 == 0, coming.for_ms
        self._forget(one, lost, coming.for_ms)

    def _has_last_copies(self, node: "ReplicaNode") -> bool:
        image = self._world.oracle.reference
        return any(
            not has_other_copies(one.image, node.id) for one in replicas_of_broker(image, node.id)
        )

    def _forget(self, node: "ReplicaNode", lost: bytes, for_ms: int) -> None:
        """As `tidemark directories forget` decides it; then the broker starts again."""
        world = self._world
        node.is_without_logs = True

        def decide(image: MetadataImage) -> ControllerResult[Any]:
            return forget_directory(image, node.id, lost, working=(node.logs_id,))

        def done(outcome: Outcome[Any]) -> None:
            if isinstance(outcome, Done):
                node.is_without_logs = False
                world.tell(f"{node}: its lost directory is forgotten: {outcome.response}")
                world.at(world.now_us + for_ms * 1000, world.start_later, node, 0)

        def attempt() -> None:
            if not node.is_without_logs:
                return
            world.at(world.now_us + FORGETS_EVERY_US, attempt)
            for one in world.nodes.values():
                replica = one.replica
                if one.leads and replica is not None and replica.controller.is_active:
                    one.on_loop(partial(replica.submit, decide, done, timeout_ms=5_000))
                    return

        attempt()
