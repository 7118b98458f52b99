"""From an image to the records that make it again.

The order is Kafka's: features first (a reader needs metadata.version to validate the rest), nodes,
topics, configs, quotas, producer ids, security. A generator, so that a writer can pause between
records; the image is immutable.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from kafka_protocol.wire.codec import message
from metadata_topic.image.image import METADATA_VERSION, MetadataImage, is_tiered_config
from metadata_topic.image.model import BrokerImage, ControllerImage, PartitionImage, TopicImage
from metadata_topic.image.records import (
    MetadataRecord,
    make,
    partition_record_version,
    register_broker_version,
)

_IDS_PER_RECORD: Final = 50
"""Ids per record, so that a step of one record costs `RECORD_WORK` at most."""


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield the records of a snapshot; replayed on the empty image they make an equal image."""
    yield from _features(image)
    for broker in image.brokers.values():
        yield broker_record(broker, image.metadata_version)
    for controller in image.controllers.values():
        yield controller_record(controller)
    version = partition_record_version(image.metadata_version)
    for topic in image.topics_by_id.values():
        # Written only if no config shows it, so that most snapshots equal Kafka's byte for byte.
        said = any(is_tiered_config(*config) for config in image.topic_config(topic.name).items())
        unsaid = topic.was_tiered and not said
        yield make("TopicRecord", name=topic.name, topic_id=topic.id, was_tiered=unsaid)
        for partition_id, partition in topic.partitions.items():
            yield partition_record(topic, partition_id, partition, version)
    for (kind, resource), configs in image.configs.items():
        for name, value in configs.items():
            yield make(
                "ConfigRecord", resource_type=kind, resource_name=resource, name=name, value=value
            )
    yield from _quotas(image)
    if image.next_producer_id > 0:
        yield make("ProducerIdsRecord", broker_id=-1, next_producer_id=image.next_producer_id)
    for acl in image.acls.values():
        yield MetadataRecord("AccessControlEntryRecord", 0, acl)
    for credential in image.scram_credentials.values():
        yield MetadataRecord("UserScramCredentialRecord", 0, credential)
    for token in image.delegation_tokens.values():
        yield MetadataRecord("DelegationTokenRecord", 0, token)
    yield from removed_topics_records(image.removed_tiered_topics)


def removed_topics_records(
    removed: Iterable[bytes] = (), emptied: Iterable[bytes] = ()
) -> Iterator[MetadataRecord]:
    """NoOpRecords that change the list of removed tiered topics.

    Args:
        removed: Ids that come onto the list.
        emptied: Ids that leave it.
    """
    for some in _slices(removed):
        yield make("NoOpRecord", removed_tiered_topics=some)
    for some in _slices(emptied):
        yield make("NoOpRecord", emptied_tiered_topics=some)


def _slices(ids: Iterable[bytes]) -> Iterator[list[bytes]]:
    remaining = iter(ids)
    while some := list(islice(remaining, _IDS_PER_RECORD)):
        yield some


def _features(image: MetadataImage) -> Iterator[MetadataRecord]:
    others = sorted(name for name in image.features if name != METADATA_VERSION)
    for name in (METADATA_VERSION, *others):
        if name in image.features:
            yield make("FeatureLevelRecord", name=name, feature_level=image.features[name])


def _nodes_lists(name: str, node: BrokerImage | ControllerImage) -> dict[str, list[Any]]:
    cls = message(name).cls
    return {
        "end_points": [
            cls.EndPoints(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in node.endpoints
        ],
        "features": [
            cls.Features(name=feature, min_supported_version=low, max_supported_version=high)
            for feature, (low, high) in node.features.items()
        ],
    }


def broker_record(broker: BrokerImage, metadata_version: int) -> MetadataRecord:
    """RegisterBrokerRecord with the whole state of a broker."""
    cordoned, store = broker.cordoned_log_dirs, broker.remote_store
    absent = message("RegisterBrokerRecord").cls.AbsentDirectories
    return make(
        "RegisterBrokerRecord",
        register_broker_version(metadata_version),
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        **_nodes_lists("RegisterBrokerRecord", broker),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
        directories_assigned_from=broker.directories_assigned_from,
        absent_directories=[
            absent(id=directory_id, last_incarnation=incarnation)
            for directory_id, incarnation in broker.absent_directories
        ],
        remote_store_class=None if store is None else store.class_name,
        remote_store_place=None if store is None else store.place_hash,
    )


def controller_record(controller: ControllerImage) -> MetadataRecord:
    """RegisterControllerRecord with the whole state of a controller."""
    return make(
        "RegisterControllerRecord",
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        **_nodes_lists("RegisterControllerRecord", controller),
    )


def partition_record(
    topic: TopicImage, partition_id: int, partition: PartitionImage, version: int
) -> MetadataRecord:
    """PartitionRecord with the whole state of a partition."""
    # Readers take the leader epoch if the field is absent: a partition of Kafka keeps its record.
    is_said = partition.unclean_epoch != partition.leader_epoch
    return make(
        "PartitionRecord",
        version,
        partition_id=partition_id,
        topic_id=topic.id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        # Null, not empty: Kafka writes null.
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
        unclean_epoch=partition.unclean_epoch if is_said else -1,
    )


def _quotas(image: MetadataImage) -> Iterator[MetadataRecord]:
    part = message("ClientQuotaRecord").cls.Entity
    for entity, quotas in image.client_quotas.items():
        for key, value in quotas.items():
            yield make(
                "ClientQuotaRecord",
                entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
                key=key,
                value=value,
            )
