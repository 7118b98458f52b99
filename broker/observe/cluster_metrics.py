"""Numbers about the cluster and its metadata log, as this node knows them; see `metrics`."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import DIRECTORY_UNASSIGNED, PartitionImage, TopicImage
from metadata_topic.image.sorted_map import Tally
from runtime.metrics import Registry


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
