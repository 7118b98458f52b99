"""The cluster metadata up to one offset, immutable.

An image is replaced, never changed. A reader that holds one has a consistent cluster as long as it
needs, on any thread. `MetadataDelta` makes the next image. Large maps are `SortedMap`s, of which
two images share all but the changed chunks. The delta copies other maps if a record touches them;
an untouched map is the same object in both images. Only the delta may write to the maps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from metadata_topic.image.model import (
    BrokerImage,
    ControllerImage,
    PartitionImage,
    Provenance,
    TopicImage,
)
from metadata_topic.image.sorted_map import SortedMap

METADATA_VERSION = "metadata.version"
_TIERED_CONFIGS = {"remote.storage.enable", "remote.log.delete.on.disable"}
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"


class ResourceType(IntEnum):
    """Type of the resource that a config belongs to, as in ConfigRecord and the config requests."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


ConfigKey = tuple[int, str]
"""(resource type, resource name); a broker's name is its id as text, "" the cluster default."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Sorted (entity type, name) pairs; name None means the default entity of that type."""

_NOTHING_YET = Provenance()
_NO_CONFIGS: Mapping[str, str] = {}


def is_tiered(configs: Mapping[str, str]) -> bool:
    """True if a topic with these overrides is tiered now."""
    return configs.get("remote.storage.enable", "").strip().lower() == "true"


def is_tiered_config(name: str, value: str | None) -> bool:
    """True if a topic's config shows that the topic is, or was, tiered.

    Tiering with remote data can be switched off only together with
    `remote.log.delete.on.disable=true`, and the data may still be there.
    """
    return name in _TIERED_CONFIGS and (value or "").strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The state after all records of the metadata log up to `provenance`.

    Attributes:
        dotted_names: Topic names with a ".", by the metric name that they share with names that
            have "_" instead.
        features: Finalised feature levels; a level of 0 is an absent entry.
        next_producer_id: First id that is in no block.
        acls, scram_credentials, delegation_tokens: Record structs by their key; this version keeps
            them but does not interpret them.
        client_quotas: By entity, quota key to value.
        removed_tiered_topics: Ids of removed tiered topics, in the order of their removal, until
            the remote store has nothing of them. The values are unused.
    """

    topics_by_name: SortedMap[str, TopicImage] = field(default_factory=SortedMap)
    topics_by_id: SortedMap[bytes, TopicImage] = field(default_factory=SortedMap)
    dotted_names: SortedMap[str, tuple[str, ...]] = field(default_factory=SortedMap)
    configs: SortedMap[ConfigKey, dict[str, str]] = field(default_factory=SortedMap)
    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    controllers: dict[int, ControllerImage] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: dict[bytes, Any] = field(default_factory=dict)
    scram_credentials: dict[tuple[str, int], Any] = field(default_factory=dict)
    delegation_tokens: dict[str, Any] = field(default_factory=dict)
    client_quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    removed_tiered_topics: dict[bytes, None] = field(default_factory=dict)
    provenance: Provenance = _NOTHING_YET

    def without_controllers(self) -> "MetadataImage":
        """Return this image without controllers, which must register again."""
        return replace(self, controllers={})

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """One partition by its topic's name, None if there is none."""
        image = self.topics_by_name.get(topic)
        return None if image is None else image.partitions.get(partition)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """Overrides of a topic, without server defaults. Read only."""
        return self.configs.get((ResourceType.TOPIC, topic), _NO_CONFIGS)

    def broker_config(self, broker_id: int | None) -> Mapping[str, str]:
        """Dynamic configs of one broker, or with None the cluster-wide default. Read only."""
        name = "" if broker_id is None else str(broker_id)
        return self.configs.get((ResourceType.BROKER, name), _NO_CONFIGS)

    @property
    def metadata_version(self) -> int:
        """Finalised level of metadata.version, 0 before the bootstrap records."""
        return self.features.get(METADATA_VERSION, 0)

    @property
    def elr_enabled(self) -> bool:
        """True if eligible leader replicas (KIP-966) are finalised."""
        return self.features.get(ELR_VERSION, 0) > 0

    @property
    def partition_count(self) -> int:
        """Number of partitions of all topics."""
        return sum(len(topic.partitions) for topic in self.topics_by_id.values())


EMPTY_IMAGE = MetadataImage()


def metric_name(name: str) -> str:
    """Return the name under which metrics show a topic; two topics must not share one."""
    return name.replace(".", "_")


def colliding_topic(image: MetadataImage, name: str) -> str | None:
    """Find another topic with the metric name of `name`, without a scan of all topics.

    Returns:
        Name of the other topic; None if there is none, or only `name` itself.
    """
    shown = metric_name(name)
    if shown != name and shown in image.topics_by_name:
        return shown
    return next((other for other in image.dotted_names.get(shown, ()) if other != name), None)
