"""What each record does to the metadata.

One function a record type, looked up by the record's name: a type without a function is an error,
never skipped (see UnknownMetadataRecordError). Records are committed facts, so nothing is refused
here on grounds of policy; a record about a thing that does not exist means that the log is broken.

Source: kafka-names.md and formats.md §10, §13.6; checked against Kafka's own logs and snapshots.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kafka_protocol.types import ZERO_UUID
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage, QuotaEntity, ResourceType
from metadata_topic.image.model import (
    DIRECTORY_UNASSIGNED,
    BrokerImage,
    ControllerImage,
    Endpoint,
    PartitionImage,
    Provenance,
    TopicImage,
)
from metadata_topic.image.records import MetadataRecord, UnknownMetadataRecordError

_LEADER_UNCHANGED = -2
_RECOVERY_UNCHANGED = -1


class BrokenMetadataLogError(Exception):
    """A committed record contradicts the records before it. Fatal."""


def replay(delta: MetadataDelta, record: MetadataRecord) -> None:
    """Apply one record to a delta.

    Raises:
        UnknownMetadataRecordError: no rule for this type.
        BrokenMetadataLogError: it speaks of something that does not exist.
    """
    handler = _HANDLERS.get(record.name)
    if handler is None:
        raise UnknownMetadataRecordError(f"no rule to replay a {record.name}")
    handler(delta, record.value)


def replay_all(
    image: MetadataImage, records: list[MetadataRecord], provenance: Provenance
) -> tuple[MetadataImage, MetadataDelta]:
    """Apply records to an image; a convenience for small batches and tests."""
    delta = MetadataDelta(image)
    for record in records:
        replay(delta, record)
    return delta.image(provenance), delta


def _topic_of(delta: MetadataDelta, topic_id: bytes, what: str) -> TopicImage:
    topic = delta.topic(topic_id)
    if topic is None:
        raise BrokenMetadataLogError(f"{what} for topic id {topic_id.hex()}, which does not exist")
    return topic


def _broker_of(delta: MetadataDelta, broker_id: int, epoch: int, what: str) -> BrokerImage:
    broker = delta.broker(broker_id)
    if broker is None:
        raise BrokenMetadataLogError(f"{what} for broker {broker_id}, which is not registered")
    if broker.epoch != epoch:
        raise BrokenMetadataLogError(
            f"{what} for broker {broker_id} epoch {epoch}, registered is epoch {broker.epoch}"
        )
    return broker


# Topics


def _topic(delta: MetadataDelta, value: Any) -> None:
    delta.add_topic(value.name, value.topic_id)


def _remove_topic(delta: MetadataDelta, value: Any) -> None:
    topic = _topic_of(delta, value.topic_id, "RemoveTopicRecord")
    delta.remove_topic(topic)
    delta.drop_configs((ResourceType.TOPIC, topic.name))


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
    )
    delta.put_partition(topic, value.partition_id, image)


def _partition_change(delta: MetadataDelta, value: Any) -> None:
    topic = _topic_of(delta, value.topic_id, "PartitionChangeRecord")
    old = topic.partitions.get(value.partition_id)
    if old is None:
        raise BrokenMetadataLogError(
            f"PartitionChangeRecord for {topic.name}-{value.partition_id}, which does not exist"
        )
    delta.put_partition(topic, value.partition_id, merge(old, value))


def merge(old: PartitionImage, change: Any) -> PartitionImage:
    """Apply a PartitionChangeRecord.

    Naming a leader raises the leader epoch even if it is the same leader: that is how the
    controller makes followers and clients look again.
    """
    leader_changed = change.leader != _LEADER_UNCHANGED

    def either(new: list[int] | None, before: tuple[int, ...]) -> tuple[int, ...]:
        return before if new is None else tuple(new)

    replicas = either(change.replicas, old.replicas)
    recovery = change.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        isr=either(change.isr, old.isr),
        leader=change.leader if leader_changed else old.leader,
        leader_epoch=old.leader_epoch + leader_changed,
        partition_epoch=old.partition_epoch + 1,
        directories=_directories_after(old, replicas, change.directories),
        removing=either(change.removing_replicas, old.removing),
        adding=either(change.adding_replicas, old.adding),
        leader_recovery_state=(
            old.leader_recovery_state if recovery == _RECOVERY_UNCHANGED else recovery
        ),
        elr=either(change.eligible_leader_replicas, old.elr),
        last_known_elr=either(change.last_known_elr, old.last_known_elr),
    )


def _directories_after(
    old: PartitionImage, replicas: tuple[int, ...], new: list[bytes] | None
) -> tuple[bytes, ...]:
    if new is not None:
        return tuple(new)
    if replicas == old.replicas:
        return old.directories
    # Replicas changed and nothing was said of directories: known ones keep theirs.
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


# Nodes


def _endpoints(value: Any) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in value.end_points)


def _features(value: Any) -> dict[str, tuple[int, int]]:
    return {f.name: (f.min_supported_version, f.max_supported_version) for f in value.features}


def _register_broker(delta: MetadataDelta, value: Any) -> None:
    cordoned = value.cordoned_log_dirs
    delta.put_broker(
        BrokerImage(
            id=value.broker_id,
            epoch=value.broker_epoch,
            incarnation_id=value.incarnation_id,
            endpoints=_endpoints(value),
            features=_features(value),
            rack=value.rack,
            fenced=value.fenced,
            in_controlled_shutdown=value.in_controlled_shutdown,
            log_dirs=tuple(value.log_dirs),
            cordoned_log_dirs=None if cordoned is None else tuple(cordoned),
        )
    )


def _unregister_broker(delta: MetadataDelta, value: Any) -> None:
    _broker_of(delta, value.broker_id, value.broker_epoch, "UnregisterBrokerRecord")
    delta.remove_broker(value.broker_id)


def _fence_broker(delta: MetadataDelta, value: Any) -> None:
    broker = _broker_of(delta, value.id, value.epoch, "FenceBrokerRecord")
    delta.put_broker(replace(broker, fenced=True))


def _unfence_broker(delta: MetadataDelta, value: Any) -> None:
    broker = _broker_of(delta, value.id, value.epoch, "UnfenceBrokerRecord")
    delta.put_broker(replace(broker, fenced=False))


def _broker_change(delta: MetadataDelta, value: Any) -> None:
    what = "BrokerRegistrationChangeRecord"
    broker = _broker_of(delta, value.broker_id, value.broker_epoch, what)
    cordoned = value.cordoned_log_dirs
    delta.put_broker(
        replace(
            broker,
            fenced=broker.fenced if value.fenced == 0 else value.fenced > 0,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown or value.in_controlled_shutdown > 0
            ),
            log_dirs=tuple(value.log_dirs) or broker.log_dirs,
            cordoned_log_dirs=(broker.cordoned_log_dirs if cordoned is None else tuple(cordoned)),
        )
    )


def _register_controller(delta: MetadataDelta, value: Any) -> None:
    delta.put_controller(
        ControllerImage(
            id=value.controller_id,
            incarnation_id=value.incarnation_id,
            endpoints=_endpoints(value),
            features=_features(value),
            zk_migration_ready=value.zk_migration_ready,
        )
    )


# Features, producer ids


def _feature(delta: MetadataDelta, value: Any) -> None:
    delta.set_feature(value.name, value.feature_level)


def _producer_ids(delta: MetadataDelta, value: Any) -> None:
    delta.set_next_producer_id(value.next_producer_id)


# Kept, not interpreted


def _acl(delta: MetadataDelta, value: Any) -> None:
    delta.put("acls", value.id, value)


def _remove_acl(delta: MetadataDelta, value: Any) -> None:
    delta.drop("acls", value.id)


def _scram(delta: MetadataDelta, value: Any) -> None:
    delta.put("scram_credentials", (value.name, value.mechanism), value)


def _remove_scram(delta: MetadataDelta, value: Any) -> None:
    delta.drop("scram_credentials", (value.name, value.mechanism))


def _token(delta: MetadataDelta, value: Any) -> None:
    delta.put("delegation_tokens", value.token_id, value)


def _remove_token(delta: MetadataDelta, value: Any) -> None:
    delta.drop("delegation_tokens", value.token_id)


def quota_entity(value: Any) -> QuotaEntity:
    """The key of a ClientQuotaRecord's entity: its parts in the order of their types."""
    parts = [(part.entity_type, part.entity_name) for part in value.entity]
    return tuple(sorted(parts, key=lambda part: (part[0], part[1] is not None, part[1] or "")))


