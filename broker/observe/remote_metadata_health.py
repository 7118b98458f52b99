"""Whether `__remote_log_metadata` can be read and written, by the image: every tier rests on it.

With one replica it has one place. A broker that is away takes with it what it has of the topic, and
the tiers of all other brokers wait for it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import NO_LEADER, PartitionImage


def problems(image: MetadataImage) -> Sequence[str]:
    """A line for each set of brokers that are away with all replicas of some partitions."""
    topic = image.topics_by_name.get(REMOTE_LOG_METADATA_TOPIC)
    if topic is None:
        return ()
    away = defaultdict(list)
    for index, partition in topic.partitions.items():
        if partition.leader == NO_LEADER:
            away[tuple(partition.replicas)].append(index)
    return [
        f"{topic.name} has no leader in partitions {_shown(indexes)}, which lie on broker "
        f"{_shown(replicas)}: bring it back. Until then nothing is copied, deleted or found in the "
        "store for the topics' partitions whose segments are recorded there; clients are served "
        "from local data"
        for replicas, indexes in away.items()
    ]


def notes(image: MetadataImage) -> Sequence[str]:
    """Beside other brokers: where the only replicas are."""
    topic = image.topics_by_name.get(REMOTE_LOG_METADATA_TOPIC)
    if topic is None or len(image.brokers) < 2:
        return ()
    only = [one for one in topic.partitions.values() if len(one.replicas) == 1]
    if not only:
        return ()
    return (
        f"{topic.name} has one replica in {len(only)} partitions, on broker {_places(only)}: while "
        "it is away the tiers of all brokers wait, and without its disk nobody knows what is in "
        "the store",
    )


def _places(partitions: Iterable[PartitionImage]) -> str:
    return _shown({broker for one in partitions for broker in one.replicas})


def _shown(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
