"""The quorum's requests and responses on the wire: APIs, versions, and the log's identity.

`requests` and `responses` translate between message structs and the core's messages, in both
directions, since a replica is server and client. No module here opens a socket.

Source: KIP-595, KIP-630, KIP-853 (directory ids, endpoints), KIP-996 (pre-vote), KIP-1166 (the
asker's high watermark).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka_protocol.types import CLUSTER_METADATA_TOPIC
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from metadata_topic.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    LogRequest,
    Node,
    Standing,
    VoteRequest,
)

TOPIC: Final = CLUSTER_METADATA_TOPIC
TOPIC_ID: Final = bytes(15) + b"\x01"
PARTITION: Final = 0

VERSIONS: Final[dict[ApiKey, Versions]] = {
    ApiKey.VOTE: Versions(0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: Versions(0, 1),
    ApiKey.END_QUORUM_EPOCH: Versions(0, 1),
    ApiKey.FETCH: Versions(13, 18),
    ApiKey.FETCH_SNAPSHOT: Versions(0, 1),
}
"""Versions that a replica sends, both ends inclusive; Fetch has topic ids from 13 on."""

PRE_VOTE: Final = 2
"""First version of Vote with a pre-vote (KIP-996)."""
VOTER_KEYS: Final = 1
"""First version of Vote, BeginQuorumEpoch and EndQuorumEpoch with directory ids (KIP-853)."""
FETCH_ENDPOINTS: Final = 17
"""First version of Fetch whose answer has the address of the quorum's leader (KIP-853)."""

_API_OF: Final[dict[type, ApiKey]] = {
    VoteRequest: ApiKey.VOTE,
    BeginQuorumEpochRequest: ApiKey.BEGIN_QUORUM_EPOCH,
    EndQuorumEpochRequest: ApiKey.END_QUORUM_EPOCH,
    FetchRequest: ApiKey.FETCH,
    FetchSnapshotRequest: ApiKey.FETCH_SNAPSHOT,
}
_HOST_CHARS_MAX: Final = 255
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class WireIdentity:
    """Identity of the quorum in its messages.

    Attributes:
        cluster_id: Of `meta.properties`.
        listener_name: Of the controllers' listener: the first of `controller.listener.names`.
    """

    cluster_id: str
    listener_name: str = "CONTROLLER"


def api_of(request: LogRequest) -> ApiKey:
    """API key of a request."""
    return _API_OF[type(request)]


def only_partition(topics: Sequence[Any], topic: str, partition: str) -> Any | None:
    """Return the struct of the metadata log's partition if the message has exactly that one.

    Args:
        topics: Of a request or an answer. Any: the codec makes their classes at run time.
        topic: Attribute with the topic's name or id.
        partition: Attribute with the partition's number.
    """
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    expected = TOPIC_ID if topic == "topic_id" else TOPIC
    found = topics[0].partitions[0]
    if getattr(topics[0], topic) != expected or getattr(found, partition) != PARTITION:
        return None
    return found


def quorum_question() -> Any:
    """Make a DescribeQuorum request, for any version."""
    cls = codec.request(ApiKey.DESCRIBE_QUORUM).cls
    partition = cls.Topics.Partitions(partition_index=PARTITION)
    return cls(topics=[cls.Topics(topic_name=TOPIC, partitions=[partition])])


def usable_node(node_id: int, host: str, port: int) -> Node | None:
    """Make a node of an address from the wire; None if the address is invalid."""
    if not 0 < len(host) <= _HOST_CHARS_MAX or not 0 < port <= _PORT_MAX:
        return None
    return Node(node_id, host, port)


def leader_of(endpoints: Iterable[Any], leader_id: int) -> Node | None:
    """Find the address of `leader_id` in the NodeEndpoints of an answer."""
    for one in endpoints:
        if one.node_id == leader_id and leader_id >= 0:
            return usable_node(leader_id, one.host, one.port)
    return None


def node_endpoints(cls: Any, standing: Standing) -> list[Any]:
    """Make the NodeEndpoints of an answer: the leader, if its address is known."""
    leader = standing.leader
    if leader is None:
        return []
    return [cls(node_id=leader.id, host=leader.host, port=leader.port)]
