"""OffsetForLeaderEpoch (23): where a leader epoch ended.

With it a client finds its last common offset with this leader after an unclean election (KIP-320).
"""

from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.handlers.registry import Handler, RequestContext
from broker.replica.manager import ReplicaManager
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response

_Response: Final = response(ApiKey.OFFSET_FOR_LEADER_EPOCH).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions


class OffsetForLeaderEpochHandler:
    """Serves OffsetForLeaderEpoch 2-4."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer one request."""
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


def make(replicas: ReplicaManager) -> Handler:
    """Make the handler of OffsetForLeaderEpoch 2-4."""
    return Handler(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, OffsetForLeaderEpochHandler(replicas).handle
    )
