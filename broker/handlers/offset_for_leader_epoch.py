"""OffsetForLeaderEpoch (23): the end offset of a leader epoch.

With it a client finds its last common offset with this leader after an unclean election (KIP-320).

Versions:

* 2: the lowest that Kafka 4 serves; the leader epoch that the client knows (KIP-320).
* 3: the id of the requesting replica (KIP-392).
* 4: flexible (KIP-482).
"""

from collections.abc import Sequence
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.handlers.holding import Holding
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

_Response: Final = response(ApiKey.OFFSET_FOR_LEADER_EPOCH).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions


class OffsetForLeaderEpochHandler(DecodedHandler):
    """Serves OffsetForLeaderEpoch 2-4."""

    api_key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    versions = Versions(2, 4)

    def __init__(self, replicas: ReplicaManager, holding: Holding) -> None:
        self._replicas, self._holding = replicas, holding

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer one request; waits, within `Holding`, for logs that are not yet sound."""
        unsound = self._unsound(request) if self._holding.is_due(context.peer) else []
        return self._held(context, request, unsound) if unsound else self._answer(request)

    def _unsound(self, request: Any) -> list[Partition]:
        found = (
            self._replicas.partitions.get(TopicPartition(topic.topic, asked.partition))
            for topic in request.topics
            for asked in topic.partitions
        )
        return [each for each in found if each is not None and each.is_leader and not each.is_sound]

    async def _held(
        self, context: RequestContext, request: Any, unsound: Sequence[Partition]
    ) -> Any:
        await self._holding.once(context.peer, unsound)
        return self._answer(request)

    def _answer(self, request: Any) -> Any:
        return _Response(
            topics=[
                _Topic(
                    topic=topic.topic,
                    partitions=[self._end_of(topic.topic, asked) for asked in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _end_of(self, topic: str, asked: Any) -> Any:
        try:
            partition = self._replicas.require(topic, asked.partition)
            partition.check_leader(asked.current_leader_epoch)
            partition.check_log_start_known()
            partition.check_chain_known()
            partition.check_sound()
            log = partition.log
            end = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
        except Exception as error:  # noqa: BLE001 - becomes this partition's answer
            code = int(code_of(error, "offset for leader epoch"))
            return _Partition(error_code=code, partition=asked.partition)
        if end is None:
            return _Partition(partition=asked.partition)
        return _Partition(
            partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset
        )


def make(parts: HandlerParts) -> OffsetForLeaderEpochHandler:
    """Make the handler of OffsetForLeaderEpoch."""
    return OffsetForLeaderEpochHandler(parts.replicas, parts.holding)
