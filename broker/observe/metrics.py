"""Numbers about the broker as a whole: logs, partitions, the metadata log, the tier.

All of them are asked for when somebody looks, so they cost nothing between two scrapes. Names are
those of Kafka's JMX beans as the JMX exporter writes them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import DIRECTORY_UNASSIGNED, PartitionImage, TopicImage
from metadata_topic.image.sorted_map import Tally
from runtime.executors import Executors
from runtime.metrics import GaugeFn, Labelled, Registry


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


def register_replica_metrics(
    metrics: Registry, replicas: ReplicaManager, executors: Executors
) -> None:
    """The logs of this broker, and what waits for their disks."""
    _register_logs(metrics, replicas)
    _register_disks(metrics, replicas, executors)


def _register_disks(metrics: Registry, replicas: ReplicaManager, executors: Executors) -> None:
    def calls() -> Iterator[Labelled]:
        for name, count in executors.waiting().items():
            yield (name,), count

    metrics.gauge("tidemark_pool_waiting_calls", "Calls no thread has begun.", ("pool",), calls)
    metrics.gauge(
        "tidemark_replicas_unsettled",
        "Changes of partitions here that wait for a disk.",
        fn=lambda: replicas.backlog,
    )


def _register_logs(metrics: Registry, replicas: ReplicaManager) -> None:
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


def _per_partition(replicas: ReplicaManager, fact: Callable[[Partition], float]) -> GaugeFn:
    def collect() -> Iterator[Labelled]:
        for partition in list(replicas.partitions.values()):
            yield (partition.topic, str(partition.partition)), fact(partition)

    return collect


def register_metadata_metrics(
    metrics: Registry, image: Callable[[], MetadataImage], node: MetadataLog
) -> None:
    """The controller's view of the cluster and of the metadata log."""
    controller = "kafka_controller_KafkaController_"
    tally: Tally[TopicImage] = Tally(_by_place)
    tally.of(image().topics_by_id)  # all of them once; later only what changed
    gauges: dict[str, tuple[str, Callable[[], float]]] = {
        f"{controller}ActiveControllerCount": ("Whether this node is the controller.", lambda: 1),
        f"{controller}GlobalTopicCount": (
            "Topics of the cluster.",
            lambda: len(image().topics_by_id),
        ),
        f"{controller}GlobalPartitionCount": (
            "Partitions of the cluster.",
            lambda: sum(tally.of(image().topics_by_id).values()),
        ),
        f"{controller}OfflinePartitionsCount": (
            "Partitions without a leader, or whose leader lacks their log directory.",
            lambda: _offline_partitions(tally, image()),
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


_Place = tuple[int, bytes]
"""A partition's leader (-1 for none) and the leader's log directory."""


def _by_place(topics: Iterable[TopicImage]) -> Counter[_Place]:
    return Counter(
        (partition.leader, _directory_of_leader(partition))
        for topic in topics
        for partition in topic.partitions.values()
    )


def _directory_of_leader(partition: PartitionImage) -> bytes:
    if partition.leader not in partition.replicas:
        return DIRECTORY_UNASSIGNED
    return partition.directory_of(partition.leader)


def _offline_partitions(tally: Tally[TopicImage], image: MetadataImage) -> int:
    places = tally.of(image.topics_by_id)
    return sum(number for place, number in places.items() if not _works(place, image))


def _works(place: _Place, image: MetadataImage) -> bool:
    leader, directory_id = place
    broker = image.brokers.get(leader)
    return broker is not None and broker.works_with(directory_id)
