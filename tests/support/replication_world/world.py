"""A simulated cluster whose brokers keep replicas: the nodes' world, with logs, leaders, followers.

world = ReplicationWorld(replication_plan_of(7))
world.start(); world.run(5000); world.calm_down()

Of a node that is a broker also these parts of the product run as they are: partitions and their
in-sync replicas, fetchers, logs on a disk that loses power, handlers of clients.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from metadata_topic.image.model import DIRECTORY_LOST, NO_LEADER, BrokerImage
from tests.support.nodes_world.lives import Lives
from tests.support.nodes_world.world import NodesWorkload, NodesWorld
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.world import Calm
from tests.support.replication_world.clients import DataClients, LastReader
from tests.support.replication_world.faults import ReplicationFaults
from tests.support.replication_world.follower_readers import LastFollowerReader
from tests.support.replication_world.groups import GroupConsumer
from tests.support.replication_world.move_rules import MoveRules
from tests.support.replication_world.node import ReplicaNode
from tests.support.replication_world.plan import DATA_PORT, ReplicationPlan
from tests.support.replication_world.replica_rules import ReplicaRules
from tests.support.replication_world.tier_process import TierProcess
from tests.support.replication_world.tier_store import RemoteObjects
from tests.support.replication_world.tier_topic import WorldTopic
from tests.support.replication_world.tier_validator import TierValidator
from tests.support.replication_world.validator import Told, Validator

if TYPE_CHECKING:
    from broker.replica.partition import Partition
    from tests.support.nodes_world.node import ClusterNode
    from tests.support.quorum_world.node import QuorumNode

IN_SYNC_WITHIN_MS = 90_000
ANSWERED_WITHIN_MS = 60_000
READ_WITHIN_MS = 120_000
TIERS_REST_WITHIN_MS = 120_000


class ReplicaLives(Lives):
    """Brokers that open their logs before they register."""

    def _looks_at_leaders(self) -> None:
        """See `Validator`."""

    def _acts_in_time(self, node: "ClusterNode", now_us: int, since: int) -> None:
        broker = node.broker
        if broker is None or broker.life is None or not broker.life.epoch >= 0:
            self._absent_us[node.id] = now_us  # it opens its logs
        super()._acts_in_time(node, now_us, since)


class ReplicationWorkload(NodesWorkload):
    """Producers and consumers beside what a cluster is asked for."""

    world: "ReplicationWorld"

    def __init__(self, world: "ReplicationWorld") -> None:
        super().__init__(world)
        self.data = data = DataClients(world)
        data.groups += [GroupConsumer(data, one) for one in range(world.plan.groups)]

    def start(self) -> None:
        super().start()
        self.data.start()

    def stop(self) -> None:
        super().stop()
        self.data.stop()


class ReplicationWorld(NodesWorld):
    """See the module.

    Attributes:
        validate: of all that is told of records.
        remote_objects, tier_topic: what the tiers of all brokers share.
        tier_validator: of what the tiers do.
        replica_rules: of what replicas of tiered partitions know.
        move_rules: of partitions that get other replicas.
        turns_us: when each broker has last done something while it served.
    """

    plan: ReplicationPlan
    nodes: "dict[int, ReplicaNode]"  # type: ignore[assignment]
    workload: ReplicationWorkload

    def __init__(self, plan: ReplicationPlan, *, trace_lines: int = 0) -> None:
        self.validator: Validator
        self.turns_us: dict[int, int] = {}
        super().__init__(plan, trace_lines=trace_lines)
        self.lives = ReplicaLives(self)
        self.validator = Validator(self)
        self.remote_objects = RemoteObjects(self)
        self.tier_topic = WorldTopic(self)
        self.tier_validator = TierValidator(self)
        self.replica_rules = ReplicaRules(self)
        self.move_rules = MoveRules(self)
        for node in self.brokers:
            self.addresses.listens(node, DATA_PORT)

    def _node(self, node_id: int) -> ReplicaNode:
        return ReplicaNode(self, node_id)

    def _workload(self) -> ReplicationWorkload:
        return ReplicationWorkload(self)

    def _faults(self) -> ReplicationFaults:
        return ReplicationFaults(self)

    def turn(self) -> None:
        super().turn()
        node = self._node_of(self.timeline.whom)
        if node is not None and DATA_PORT in self.nodes[node.id].listening:
            self.turns_us[node.id] = self.now_us
        self.validator.after_turn(node)
        self.tier_validator.after_turn()
        for one in self.brokers if node is None else [node]:
            self.move_rules.look_at(one)  # type: ignore[arg-type]
        if self.plan.tier is not None:
            for one in self.brokers if node is None else [node]:
                self.replica_rules.look_at(one)  # type: ignore[arg-type]

    def _node_of(self, whom: Any) -> "QuorumNode | None":
        return super()._node_of(whom.node if isinstance(whom, TierProcess) else whom)

    def heal(self) -> None:
        super().heal()
        self.remote_objects.heal()

    def saw(self, what: str) -> None:
        """Count a step of partitions and make it part of the trace's hash."""
        self.steps += 1
        self.trace_hash = crc32(f"{self.now_us} {what}".encode(), self.trace_hash)
        if self.trace is not None:
            self.trace.append(f"{self.now_us / 1000:.3f} {what}")

    def known_brokers(self) -> Iterable[BrokerImage]:
        """As they are registered."""
        return self.oracle.reference.brokers.values()

    def start_later(self, node: "QuorumNode", ms: int) -> None:
        if not self.nodes[node.id].is_without_logs:
            super().start_later(node, ms)

    def _start(self, node: "QuorumNode") -> None:
        if not self.nodes[node.id].is_without_logs:
            super()._start(node)

    def calm_down(self) -> Calm:
        calm = super().calm_down()
        data = self.workload.data
        if not self.run_until(lambda: not any(data.waiting), ANSWERED_WITHIN_MS):
            late = next(data.waiting)
            raise Violation("every batch is answered", f"{late.number}: {late.sent}")
        if self.plan.restores and not self.run_until(self._all_restored, IN_SYNC_WITHIN_MS):
            lost = [
                told for told in self.validator.partitions.values() if self._is_to_restore(told)
            ]
            raise Violation("what only the store has is restored", "; ".join(map(repr, lost)))
        if not self.run_until(self.all_in_sync, IN_SYNC_WITHIN_MS):
            late = [
                told for told in self.validator.partitions.values() if not self.is_in_sync(told)
            ]
            raise Violation("calm brings all in sync", "; ".join(map(self.replicas_of, late)))
        if not self.run_until(lambda: not any(one.late for one in data.groups), READ_WITHIN_MS):
            waits = [f"{one.group_id}: {one.late}" for one in data.groups if one.late]
            raise Violation("a group continues from its commit to the end", "; ".join(waits))
        if self.plan.tier is not None:
            self._tiers_rest()
        return calm

    def _all_restored(self) -> bool:
        return not any(map(self._is_to_restore, self.validator.partitions.values()))

    def _is_to_restore(self, told: Told) -> bool:
        return told.gave_up and told.is_tiered and self.tier_validator.is_restorable(told)

    def _tiers_rest(self) -> None:
        """The tiers come to rest; then all that was told is there, and is read."""
        if not self.run_until(lambda: not self.tier_validator.unrest(), TIERS_REST_WITHIN_MS):
            raise Violation("calm brings the tiers to rest", self.tier_validator.unrest())
        self.tier_validator.validate_end()
        data = self.workload.data
        tiered = [told for told in self.validator.partitions.values() if told.is_tiered]
        tiered = [told for told in tiered if not self.is_given_up(told)]
        readers = [LastReader(data, told.name) for told in tiered]
        self._read("all that was told is read from the leader", readers)
        if not self.run_until(lambda: not self.tier_validator.still_damaged(), READ_WITHIN_MS):
            raise Violation("what is read well is well again", self.tier_validator.still_damaged())
        if self.plan.follower_readers:
            others = [
                LastFollowerReader(data, told, one)
                for told in tiered
                for one in told.image.replicas
                if one != told.image.leader
            ]
            self._read("all that was told is read from a follower", others)

    def _read(self, rule: str, readers: Sequence[LastReader | LastFollowerReader]) -> None:
        for reader in readers:
            reader.think()
        if not self.run_until(lambda: not any(one.late for one in readers), READ_WITHIN_MS):
            raise Violation(rule, "; ".join(one.late for one in readers if one.late))

    def all_in_sync(self) -> bool:
        """Whether each partition has all its replicas in sync, and all logs are equal."""
        return all(self.is_in_sync(told) for told in self.validator.partitions.values())

    def is_in_sync(self, told: Told) -> bool:
        """The same of one; or it is given up."""
        image = told.image
        if self.is_given_up(told):
            return True
        if image.leader == NO_LEADER:
            return False
        if set(image.isr) != set(image.replicas) or not self.move_rules.is_over(told):
            return False
        copies = [told.copies[one] for one in image.replicas]
        ends = {copy.end for copy in copies}
        marks = {
            partition.log.high_watermark
            for one in image.replicas
            if (partition := self._hosted(one, told)) is not None
        }
        return len(ends) == 1 and marks == ends and all(one.agrees_to >= told.end for one in copies)

    def is_given_up(self, told: Told) -> bool:
        """Whether nobody serves a partition any more, since everything of it is lost.

        A replica that had the last copy when its directory was forgotten is not begun again. One
        that was elected uncleanly and has nothing, of a partition that gave offsets, takes no
        records until a person restores it.
        """
        image = told.image
        if told.gave_up and told.is_tiered and self.tier_validator.is_end_lost(told):
            return True
        may_lead = image.leader != NO_LEADER or image.isr or image.elr or image.last_known_elr
        return DIRECTORY_LOST in image.directories or not may_lead

    def _hosted(self, node_id: int, told: Told) -> "Partition | None":
        broker = self.nodes[node_id].broker
        replicas = None if broker is None else broker.replicas
        return None if replicas is None else replicas.partitions.get(told.name)

    def replicas_of(self, told: Told) -> str:
        """A partition and its replicas in a line."""
        words = [repr(told)]
        for one in told.image.replicas:
            copy, broker = told.copies[one], self.nodes[one].broker
            words.append(f"n{one} {copy.start}-{copy.end} agrees to {copy.agrees_to}")
            if broker is None or broker.replicas is None:
                words.append("does not serve")
                continue
            hosted, offline = self._hosted(one, told), broker.replicas.offline.get(told.name)
            words.append(str(offline) if hosted is None else f"watermark {hosted.high_watermark}")
            words += broker.fetchers.problems()
        return ", ".join(words)
