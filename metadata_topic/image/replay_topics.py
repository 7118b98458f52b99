"""Effect of records about topics, partitions and configs."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import ResourceType, is_tiered_config
from metadata_topic.image.model import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    RECOVERING,
    BrokenMetadataLogError,
    PartitionImage,
    TopicImage,
)

_LEADER_UNCHANGED: Final = -2
_RECOVERY_UNCHANGED: Final = -1


def _topic_of(delta: MetadataDelta, topic_id: bytes, what: str) -> TopicImage:
    topic = delta.topic(topic_id)
    if topic is None:
        raise BrokenMetadataLogError(
            f"{what} for topic id {uuid_to_text(topic_id)}, which does not exist"
        )
    return topic


def _topic(delta: MetadataDelta, value: Any) -> None:
    configs = delta.configs((ResourceType.TOPIC, value.name))
    said = any(is_tiered_config(*config) for config in configs.items())
    delta.add_topic(value.name, value.topic_id, was_tiered=value.was_tiered or said)


def _remove_topic(delta: MetadataDelta, value: Any) -> None:
    topic = _topic_of(delta, value.topic_id, "RemoveTopicRecord")
    delta.remove_topic(topic)
    delta.removed_topics.add(topic.id)
    delta.drop_configs((ResourceType.TOPIC, topic.name))
    if topic.was_tiered:
        delta.add_removed(topic.id)


def _partition(delta: MetadataDelta, value: Any) -> None:
    topic = _topic_of(delta, value.topic_id, "PartitionRecord")
    image = PartitionImage(
        replicas=tuple(value.replicas),
        isr=tuple(value.isr),
        leader=value.leader,
        leader_epoch=value.leader_epoch,
        partition_epoch=value.partition_epoch,
        directories=tuple(value.directories) or (ZERO_UUID,) * len(value.replicas),
        removing=tuple(value.removing_replicas),
        adding=tuple(value.adding_replicas),
        leader_recovery_state=value.leader_recovery_state,
        elr=tuple(value.eligible_leader_replicas or ()),
        last_known_elr=tuple(value.last_known_elr or ()),
        unclean_epoch=_unclean_epoch_of(value),
    )
    delta.put_partition(topic, value.partition_id, image)


def _unclean_epoch_of(value: Any) -> int:
    """Epoch of the unclean election that a PartitionRecord reports.

    A record of Kafka has only the recovery state. The election was under its leader epoch or an
    earlier one; the later epoch proves less, which is safe.
    """
    if value.leader_recovery_state != RECOVERING:
        return -1
    epoch: int = value.leader_epoch if value.unclean_epoch < 0 else value.unclean_epoch
    return epoch


def _partition_change(delta: MetadataDelta, value: Any) -> None:
    topic = _topic_of(delta, value.topic_id, "PartitionChangeRecord")
    old = topic.partitions.get(value.partition_id)
    if old is None:
        raise BrokenMetadataLogError(
            f"PartitionChangeRecord for {topic.name}-{value.partition_id}, which does not exist"
        )
    new = merge(old, value)
    if new.leader not in (old.leader, NO_LEADER):
        delta.elections += 1
        delta.unclean_elections += new.unclean_epoch == new.leader_epoch
    delta.put_partition(topic, value.partition_id, new)


def merge(old: PartitionImage, change: Any) -> PartitionImage:
    """Apply a PartitionChangeRecord.

    Naming a leader raises the leader epoch, even for the same leader: that makes followers and
    clients fetch the state again.
    """
    leader_changed = change.leader != _LEADER_UNCHANGED

    def either(new: list[int] | None, before: tuple[int, ...]) -> tuple[int, ...]:
        return before if new is None else tuple(new)

    replicas = either(change.replicas, old.replicas)
    recovery = change.leader_recovery_state
    if recovery == _RECOVERY_UNCHANGED:
        recovery = old.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        isr=either(change.isr, old.isr),
        leader=change.leader if leader_changed else old.leader,
        leader_epoch=old.leader_epoch + leader_changed,
        partition_epoch=old.partition_epoch + 1,
        directories=_directories_after(old, replicas, change.directories),
        removing=either(change.removing_replicas, old.removing),
        adding=either(change.adding_replicas, old.adding),
        leader_recovery_state=recovery,
        elr=either(change.eligible_leader_replicas, old.elr),
        last_known_elr=either(change.last_known_elr, old.last_known_elr),
        unclean_epoch=_unclean_epoch_after(old, change, recovery),
    )


def _unclean_epoch_after(old: PartitionImage, change: Any, recovery: int) -> int:
    """Epoch of an unclean election: one that begins a recovery, or elects a leader out of sync.

    Kafka names the recovery state only where it changes. A second unclean election within one
    recovery is visible by its leader only.
    """
    if recovery != RECOVERING:
        return -1
    begins = old.leader_recovery_state != RECOVERING
    elected = change.leader not in (_LEADER_UNCHANGED, NO_LEADER)
    if not begins and not (elected and change.leader not in (*old.isr, *old.elr)):
        return old.unclean_epoch
    return old.leader_epoch + (0 if change.leader == _LEADER_UNCHANGED else 1)


def _directories_after(
    old: PartitionImage, replicas: tuple[int, ...], new: list[bytes] | None
) -> tuple[bytes, ...]:
    if new is not None:
        return tuple(new)
    if replicas == old.replicas:
        return old.directories
    # The replicas changed without new directories: remaining replicas keep theirs.
    known = dict(zip(old.replicas, old.directories, strict=False))
    return tuple(known.get(replica, DIRECTORY_UNASSIGNED) for replica in replicas)


def _clear_elr(delta: MetadataDelta, value: Any) -> None:
    if value.topic_name:
        topic = delta.topic_named(value.topic_name)
        if topic is None:
            raise BrokenMetadataLogError(f"ClearElrRecord for unknown topic {value.topic_name}")
        topics = [topic]
    else:
        topics = list(delta.all_topics())
    for topic in topics:
        for partition_id, old in list(topic.partitions.items()):
            if old.elr or old.last_known_elr:
                cleared = replace(
                    old, elr=(), last_known_elr=(), partition_epoch=old.partition_epoch + 1
                )
                delta.put_partition(_topic_of(delta, topic.id, ""), partition_id, cleared)


def _config(delta: MetadataDelta, value: Any) -> None:
    delta.set_config((value.resource_type, value.resource_name), value.name, value.value)
    if value.resource_type == ResourceType.TOPIC and is_tiered_config(value.name, value.value):
        delta.note_tiered(value.resource_name)


HANDLERS: Final[dict[str, Callable[[MetadataDelta, Any], None]]] = {
    "TopicRecord": _topic,
    "PartitionRecord": _partition,
    "ConfigRecord": _config,
    "PartitionChangeRecord": _partition_change,
    "RemoveTopicRecord": _remove_topic,
    "ClearElrRecord": _clear_elr,
}
