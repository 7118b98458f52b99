"""The step from one image to the next.

A delta takes records in log order. It copies a map of the image when a record first touches it, and
makes the next image at the end. It keeps a list of changes for subscribers. So a broker need not
compare two images of ten thousand partitions to find one new leader.

The record handlers are in `replay`; this module knows maps, not records.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from metadata_topic.image.image import ConfigKey, MetadataImage, QuotaEntity, metric_name
from metadata_topic.image.model import (
    BrokerImage,
    ControllerImage,
    PartitionImage,
    Provenance,
    TopicImage,
)
from metadata_topic.image.sorted_map import SortedMap, SortedMapEditor


@dataclass(frozen=True, slots=True)
class TopicName:
    """Name and id of a deleted topic."""

    name: str
    id: bytes


class MetadataDelta:
    """Changes on top of `base`.

    Attributes:
        created_topics: Ids of topics that `base` does not have.
        deleted_topics: Topics of `base` that are gone. A topic created and deleted in between is in
            neither.
        removed_topics: Ids that a RemoveTopicRecord names, also of topics created in between.
        changed_partitions: Indexes of new or changed partitions by topic id; of created topics all.
        changed_configs: (resource type, name) pairs with another value or none.
        changed_brokers: Ids of brokers registered, unregistered or changed.
        changed_controllers: The same for controllers.
        features_changed: A finalised level changed.
        tiered_removals: Ids of removed tiered topics that came onto the list of them (True) or left
            it (False); the last change counts.
        elections: Number of partitions that got another leader.
        unclean_elections: Number of those whose leader may lack records.
        is_replacement: The next image is not made of records on top of `base` (`difference`).
    """

    def __init__(self, base: MetadataImage, *, is_replacement: bool = False) -> None:
        self.base = base
        self.created_topics: set[bytes] = set()
        self.deleted_topics: dict[bytes, TopicName] = {}
        self.removed_topics: set[bytes] = set()
        self.changed_partitions: dict[bytes, set[int]] = {}
        self.changed_configs: set[ConfigKey] = set()
        self.changed_brokers: set[int] = set()
        self.changed_controllers: set[int] = set()
        self.features_changed = False
        self.tiered_removals: dict[bytes, bool] = {}
        self.elections = self.unclean_elections = 0
        self.is_replacement = is_replacement
        # Maps that differ from those of base, by the name of the image's field.
        self._maps: dict[str, MutableMapping[Any, Any]] = {}
        self._own_topics: set[bytes] = set()
        self._own_configs: set[ConfigKey] = set()
        self._own_quotas: set[QuotaEntity] = set()
        self._next_producer_id = base.next_producer_id

    def _own(self, field: str) -> MutableMapping[Any, Any]:
        owned = self._maps.get(field)
        if owned is None:
            base = getattr(self.base, field)
            owned = base.edit() if isinstance(base, SortedMap) else dict(base)
            self._maps[field] = owned
        return owned

    def _see(self, field: str) -> Mapping[Any, Any]:
        owned = self._maps.get(field)
        view: Mapping[Any, Any] = getattr(self.base, field) if owned is None else owned
        return view

    @property
    def is_empty(self) -> bool:
        """True if nothing changed but the provenance.

        False after a replacement, where it is unknown.
        """
        return (
            not self.is_replacement
            and not self._maps
            and self._next_producer_id == self.base.next_producer_id
        )

    def image(self, provenance: Provenance) -> MetadataImage:
        """Make the next image. The delta must not be changed after this."""
        maps: dict[str, Any] = {
            field: owned.map() if isinstance(owned, SortedMapEditor) else owned
            for field, owned in self._maps.items()
        }
        return replace(
            self.base,
            **maps,
            next_producer_id=self._next_producer_id,
            provenance=provenance,
        )

    # Topics and partitions

    def topic(self, topic_id: bytes) -> TopicImage | None:
        """A topic as of the last record seen."""
        found: TopicImage | None = self._see("topics_by_id").get(topic_id)
        return found

    def topic_named(self, name: str) -> TopicImage | None:
        """A topic as of the last record seen, by name."""
        found: TopicImage | None = self._see("topics_by_name").get(name)
        return found

    def all_topics(self) -> list[TopicImage]:
        """Every topic as of the last record seen."""
        return list(self._see("topics_by_id").values())

    def add_topic(self, name: str, topic_id: bytes, *, was_tiered: bool = False) -> None:
        """Add a topic without partitions."""
        self._put_topic(TopicImage(name, topic_id, {}, was_tiered))
        self._note_dots(name, is_there=True)
        self._own_topics.add(topic_id)
        self.created_topics.add(topic_id)
        self.deleted_topics.pop(topic_id, None)

    def remove_topic(self, topic: TopicImage) -> None:
        """Remove a topic and its partitions; the caller removes its configs."""
        del self._own("topics_by_id")[topic.id]
        by_name = self._own("topics_by_name")
        if by_name.get(topic.name) is not None and by_name[topic.name].id == topic.id:
            del by_name[topic.name]
            self._note_dots(topic.name, is_there=False)
        self.changed_partitions.pop(topic.id, None)
        self.created_topics.discard(topic.id)
        if topic.id in self.base.topics_by_id:
            self.deleted_topics[topic.id] = TopicName(topic.name, topic.id)

    def _note_dots(self, name: str, *, is_there: bool) -> None:
        if "." not in name:
            return
        shown = metric_name(name)
        dotted = self._own("dotted_names")
        names = tuple(other for other in dotted.get(shown, ()) if other != name)
        if is_there:
            names = (*names, name)
        if names:
            dotted[shown] = names
        else:
            dotted.pop(shown, None)

    def put_partition(self, topic: TopicImage, partition_id: int, image: PartitionImage) -> None:
        """Add or replace one partition of an existing topic."""
        if topic.id not in self._own_topics:
            topic = structs.replace(topic, partitions=dict(topic.partitions))
            self._put_topic(topic)
            self._own_topics.add(topic.id)
        # Copied by this delta and in no image yet, so changing it in place is safe.
        topic.partitions[partition_id] = image
        self.changed_partitions.setdefault(topic.id, set()).add(partition_id)

    def _put_topic(self, topic: TopicImage) -> None:
        self._own("topics_by_id")[topic.id] = topic
        self._own("topics_by_name")[topic.name] = topic

    def note_tiered(self, name: str) -> None:
        """Mark a topic as tiered now or earlier; ignored if there is no such topic."""
        topic = self.topic_named(name)
        if topic is not None and not topic.was_tiered:
            self._put_topic(structs.replace(topic, was_tiered=True))

    # Removed topics whose remote data is still there

    def add_removed(self, topic_id: bytes) -> None:
        """List a tiered topic as removed: its remote data is to be deleted."""
        if topic_id not in self._see("removed_tiered_topics"):
            self._own("removed_tiered_topics")[topic_id] = None
            self.tiered_removals[topic_id] = True

    def drop_removed(self, topic_id: bytes) -> None:
        """Take a topic off that list, because its remote data is gone; ignored if not listed."""
        self.drop("removed_tiered_topics", topic_id)
        self.tiered_removals[topic_id] = False

    # Configs

    def configs(self, key: ConfigKey) -> Mapping[str, str]:
        """The configs of a resource as of the last record seen."""
        found: Mapping[str, str] = self._see("configs").get(key, {})
        return found

    def set_config(self, key: ConfigKey, name: str, value: str | None) -> None:
        """Set one config, or with None remove it; a resource without configs has no entry."""
        configs = self._own("configs")
        mine = configs.get(key)
        if key not in self._own_configs:
            mine = configs[key] = dict(mine or ())
            self._own_configs.add(key)
        assert mine is not None
        if value is None:
            mine.pop(name, None)
        else:
            mine[name] = value
        if not mine:
            del configs[key]
            self._own_configs.discard(key)
        self.changed_configs.add(key)

    def drop_configs(self, key: ConfigKey) -> None:
        """Remove all configs of a resource."""
        if key in self._see("configs"):
            del self._own("configs")[key]
            self._own_configs.discard(key)
            self.changed_configs.add(key)

    # Nodes

    def broker(self, broker_id: int) -> BrokerImage | None:
        """A broker as of the last record seen."""
        found: BrokerImage | None = self._see("brokers").get(broker_id)
        return found

    def put_broker(self, broker: BrokerImage) -> None:
        """Add or replace a broker."""
        self._own("brokers")[broker.id] = broker
        self.changed_brokers.add(broker.id)

    def remove_broker(self, broker_id: int) -> None:
        """Remove a broker."""
        del self._own("brokers")[broker_id]
        self.changed_brokers.add(broker_id)

    def put_controller(self, controller: ControllerImage) -> None:
        """Add or replace a controller."""
        self._own("controllers")[controller.id] = controller
        self.changed_controllers.add(controller.id)

    # The rest

    def set_feature(self, name: str, level: int) -> None:
        """Finalise a feature at `level`; 0 removes it."""
        features = self._own("features")
        if level == 0:
            features.pop(name, None)
        else:
            features[name] = level
        self.features_changed = True

    def set_next_producer_id(self, next_producer_id: int) -> None:
        """Set the first id that is in no block."""
        self._next_producer_id = next_producer_id

    def put(self, field: str, key: object, value: object) -> None:
        """Add or replace an entry of one of the plain maps (acls, scram, tokens)."""
        self._own(field)[key] = value

    def drop(self, field: str, key: object) -> None:
        """Remove an entry of one of the plain maps; ignored if absent."""
        if key in self._see(field):
            del self._own(field)[key]

    def set_quota(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        """Set one quota of an entity, or with None remove it."""
        quotas = self._own("client_quotas")
        mine = quotas.get(entity)
        if entity not in self._own_quotas:
            mine = quotas[entity] = dict(mine or ())
            self._own_quotas.add(entity)
        assert mine is not None
        if value is None:
            mine.pop(key, None)
        else:
            mine[key] = value
        if not mine:
            del quotas[entity]
            self._own_quotas.discard(entity)
