"""A broker lost log directories while it runs: others lead what lived in them.

Source: KIP-858; Kafka's handleDirectoriesOffline.
"""

from collections.abc import Sequence

from metadata_topic.controller.leadership import records_for_leaving
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage
from metadata_topic.image.records import MetadataRecord, make, partition_record_version
from runtime.work import Steps


def newly_offline(
    image: MetadataImage, broker: BrokerImage, directory_ids: Sequence[bytes]
) -> tuple[bytes, ...]:
    """Which directories are registered as working and named here as offline."""
    if partition_record_version(image.metadata_version) < 1:
        return ()
    return tuple(one for one in broker.log_dirs if one in directory_ids)


def offline_records(
    image: MetadataImage, broker: BrokerImage, offline: Sequence[bytes], *, has_left: bool
) -> Steps[tuple[MetadataRecord, ...]]:
    """Take directories out of a registration, in steps, and the broker out of what lived in them.

    Args:
        image: the cluster now.
        broker: whose directories they are.
        offline: at least one, see `newly_offline`.
        has_left: records before these take the broker out of everything.
    """
    left: list[MetadataRecord] = []
    if not has_left:
        left = yield from records_for_leaving(image, broker.id, frozenset(offline))
    record = make(
        "BrokerRegistrationChangeRecord",
        2,
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        log_dirs=[one for one in broker.log_dirs if one not in offline],
    )
    return (*left, record)
