"""Asks other controllers who they are, and the leader how the quorum is.

For the start only: a connection a question, and no answer is an answer, too.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from broker.node.identity_check import Look, SeenReplica
from broker.node.one_request import NO_ANSWER, Conversation
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.quorum.wire.rpc import PARTITION, TOPIC, only_partition
from metadata_topic.raft.messages import Node
from metadata_topic.raft.voters import ReplicaKey
from runtime.executors import Pool

_CONTROLLERS: Final = 2
_DESCRIBE_CLUSTER: Final = 1
"""First version that tells brokers and controllers apart."""
_DESCRIBE_QUORUM: Final = 2
"""First version with directory ids."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one controller has answered.

    Attributes:
        cluster_id: its own; None if it has not answered.
        look: only the leader has one.
        controllers: where it knows others.
    """

    cluster_id: str | None = None
    look: Look | None = None
    controllers: tuple[Node, ...] = field(default=())


class ControllerQuestions:
    """Asks one controller after the other; on the event loop."""

    def __init__(self, node_id: int, pool: Pool, timeout_ms: int) -> None:
        """Take the parts; nothing is opened yet.

        Args:
            node_id: of this node, for the client id.
            pool: looks names up.
            timeout_ms: for a controller's answers in all, its name and the connection included.
        """
        self._client_id = f"identity-check-{node_id}".encode()
        self._pool, self._timeout_s = pool, timeout_ms / 1000

    async def ask(self, node: Node) -> Said:
        """Ask which cluster it belongs to, and what it knows if it leads."""
        said = Said()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                Conversation((node.host, node.port), self._client_id, self._pool) as talk,
            ):
                cluster = await talk.ask(
                    ApiKey.DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER, _cluster_question()
                )
                said = _of_cluster(cluster)
                quorum = await talk.ask(
                    ApiKey.DESCRIBE_QUORUM, _DESCRIBE_QUORUM, _quorum_question()
                )
                look = _look(quorum, f"{node.host}:{node.port}")
                said = Said(said.cluster_id, look, said.controllers)
        except NO_ANSWER:
            pass  # what it has said until then counts
        return said


def _cluster_question() -> Any:
    return codec.request(ApiKey.DESCRIBE_CLUSTER).cls(endpoint_type=_CONTROLLERS)


def _quorum_question() -> Any:
    cls = codec.request(ApiKey.DESCRIBE_QUORUM).cls
    partition = cls.Topics.Partitions(partition_index=PARTITION)
    return cls(topics=[cls.Topics(topic_name=TOPIC, partitions=[partition])])


def _of_cluster(answer: Any) -> Said:
    if answer.error_code:
        return Said()
    known = tuple(Node(one.broker_id, one.host, one.port) for one in answer.brokers)
    return Said(answer.cluster_id, None, known)


def _look(answer: Any, address: str) -> Look | None:
    one = only_partition(answer.topics, "topic_name", "partition_index")
    if answer.error_code or one is None or one.error_code:
        return None
    replicas = [_seen(voter, is_voter=True) for voter in one.current_voters]
    replicas += [_seen(observer, is_voter=False) for observer in one.observers]
    # A leader that votes says of itself that it has fetched now.
    now_ms = max((replica.last_fetch_ms for replica in replicas), default=-1)
    return Look(one.leader_id, address, one.leader_epoch, now_ms, tuple(replicas))


def _seen(one: Any, *, is_voter: bool) -> SeenReplica:
    key = ReplicaKey(one.replica_id, one.replica_directory_id)
    return SeenReplica(key, is_voter, one.last_fetch_timestamp)
