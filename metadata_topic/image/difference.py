"""The delta between two images without records in between: after a fetched snapshot.

A snapshot holds the state, not the changes. Subscribers need changes, so the two images are
compared: topics by id, so that a topic created again under an old name inherits nothing.

Source: KIP-630, Loading Snapshots.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from metadata_topic.image.delta import MetadataDelta, TopicName
from metadata_topic.image.image import ConfigKey, MetadataImage, ResourceType
from runtime.work import Pace, Steps, stepwise

K = TypeVar("K")

_TOPIC_WORK: Final = 2


@stepwise
def difference(old: MetadataImage, new: MetadataImage) -> Steps[MetadataDelta]:
    """Compare two images, in steps, since the work grows with the number of topics."""
    delta = MetadataDelta(old, is_replacement=True)
    renewed = yield from _compare_topics(delta, old, new)
    changed = yield from _changed(old.configs, new.configs)
    delta.changed_configs = changed | {
        key for key in renewed if key in old.configs or key in new.configs
    }
    delta.changed_brokers = yield from _changed(old.brokers, new.brokers)
    delta.changed_controllers = yield from _changed(old.controllers, new.controllers)
    delta.features_changed = old.features != new.features
    yield from _note_removed(delta, old, new)
    return delta


def _compare_topics(
    delta: MetadataDelta, old: MetadataImage, new: MetadataImage
) -> Steps[set[ConfigKey]]:
    """Note created, deleted and changed topics; return config keys of created and deleted ones."""
    renewed: set[ConfigKey] = set()
    pace = Pace()
    for topic_id, topic in new.topics_by_id.items():
        before = old.topics_by_id.get(topic_id)
        if before is None:
            delta.created_topics.add(topic_id)
            renewed.add((ResourceType.TOPIC, topic.name))
        known = {} if before is None else before.partitions
        if partitions := (yield from _changed(known, topic.partitions)):
            delta.changed_partitions[topic_id] = partitions
        if pace.is_step_over(_TOPIC_WORK + len(topic.partitions)):
            yield
    for topic_id, topic in old.topics_by_id.items():
        if topic_id not in new.topics_by_id:
            delta.deleted_topics[topic_id] = TopicName(topic.name, topic_id)
            renewed.add((ResourceType.TOPIC, topic.name))
        if pace.is_step_over():
            yield
    return renewed


def _note_removed(delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> Steps[None]:
    """Note additions only: an id absent from a snapshot proves nothing, since Kafka's have none."""
    pace = Pace()
    for topic_id in new.removed_tiered_topics:
        if topic_id not in old.removed_tiered_topics:
            delta.tiered_removals[topic_id] = True
        if pace.is_step_over():
            yield


def _changed(old: Mapping[K, object], new: Mapping[K, object]) -> Steps[set[K]]:
    """Keys whose value differs, or that only one of the two has."""
    pace = Pace()
    changed: set[K] = set()
    for key, value in new.items():
        if old.get(key) != value:
            changed.add(key)
        if pace.is_step_over():
            yield
    for key in old:
        if key not in new:
            changed.add(key)
        if pace.is_step_over():
            yield
    return changed
