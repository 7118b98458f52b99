"""What the first leader of an empty metadata log writes."""

from collections.abc import Sequence
from typing import Final

from metadata_topic.image.image import ELR_VERSION, METADATA_VERSION, ResourceType
from metadata_topic.image.records import TRANSACTION_LEVEL, MetadataRecord, make

_TRANSACTION_NAME: Final = "Bootstrap records"


def activation_records(
    bootstrap: Sequence[MetadataRecord], *, min_insync_replicas: int
) -> tuple[MetadataRecord, ...]:
    """Wrap the records of `bootstrap.checkpoint` as Kafka does.

    Args:
        bootstrap: features first, then credentials; as the format step wrote them.
        min_insync_replicas: the broker's `min.insync.replicas`; written as the cluster-wide
            default if eligible leader replicas are finalised, because they depend on it.

    Returns:
        The records of one batch.
    """
    levels = {r.value.name: r.value.feature_level for r in bootstrap if _is_feature(r)}
    records = list(bootstrap)
    if levels.get(ELR_VERSION, 0) > 0:
        records.append(
            make(
                "ConfigRecord",
                resource_type=int(ResourceType.BROKER),
                resource_name="",
                name="min.insync.replicas",
                value=str(min_insync_replicas),
            )
        )
    if levels.get(METADATA_VERSION, 0) < TRANSACTION_LEVEL:
        return tuple(records)
    begin = make("BeginTransactionRecord", name=_TRANSACTION_NAME)
    return (begin, *records, make("EndTransactionRecord"))


def _is_feature(record: MetadataRecord) -> bool:
    return record.name == "FeatureLevelRecord"
