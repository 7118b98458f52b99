"""The page's source for a broker: its replicas, groups and tier process, read in memory."""

from collections.abc import Iterator, Mapping

from broker.coordinator.service import GroupCoordinator
from broker.coordinator.shard import ShardStage
from broker.observe.console.facts import (
    CommittedFacts,
    GroupFacts,
    PartitionFacts,
    TierFacts,
)
from broker.process.console import NodeSource
from broker.remote.tier import RemoteTier
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from kafka_protocol.types import TopicPartition
from metadata_topic.quorum.node import MetadataNode
from rlm.link.messages import Loss


class BrokerSource(NodeSource):
    """The part of the page that only a node with clients has."""

    def __init__(
        self,
        node: MetadataNode,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        tier: RemoteTier | None,
    ) -> None:
        super().__init__(node)
        self._replicas, self._groups, self._tier = replicas, groups, tier

    def partitions(self) -> Iterator[PartitionFacts]:
        """One entry a hosted or offline partition."""
        unhealthy = {} if self._tier is None else self._tier.unhealthy_partitions()
        hosted = self._replicas.partitions
        for tp, reason in list(self._replicas.offline.items()):
            if tp not in hosted:
                yield PartitionFacts(tp.topic, tp.partition, problem=f"offline: {reason}")
        for partition in list(hosted.values()):
            yield _partition(partition, unhealthy)

    def groups(self) -> Iterator[GroupFacts]:
        """One entry a group of the shards that are active here."""
        for shard in list(self._groups.shards.values()):
            if shard.stage is ShardStage.ACTIVE:
                for found in shard.state.progress():
                    yield GroupFacts(*found)

    def committed(self) -> Iterator[CommittedFacts]:
        """One entry a committed offset of the shards that are active here."""
        for shard in list(self._groups.shards.values()):
            if shard.stage is ShardStage.ACTIVE:
                for found in shard.state.committed():
                    yield CommittedFacts(*found)

    def committed_end(self, topic: str, partition: int) -> int:
        """High watermark (exclusive) of an in-sync replica here; -1 without one."""
        found = self._replicas.partitions.get(TopicPartition(topic, partition))
        if found is None or found.log.is_offline or found.node_id not in found.isr:
            return -1
        return found.high_watermark

    def tier(self) -> TierFacts | None:
        """The tier process; None where the broker has no tier."""
        if self._tier is None:
            return None
        state = self._tier.state()
        return TierFacts(
            state.process, state.pid or -1, state.restarts, state.assigned, state.ready
        )


def _partition(found: Partition, unhealthy: Mapping[tuple[bytes, int], str]) -> PartitionFacts:
    local = found.log
    copied = local.copied_through
    is_led = found.is_leader and not local.is_offline
    return PartitionFacts(
        topic=found.topic,
        partition=found.partition,
        is_internal=found.is_internal,
        is_led=is_led,
        leader=found.leader_id if is_led or not found.is_leader else -1,
        replicas=len(found.replicas),
        isr=len(found.isr),
        is_tiered=local.config.is_tiered,
        log_start=local.log_start_offset,
        local_start=local.local_log_start_offset,
        copied_end=copied + 1 if copied >= 0 else -1,
        committed_end=local.high_watermark,
        log_end=local.log_end_offset,
        size_bytes=local.size_bytes,
        problem=_problem(found, unhealthy),
    )


def _problem(found: Partition, unhealthy: Mapping[tuple[bytes, int], str]) -> str:
    if found.log.is_offline:
        return "offline: its disk failed"
    if (reason := unhealthy.get((found.topic_id, found.partition))) is not None:
        return reason
    if isinstance(found.verdict, Loss):
        return found.verdict.value
    late = len(found.replicas) - len(found.isr)
    if found.is_leader and late > 0:
        return f"{late} of its replicas {'is' if late == 1 else 'are'} not in sync"
    return ""
