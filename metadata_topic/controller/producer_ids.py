"""Allocation of producer ids in blocks: a broker asks the controller once per 1,000 ids."""

from dataclasses import dataclass
from typing import Final

from kafka_protocol.errors import ErrorCode
from local_log.producers.state import GIVEN_ID_MAX
from metadata_topic.controller.broker_sessions import check_broker_epoch
from metadata_topic.controller.errors import ControllerError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make

BLOCK_SIZE: Final = 1000
_INT64_MAX: Final = 2**63 - 1


class ProducerIdsExhaustedError(ControllerError):
    """All 2^63 producer ids are allocated."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Ids from `first_id` to `end_id` (exclusive), for one broker, never allocated again."""

    first_id: int
    size: int = BLOCK_SIZE

    @property
    def end_id(self) -> int:
        """First id after the block."""
        return self.first_id + self.size


def allocate_producer_ids(
    image: MetadataImage, *, broker_id: int, broker_epoch: int, used: int = -1
) -> ControllerResult[ProducerIdBlock]:
    """Allocate the next block to a broker; ids it does not use are lost when it stops.

    Args:
        image: The cluster now.
        broker_id: The broker that asks.
        broker_epoch: Of the incarnation that asks.
        used: Highest id in the broker's logs. The block begins above it, because the metadata log
            may be an old copy: records under an id allocated twice would be dropped as duplicates.
            A value above `GIVEN_ID_MAX` is ignored: no controller allocated it, and ids above it
            would exhaust the int64.

    Raises:
        StaleBrokerEpochError: The broker is not registered under this epoch.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    first_id = image.next_producer_id
    if first_id <= used <= GIVEN_ID_MAX:
        first_id = used + BLOCK_SIZE  # above the block that holds `used`: clients may have the rest
    block = ProducerIdBlock(first_id)
    if block.end_id > _INT64_MAX:
        raise ProducerIdsExhaustedError(
            "Exhausted all producerIds as the next block's end is too large"
        )
    record = make(
        "ProducerIdsRecord",
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        next_producer_id=block.end_id,
    )
    return ControllerResult((record,), block)
