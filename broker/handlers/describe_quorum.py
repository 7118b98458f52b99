"""DescribeQuorum (55): leader of the metadata log, and the log ends of its replicas.

Versions:

* 0: leader, epoch, high watermark, voters and observers with their log ends (KIP-595); flexible.
* 1: when each replica last fetched, and was last caught up (KIP-836).
* 2: error texts, directory ids, and the controllers' endpoints (KIP-853).

Only the leader has the state of the replicas. Others answer NOT_LEADER_OR_FOLLOWER without details,
as in Kafka. A broker with the only controller in its process answers for it.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.view import QuorumView, ReplicaProgress
from metadata_topic.quorum.wire.rpc import PARTITION, TOPIC, only_partition

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = response(ApiKey.DESCRIBE_QUORUM).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions
_Node: Final = _Response.Nodes

_TEXTS: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "For requests intended only for the leader, this error "
    "indicates that the broker is not the current leader. For requests intended for any replica, "
    "this error indicates that the broker is not a replica of the topic partition.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}
"""Kafka's texts, which its tools print."""


class DescribeQuorumHandler(DecodedHandler):
    """Serves DescribeQuorum 0-2."""

    api_key = ApiKey.DESCRIBE_QUORUM
    versions = Versions(0, 2)

    def __init__(self, describe: Callable[[], QuorumView]) -> None:
        self._describe = describe

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Describe the quorum if this node leads it."""
        if only_partition(request.topics, "topic_name", "partition_index") is None:
            return _refused(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        view = self._describe()
        if not view.is_leader:
            return _refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return _described(view)

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer that no leader can be reached."""
        del context, error
        return _refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _refused(request: Any, error: ErrorCode) -> Any:
    topics = [
        _Topic(
            topic_name=topic.topic_name,
            partitions=[
                _Partition(
                    partition_index=one.partition_index,
                    error_code=int(error),
                    error_message=_TEXTS[error],
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return _Response(error_message="", topics=topics)


def _described(view: QuorumView) -> Any:
    partition = _Partition(
        partition_index=PARTITION,
        error_message="",
        leader_id=view.leader_id,
        leader_epoch=view.epoch,
        high_watermark=view.high_watermark,
        current_voters=_replicas(_Partition.CurrentVoters, view.voters),
        observers=_replicas(_Partition.Observers, view.observers),
    )
    return _Response(
        error_message="",
        topics=[_Topic(topic_name=TOPIC, partitions=[partition])],
        nodes=[
            _Node(
                node_id=node.id,
                listeners=[
                    _Node.Listeners(name=one.name, host=one.host, port=one.port)
                    for one in node.endpoints
                ],
            )
            for node in view.nodes
        ],
    )


def _replicas(cls: Any, replicas: Iterable[ReplicaProgress]) -> list[Any]:
    return [
        cls(
            replica_id=one.key.id,
            replica_directory_id=one.key.directory_id,
            log_end_offset=one.log_end_offset,
            last_fetch_timestamp=one.last_fetch_ms,
            last_caught_up_timestamp=one.last_caught_up_ms,
        )
        for one in replicas
    ]


def make(parts: "HandlerParts") -> DescribeQuorumHandler:
    """Make the handler of DescribeQuorum."""
    return DescribeQuorumHandler(parts.node.describe)