def _quota(delta: MetadataDelta, value: Any) -> None:
    delta.set_quota(quota_entity(value), value.key, None if value.remove else value.value)


def _nothing(delta: MetadataDelta, value: Any) -> None:
    """NoOp moves the offset only; ZkMigrationState means nothing since Kafka 4.0."""


_HANDLERS: dict[str, Callable[[MetadataDelta, Any], None]] = {
    "RegisterBrokerRecord": _register_broker,
    "UnregisterBrokerRecord": _unregister_broker,
    "TopicRecord": _topic,
    "PartitionRecord": _partition,
    "ConfigRecord": _config,
    "PartitionChangeRecord": _partition_change,
    "FenceBrokerRecord": _fence_broker,
    "UnfenceBrokerRecord": _unfence_broker,
    "RemoveTopicRecord": _remove_topic,
    "DelegationTokenRecord": _token,
    "UserScramCredentialRecord": _scram,
    "FeatureLevelRecord": _feature,
    "ClientQuotaRecord": _quota,
    "ProducerIdsRecord": _producer_ids,
    "BrokerRegistrationChangeRecord": _broker_change,
    "AccessControlEntryRecord": _acl,
    "RemoveAccessControlEntryRecord": _remove_acl,
    "NoOpRecord": _nothing,
    "ZkMigrationStateRecord": _nothing,
    "RemoveUserScramCredentialRecord": _remove_scram,
    "RemoveDelegationTokenRecord": _remove_token,
    "RegisterControllerRecord": _register_controller,
    "ClearElrRecord": _clear_elr,
}
