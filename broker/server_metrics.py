"""Numbers about the broker as a whole: logs, partitions, the metadata log, the tier.

All of them are asked for when somebody looks, so they cost nothing between two scrapes. Names are
those of Kafka's JMX beans as the JMX exporter writes them.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import PartitionImage
from runtime.metrics import Registry

Labelled = Mapping[tuple[str, ...], float]


class MetadataLog(Protocol):
    """What the metadata node tells about its log."""

    @property
    def leader_epoch(self) -> int:
        """Epoch of the quorum's leader."""
        ...

    @property
    def high_watermark(self) -> int:
        """First offset (exclusive end) that is not committed."""
        ...

    @property
    def log_end_offset(self) -> int:
        """First offset not yet written."""
        ...


def register_log_metrics(metrics: Registry, replicas: ReplicaManager) -> None:
    """Sizes and ends of every hosted log, and how many there are."""
    facts: dict[str, tuple[str, Callable[[Partition], float]]] = {
        "Size": ("Bytes of the local log.", lambda p: p.log.size_bytes),
        "NumLogSegments": ("Segments of the local log.", lambda p: p.log.segment_count),
        "LogStartOffset": ("First offset, local or remote.", lambda p: p.log.log_start_offset),
        "LogEndOffset": ("First offset not yet written.", lambda p: p.log.log_end_offset),
    }
    for name, (text, fact) in facts.items():
        metrics.gauge(
            f"kafka_log_Log_{name}", text, ("topic", "partition"), _per_partition(replicas, fact)
        )
    metrics.gauge(
        "kafka_log_LogManager_OfflineLogDirectoryCount",
        "Log directories that failed.",
        fn=lambda: sum(directory.failure is not None for directory in replicas.logs.dirs),
    )
    metrics.gauge(
        "kafka_server_ReplicaManager_PartitionCount",
        "Partitions hosted here.",
        fn=lambda: len(replicas.partitions),
    )
    metrics.gauge(
        "kafka_server_ReplicaManager_LeaderCount",
        "Partitions led here.",
        fn=lambda: sum(p.is_leader for p in replicas.partitions.values()),
    )


def _per_partition(
    replicas: ReplicaManager, fact: Callable[[Partition], float]
) -> Callable[[], Labelled]:
    def collect() -> Labelled:
        return {
            (partition.topic, str(partition.partition)): fact(partition)
            for partition in replicas.partitions.values()
        }

    return collect


def register_metadata_metrics(
    metrics: Registry, image: Callable[[], MetadataImage], node: MetadataLog
) -> None:
    """The controller's view of the cluster and of the metadata log."""
    controller = "kafka_controller_KafkaController_"
    gauges: dict[str, tuple[str, Callable[[], float]]] = {
        f"{controller}ActiveControllerCount": ("Whether this node is the controller.", lambda: 1),
        f"{controller}GlobalTopicCount": (
            "Topics of the cluster.",
            lambda: len(image().topics_by_id),
        ),
        f"{controller}GlobalPartitionCount": (
            "Partitions of the cluster.",
            lambda: image().partition_count,
        ),
        f"{controller}OfflinePartitionsCount": (
            "Partitions without a leader, or whose leader lacks their log directory.",
            lambda: _offline_partitions(image()),
        ),
        f"{controller}ActiveBrokerCount": (
            "Registered brokers that are not fenced.",
            lambda: sum(not b.fenced for b in image().brokers.values()),
        ),
        f"{controller}FencedBrokerCount": (
            "Registered brokers that are fenced.",
            lambda: sum(b.fenced for b in image().brokers.values()),
        ),
        "kafka_server_raft_metrics_current_epoch": (
            "Epoch of the metadata quorum.",
            lambda: node.leader_epoch,
        ),
        "kafka_server_raft_metrics_high_watermark": (
            "Committed end of the metadata log.",
            lambda: node.high_watermark,
        ),
        "kafka_server_raft_metrics_log_end_offset": (
            "End of the metadata log.",
            lambda: node.log_end_offset,
        ),
        "kafka_server_broker_metadata_metrics_last_applied_record_offset": (
            "Last metadata record contained in the image.",
            lambda: image().provenance.offset,
        ),
    }
    for name, (text, fn) in gauges.items():
        metrics.gauge(name, text, fn=fn)


def _offline_partitions(image: MetadataImage) -> int:
    return sum(
        not _is_led(partition, image)
        for topic in image.topics_by_id.values()
        for partition in topic.partitions.values()
    )


def _is_led(partition: PartitionImage, image: MetadataImage) -> bool:
    leader = image.brokers.get(partition.leader)
    return leader is not None and leader.works_with(partition.directory_of(leader.id))
