"""Handing out producer ids in blocks, so that a broker asks the controller once per thousand."""

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
    """All of 2^63 producer ids were handed out."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Ids `first_id` to `end_id` (exclusive) belong to one broker and are never given again."""

    first_id: int
    size: int = BLOCK_SIZE

    @property
    def end_id(self) -> int:
        """First id after the block (exclusive end)."""
        return self.first_id + self.size


def allocate_producer_ids(
    image: MetadataImage, *, broker_id: int, broker_epoch: int, used: int = -1
) -> ControllerResult[ProducerIdBlock]:
    """Give the next block to a broker. What it does not use before it stops is lost, as in Kafka.

    Args:
        image: the cluster now.
        broker_id: who asks.
        broker_epoch: in which incarnation.
        used: the highest id that the broker's logs know, one above `GIVEN_ID_MAX` counts not: it
            is none of ours, and would use up the int64. The metadata may be of an earlier time:
            the records of an id that is given twice would be taken for duplicates, and dropped.

    Raises:
        StaleBrokerEpochError: not this incarnation of this broker.
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
