"""What a new controller owes the log before it decides anything for others.

A metadata transaction that is still open was begun by a controller that lost its epoch before the
end; its records never counted, and are never to count. On the first start of a cluster nothing
counted at all: the records of the format step are written then.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from metadata_topic.controller.bootstrap import activation_records
from metadata_topic.controller.brokers import Registration, register_controller
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import CONTROLLER_REGISTRATION_LEVEL, MetadataRecord
from metadata_topic.quorum.active.decisions import Decide
from metadata_topic.quorum.log.decision_batches import BatchPlace, abort_batch


class Beginning(NamedTuple):
    """Where a term begins.

    Attributes:
        image: what the first decision is taken on; ends where the next record goes.
        data: a batch to append first; None if there is nothing to abort.
    """

    image: MetadataImage
    data: bytearray | None


def begin_term(image: MetadataImage, place: BatchPlace) -> Beginning:
    """End what the controller before left open.

    Args:
        image: the newest one, with everything applied that counts.
        place: where the next batch goes; everything before it is applied.
    """
    end_offset = place.base_offset
    if image.provenance.end_offset == end_offset:
        return Beginning(image, None)
    # An image ends where a batch outside of a transaction ends: this log ends inside of one.
    _, data = abort_batch(place)
    provenance = Provenance(end_offset, place.epoch, place.timestamp_ms)
    return Beginning(replace(image, provenance=provenance), data)


def is_blank(image: MetadataImage) -> bool:
    """Whether no record ever counted."""
    return replace(image, provenance=EMPTY_IMAGE.provenance) == EMPTY_IMAGE


def first_decisions(
    bootstrap: Sequence[MetadataRecord],
    *,
    min_insync_replicas: int,
    registration: Registration | None,
) -> tuple[Decide[None], ...]:
    """The decisions that a new controller takes by itself, before those it is asked for."""

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
