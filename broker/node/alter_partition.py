"""AlterPartition (56) of a broker: ISRs that its leaders propose.

Source: KIP-497; KIP-903 for the broker epochs of version 3.
"""

from collections.abc import Mapping
from typing import Any, Final

from broker.node.active_controller import ActiveController
from broker.replica.isr import AskedIsr
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.image.model import RECOVERED, RECOVERING

_VERSION: Final = 3
_TIMEOUT_MS: Final = 10_000


async def alter_partitions(
    active: ActiveController,
    broker_id: int,
    broker_epoch: int,
    asked: Mapping[ReplicaId, AskedIsr],
) -> Mapping[ReplicaId, ErrorCode]:
    """Ask the active controller for ISRs.

    Returns:
        For each partition of the answer: NONE if its ISR is committed, else why it is refused.

    Raises:
        NotControllerError: Nothing was sent, or the controller carries nothing out.
        KafkaError: There is no answer: it may be carried out.
    """
    answer = await active.ask(
        ApiKey.ALTER_PARTITION,
        _VERSION,
        question(broker_id, broker_epoch, asked),
        timeout_ms=_TIMEOUT_MS,
    )
    code = ErrorCode.of(answer.error_code)
    if code == ErrorCode.NOT_CONTROLLER:
        raise NotControllerError("the controller that was asked leads no more")
    if code != ErrorCode.NONE:
        raise ApiError(code, f"the controller takes no AlterPartition: {code.name}")
    return {
        ReplicaId(topic.topic_id, part.partition_index): ErrorCode.of(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    }


def question(broker_id: int, broker_epoch: int, asked: Mapping[ReplicaId, AskedIsr]) -> Any:
    """Encode the proposals as one request."""
    cls = request(ApiKey.ALTER_PARTITION).cls
    topics: dict[bytes, list[Any]] = {}
    for replica, (leader_epoch, proposal) in asked.items():
        topics.setdefault(replica.topic_id, []).append(
            cls.Topics.Partitions(
                partition_index=replica.partition,
                leader_epoch=leader_epoch,
                new_isr_with_epochs=[
                    cls.Topics.Partitions.NewIsrWithEpochs(broker_id=one, broker_epoch=epoch)
                    for one, epoch in proposal.isr
                ],
                leader_recovery_state=RECOVERED if proposal.is_recovered else RECOVERING,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return cls(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=[cls.Topics(topic_id=one, partitions=parts) for one, parts in topics.items()],
    )
