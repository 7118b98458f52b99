"""Metrics of the cluster by this node's image; computed at a scrape, see `metrics`."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import DIRECTORY_UNASSIGNED, PartitionImage, TopicImage
from metadata_topic.image.sorted_map import Tally
from metadata_topic.quorum.node import MetadataNode
from runtime.metrics import Registry


def register_metadata_metrics(
    metrics: Registry, image: Callable[[], MetadataImage], node: MetadataNode
) -> None:
    """Register the controller's gauges of topics, partitions and brokers."""
    controller = "kafka_controller_KafkaController_"
    tally: Tally[TopicImage] = Tally(_by_place)
    tally.of(image().topics_by_id)  # all topics once; later only changed ones
    gauges: dict[str, tuple[str, Callable[[], float]]] = {
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
        f"{controller}PreferredReplicaImbalanceCount": (
            "Partitions that are not led by their first replica.",
            lambda: sum(
                number
                for place, number in tally.of(image().topics_by_id).items()
                if not place.is_preferred
            ),
        ),
        f"{controller}ActiveBrokerCount": (
            "Registered brokers that are not fenced.",
            lambda: sum(not b.fenced for b in image().brokers.values()),
        ),
        f"{controller}FencedBrokerCount": (
            "Registered brokers that are fenced.",
            lambda: sum(b.fenced for b in image().brokers.values()),
        ),
        f"{controller}ControlledShutdownBrokerCount": (
            "Registered brokers that are about to stop.",
            lambda: sum(b.in_controlled_shutdown for b in image().brokers.values()),
        ),
        f"{controller}MetadataErrorCount": (
            "1 once this node cannot continue.",
            lambda: node.failure is not None,
        ),
        f"{controller}IgnoredStaticVoters": (
            "1 if controller.quorum.voters is set while the voters stand in the log.",
            lambda: node.ignores_static_voters,
        ),
        "kafka_server_broker_metadata_metrics_ignored_static_voters": (
            "1 if controller.quorum.voters is set while the voters stand in the log.",
            lambda: node.ignores_static_voters,
        ),
    }
    for name, (text, fn) in gauges.items():
        metrics.gauge(name, text, fn=fn)


class _Place(NamedTuple):
    """A partition's leader (-1: none), the leader's log directory, whether it is the first one."""

    leader: int
    directory_id: bytes
    is_preferred: bool


def _by_place(topics: Iterable[TopicImage]) -> Counter[_Place]:
    return Counter(
        _Place(
            partition.leader,
            _directory_of_leader(partition),
            partition.replicas[:1] == (partition.leader,),
        )
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
    broker = image.brokers.get(place.leader)
    return broker is not None and broker.works_with(place.directory_id)
