"""First records of a new controller, before it takes other decisions.

A metadata transaction that is still open was begun by a controller that lost its epoch. Its records
have had no effect, and must have none: it is aborted. On the first start of a cluster no record
exists: the records of the format step are written then.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from metadata_topic.controller.brokers import Registration, register_controller
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import (
    ELR_VERSION,
    EMPTY_IMAGE,
    METADATA_VERSION,
    MetadataImage,
    ResourceType,
)
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import (
    CONTROLLER_REGISTRATION_LEVEL,
    TRANSACTION_LEVEL,
    MetadataRecord,
    make,
)
from metadata_topic.quorum.active.decisions import Decide
from metadata_topic.quorum.log.decision_batches import BatchPlace, abort_batch

_TRANSACTION_NAME: Final = "Bootstrap records"


def activation_records(
    bootstrap: Sequence[MetadataRecord], *, min_insync_replicas: int
) -> tuple[MetadataRecord, ...]:
    """Wrap the records of `bootstrap.checkpoint` as Kafka does.

    Args:
        bootstrap: Features first, then credentials, as the format step wrote them.
        min_insync_replicas: The broker's `min.insync.replicas`. It becomes the cluster-wide default
            if eligible leader replicas are finalised, because ELR depends on it.

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


class Beginning(NamedTuple):
    """Start of a term.

    Attributes:
        image: Image for the first decision; it ends at the log's end.
        data: A batch to append first; None if no transaction is open.
    """

    image: MetadataImage
    data: bytearray | None


def begin_term(image: MetadataImage, place: BatchPlace) -> Beginning:
    """Abort the transaction that the previous controller left open, if any.

    Args:
        image: The newest one, with all records that count.
        place: Of the next batch; all records before it are applied.
    """
    end_offset = place.base_offset
    if image.provenance.end_offset == end_offset:
        return Beginning(image, None)
    # An image ends at a batch outside of a transaction: so this log ends inside one.
    _, data = abort_batch(place)
    provenance = Provenance(end_offset, place.epoch, place.timestamp_ms)
    return Beginning(replace(image, provenance=provenance), data)


def is_blank(image: MetadataImage) -> bool:
    """True if no record ever took effect."""
    return replace(image, provenance=EMPTY_IMAGE.provenance) == EMPTY_IMAGE


def first_decisions(
    bootstrap: Sequence[MetadataRecord],
    *,
    min_insync_replicas: int,
    registration: Registration | None,
) -> tuple[Decide[None], ...]:
    """Decisions that a new controller takes by itself, before any requested one."""

    def write_bootstrap(image: MetadataImage) -> ControllerResult[None]:
        if not bootstrap or not is_blank(image):
            return ControllerResult((), None)
        records = activation_records(bootstrap, min_insync_replicas=min_insync_replicas)
        return ControllerResult(records, None)

    def register(image: MetadataImage) -> ControllerResult[None]:
        if registration is None or image.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
            return ControllerResult((), None)
        return register_controller(image, registration)

    return write_bootstrap, register
