"""The cluster metadata up to one offset, immutable.

An image is replaced, never changed: a reader that holds one sees a consistent cluster for as long
as it likes, on any thread. `MetadataDelta` makes the next image. What can be many is in maps of
which two images share all but the places that changed (`SortedMap`); of the others the delta copies
those that a record touched. What no record touched is the same object in both images. Nobody but
the delta may write to the maps in here.
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
    """What a config belongs to, as in ConfigRecord and the config requests."""

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
    """Whether a topic with these overrides is tiered now."""
    return configs.get("remote.storage.enable", "").strip().lower() == "true"


def is_tiered_config(name: str, value: str | None) -> bool:
    """Whether a topic's config says that the topic is, or was, tiered.

    Tiering is switched off with what remote data there is only beside
    `remote.log.delete.on.disable=true`, and the data may still be there.
    """
    return name in _TIERED_CONFIGS and (value or "").strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything the metadata log says, up to `provenance`.

    Attributes:
        dotted_names: names of topics that have a ".", by the name that a metric shows, where "."
            and "_" look the same.
        features: finalised feature levels; a level of 0 is an absent entry.
        next_producer_id: first id that no block holds yet.
        acls, scram_credentials, delegation_tokens: record structs of capabilities that this
            version stores but does not interpret, by their key.
        client_quotas: per entity, quota key to value.
        removed_tiered_topics: ids of topics that were tiered and removed, in the order of their
            removal, until nothing of them is left in the remote store. The values say nothing.
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
        """The same cluster, whose controllers have yet to register."""
        return replace(self, controllers={})

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """One partition by its topic's name, None if there is none."""
        image = self.topics_by_name.get(topic)
        return None if image is None else image.partitions.get(partition)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The topic's own overrides (server defaults are not in here). Read only."""
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
        """Whether eligible leader replicas (KIP-966) are finalised."""
        return self.features.get(ELR_VERSION, 0) > 0

    @property
    def partition_count(self) -> int:
        """Partitions of all topics."""
        return sum(len(topic.partitions) for topic in self.topics_by_id.values())


EMPTY_IMAGE = MetadataImage()


def metric_name(name: str) -> str:
    """The name as a metric shows it: two topics must not share it."""
    return name.replace(".", "_")


def colliding_topic(image: MetadataImage, name: str) -> str | None:
    """Find another topic that the metrics could not tell from `name`, without looking at all.

    Returns:
        The other topic's name; None if there is none, or only `name` itself.
    """
    shown = metric_name(name)
    if shown != name and shown in image.topics_by_name:
        return shown
    return next((other for other in image.dotted_names.get(shown, ()) if other != name), None)
