"""As `driven_quorum`, with all of a node above the driver: images, decisions, snapshots.

quorum = ReplicaQuorum(tmp_path, [1, 2, 3])
quorum.start()
quorum.create(quorum.elect_active(), "a")
"""

from collections.abc import Callable
from pathlib import Path

from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from metadata_topic.quorum.active.decisions import Done, Outcome
from metadata_topic.quorum.active.ports import ControllerSettings
from metadata_topic.quorum.driver.driver import RaftDriver
from metadata_topic.quorum.replica import MetadataReplica, ReplicaWorld
from metadata_topic.quorum.start.open_replica import OpenReplica
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.messages import SnapshotId
from tests.support.sim.ports import SimPorts
from tests.support.worlds.driven_quorum import CLUSTER_ID, DrivenNode, DrivenQuorum, Wire

__all__ = ["ReplicaNode", "ReplicaQuorum"]


class ReplicaNode(DrivenNode):
    """One node.

    Attributes:
        replica: of the newest life.
        told: what subscribers of this life were told.
    """

    replica: MetadataReplica
    told: list[tuple[MetadataImage, MetadataDelta]]
    before_install: Callable[[], object] = staticmethod(lambda: None)

    def _begin(self, opened: OpenReplica, ports: SimPorts) -> RaftDriver:
        config = self.quorum.config
        registration = Registration(self.id, bytes([self.lives]) * 16, (), SUPPORTED_FEATURES)
        self.replica = replica = MetadataReplica(
            opened,
            ReplicaWorld(
                cluster_id=CLUSTER_ID,
                ports=ports,
                raft=RaftConfig(endpoints=self.quorum.endpoints_of(self.id)),
                controller=ControllerSettings(
                    append_linger_ms=config.append_linger_ms,
                    max_batch_bytes=config.max_batch_bytes,
                    max_idle_interval_ms=config.max_idle_interval_ms,
                    bootstrap=opened.bootstrap,
                    bootstrap_problem=opened.bootstrap_problem,
                    registration=registration,
                ),
                log=config,
                session_timeout_ms=9_000,
                transport=Wire(self, self.lives),
                on_role=self.on_role,
                on_applied=lambda applied: self.on_high_watermark(applied.end_offset),
                on_failure=self.on_failure,
                before_install=self.before_install,
            ),
        )
        self.told = []
        replica.subscribe(lambda image, delta: self.told.append((image, delta)))
        self.driver = replica.driver  # others may call while it starts
        replica.start()
        return replica.driver

    @property
    def names(self) -> set[str]:
        """Topics of the newest image."""
        return set(self.replica.image.topics_by_name)


class ReplicaQuorum(DrivenQuorum):
    """See the module."""

    def _node(self, node_id: int, directory: Path) -> DrivenNode:
        return ReplicaNode(self, node_id, directory)

    @property
    def replicas(self) -> list[ReplicaNode]:
        """All nodes."""
        return [node for node in self.members.values() if isinstance(node, ReplicaNode)]

    def elect_active(self) -> ReplicaNode:
        """Let time pass until somebody takes decisions."""
        for _ in range(100):
            leader = self.elect()
            assert isinstance(leader, ReplicaNode)
            if leader.replica.controller.is_active:
                return leader
            self.advance(10)
        raise AssertionError("no leader takes decisions")

    def create(self, leader: ReplicaNode, name: str, topic_id: bytes = b"") -> None:
        """Let the active controller create a topic without partitions, committed on return."""
        record = make("TopicRecord", name=name, topic_id=topic_id or name.encode().ljust(16, b"-"))
        self._decide(leader, ControllerResult((record,), None))

    def delete(self, leader: ReplicaNode, name: str) -> None:
        """Let the active controller remove a topic, committed on return."""
        topic = leader.replica.image.topics_by_name[name]
        record = make("RemoveTopicRecord", topic_id=topic.id)
        self._decide(leader, ControllerResult((record,), None))

    def _decide(self, leader: ReplicaNode, result: ControllerResult[None]) -> None:
        answers: list[Outcome[None]] = []
        leader.replica.submit(lambda _image: result, answers.append)
        for _ in range(200):
            if answers:
                break
            self.advance(10)
        [answer] = answers
        assert isinstance(answer, Done), answer

    def snapshot(self, node: ReplicaNode) -> SnapshotId:
        """Let a node make a snapshot now."""
        made: list[SnapshotId | None] = []
        node.replica.snapshot(made.append)
        self.advance(10)
        [snapshot_id] = made
        assert snapshot_id is not None
        return snapshot_id
