"""RaiseLeaderEpochs (32001): raises leader epochs above those that a broker found in use.

DIFFERS: Kafka has no such request; see `metadata_topic.controller.leader_epochs`.
"""

from functools import partial
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.leader_epochs import UsedEpoch, raise_leader_epochs

_Response: Final = response(ApiKey.RAISE_LEADER_EPOCHS).cls
_Partition: Final = _Response.Partitions


class RaiseLeaderEpochsHandler(DecodedHandler):
    """Answers RaiseLeaderEpochs on a controllers' listener."""

    api_key = ApiKey.RAISE_LEADER_EPOCHS
    versions = Versions(0, 0)

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Raise the epochs in one decision; a refused partition gets its own error."""
        decide = partial(
            raise_leader_epochs.steps,
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            found={
                ReplicaId(one.topic_id, one.partition_index): UsedEpoch(
                    one.leader_epoch, one.used_epoch
                )
                for one in request.partitions
            },
        )
        try:
            refused: dict[ReplicaId, KafkaError] = await self._submit(decide)
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _Response(error_code=int(code_of(error, "raise leader epochs")))
        return _Response(
            partitions=[
                _Partition(
                    topic_id=one.topic_id,
                    partition_index=one.partition,
                    error_code=int(error.code),
                    error_message=str(error),
                )
                for one, error in refused.items()
            ]
        )
