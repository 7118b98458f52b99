"""Effect of each record on the metadata.

One function per record type, found by the record's name. A type without a function is an error,
never skipped (see UnknownMetadataRecordError). Records are committed facts, so no policy is checked
here; a record about a missing thing means that the log is broken.

Source: the schemas in `kafka_protocol/wire/messages/cluster_metadata.py`; checked against Kafka's
own logs and snapshots.
"""

from collections.abc import Callable
from typing import Any, Final

from metadata_topic.image import replay_nodes, replay_topics
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage, QuotaEntity
from metadata_topic.image.model import BrokenMetadataLogError, Provenance
from metadata_topic.image.records import MetadataRecord, UnknownMetadataRecordError

__all__ = ["BrokenMetadataLogError", "replay", "replay_all"]


def replay(delta: MetadataDelta, record: MetadataRecord) -> None:
    """Apply one record to a delta.

    Raises:
        UnknownMetadataRecordError: No rule for this type.
        BrokenMetadataLogError: The record names something that does not exist.
    """
    handler = _HANDLERS.get(record.name)
    if handler is None:
        raise UnknownMetadataRecordError(f"no rule to replay a {record.name}")
    handler(delta, record.value)


def replay_all(
    image: MetadataImage, records: list[MetadataRecord], provenance: Provenance
) -> tuple[MetadataImage, MetadataDelta]:
    """Apply records to an image at once; for small batches and tests."""
    delta = MetadataDelta(image)
    for record in records:
        replay(delta, record)
    return delta.image(provenance), delta


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
    """Key of a ClientQuotaRecord's entity: its parts, sorted by type."""
    parts = [(part.entity_type, part.entity_name) for part in value.entity]
    return tuple(sorted(parts, key=lambda part: (part[0], part[1] is not None, part[1] or "")))


def _quota(delta: MetadataDelta, value: Any) -> None:
    delta.set_quota(quota_entity(value), value.key, None if value.remove else value.value)


def _no_op(delta: MetadataDelta, value: Any) -> None:
    """Move the offset; our own may list removed tiered topics in fields that Kafka skips."""
    for topic_id in value.removed_tiered_topics:
        delta.add_removed(topic_id)
    for topic_id in value.emptied_tiered_topics:
        delta.drop_removed(topic_id)


def _nothing(delta: MetadataDelta, value: Any) -> None:
    """ZkMigrationState has no meaning since Kafka 4.0."""


_HANDLERS: Final[dict[str, Callable[[MetadataDelta, Any], None]]] = {
    **replay_topics.HANDLERS,
    **replay_nodes.HANDLERS,
    "DelegationTokenRecord": _token,
    "UserScramCredentialRecord": _scram,
    "FeatureLevelRecord": _feature,
    "ClientQuotaRecord": _quota,
    "ProducerIdsRecord": _producer_ids,
    "AccessControlEntryRecord": _acl,
    "RemoveAccessControlEntryRecord": _remove_acl,
    "NoOpRecord": _no_op,
    "ZkMigrationStateRecord": _nothing,
    "RemoveUserScramCredentialRecord": _remove_scram,
    "RemoveDelegationTokenRecord": _remove_token,
}
