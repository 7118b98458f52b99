"""Output of `tidemark topics` and `tidemark configs` about topics and their settings.

Columns have the names that Kafka's tools give them. DIFFERS: of the settings only those that were
set for the topic itself are shown; Kafka's tool also repeats what the broker's file says.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.image.image import ResourceType
from pipeline.cluster.cluster import no_topic
from tidemark.cluster.asking import Cluster, PartitionState, RefusedError, Setting, TopicState
from tidemark.cluster.table import fields, table

_COLUMNS: Final = ("Partition", "Leader", "Replicas", "Isr", "Elr", "LastKnownElr")
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}
"""Where a value comes from: numbers of DescribeConfigs, names as Kafka's tools print them."""


def topics_named(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicState]:
    """Topics by name; all where no name is given.

    Raises:
        UnknownTopicError: there is none of a name; says which is nearest.
    """
    try:
        return cluster.topics(names)
    except RefusedError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        known = cluster.topics()
        missing = next((one for one in names if one not in known), None)
        if missing is None:
            raise  # it was made meanwhile
        raise no_topic(missing, known.keys() - set(names)) from None


def topic_text(topic: TopicState, settings: Mapping[str, str], width: int | None) -> str:
    """A topic: what it is, and a line for each partition."""
    head = fields(
        [
            ("Topic", topic.name),
            ("TopicId", uuid_to_text(topic.topic_id)),
            ("PartitionCount", len(topic.partitions)),
            ("ReplicationFactor", replication_factor(topic)),
            ("Configs", ",".join(f"{name}={value}" for name, value in settings.items())),
        ],
        width,
    )
    rows = [
        (
            *(one.index, _leader(one), _ids(one.replicas), _ids(one.isr)),
            *(_ids(one.elr), _ids(one.last_known_elr)),
        )
        for one in topic.partitions
    ]
    return head + table(_COLUMNS, rows, width)


def topic_json(topic: TopicState, settings: Mapping[str, str]) -> dict[str, object]:
    """The same for programs."""
    return {
        "topic": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": replication_factor(topic),
        "configs": dict(settings),
        "partitions": [
            {
                "partition": one.index,
                "leader": _leader(one),
                "replicas": list(one.replicas),
                "isr": list(one.isr),
                "elr": list(one.elr),
                "last_known_elr": list(one.last_known_elr),
            }
            for one in topic.partitions
        ],
    }


def replication_factor(topic: TopicState) -> int:
    """Replicas of its first partition, as Kafka's tool counts."""
    return len(topic.partitions[0].replicas) if topic.partitions else 0


def own_settings(kind: ResourceType, name: str, settings: Iterable[Setting]) -> list[Setting]:
    """Those that were set for this topic or broker itself, by name.

    Args:
        kind: of resource.
        name: the topic, or the broker's id; "": what all brokers share.
        settings: all, of whatever source.
    """
    own = "DYNAMIC_TOPIC_CONFIG"
    if kind == ResourceType.BROKER:
        own = "DYNAMIC_BROKER_CONFIG" if name else "DYNAMIC_DEFAULT_BROKER_CONFIG"
    return sorted((one for one in settings if source_of(one) == own), key=lambda one: one.name)


def settings_text(settings: Iterable[Setting], width: int | None) -> str:
    """A line for each setting: value, and where it comes from."""
    rows = [(one.name, one.value, source_of(one)) for one in settings]
    return table(("Name", "Value", "Source"), rows, width, whole=("Name",))


def source_of(setting: Setting) -> str:
    """Where its value comes from, by Kafka's name."""
    return _SOURCES.get(setting.source, f"source {setting.source}")


def _leader(one: PartitionState) -> int | None:
    return None if one.leader < 0 else one.leader


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))
