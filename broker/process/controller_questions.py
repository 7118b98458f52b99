"""Asks other controllers for their cluster id, and the leader for its view of the quorum.

For the start only: each question has its own connection, and a missing answer is a result too.
"""

import asyncio
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from broker.node.committed_mark import Comparison, compare
from broker.node.identity_check import LeaderView, SeenReplica
from kafka_client.connection import Connection
from kafka_client.exchange import ConnectionSettings
from kafka_client.requests import ClientError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.quorum.log.fetched import NO_DATA
from metadata_topic.quorum.metadata_loader import CommittedBatch
from metadata_topic.quorum.wire.requests import write_request
from metadata_topic.quorum.wire.responses import UnreadableAnswer, read_answer, records_of
from metadata_topic.quorum.wire.rpc import (
    VERSIONS,
    WireIdentity,
    only_partition,
    quorum_question,
)
from metadata_topic.raft.messages import (
    NOBODY,
    UNKNOWN_HIGH_WATERMARK,
    FetchRequest,
    FetchResponse,
    Node,
)
from metadata_topic.raft.voters import ReplicaKey
from runtime.ports import Ports

_CONTROLLERS: Final = 2
_DESCRIBE_CLUSTER: Final = 1
"""First version that separates brokers and controllers."""
_DESCRIBE_QUORUM: Final = 2
"""First version with directory ids."""
_NOBODYS: Final = ReplicaKey(NOBODY)
"""No replica: its Fetch counts for none."""


@dataclass(frozen=True, slots=True)
class ControllerAnswer:
    """The answer of one controller.

    Attributes:
        cluster_id: Its own; None if it has not answered.
        view: None unless it leads.
        controllers: Addresses of others.
    """

    cluster_id: str | None = None
    view: LeaderView | None = None
    controllers: tuple[Node, ...] = field(default=())


class ControllerQuestions:
    """Questions to single controllers; on the event loop."""

    def __init__(self, node_id: int, ports: Ports, timeout_ms: int) -> None:
        """Take the parts; nothing is opened yet.

        Args:
            node_id: Of this node, for the client id.
            ports: Of the connections.
            timeout_ms: For all answers of a controller, with name look-up and connection.
        """
        self._settings = ConnectionSettings(client_id=f"identity-check-{node_id}")
        self._ports, self._timeout_ms = ports, timeout_ms

    async def ask(self, node: Node) -> ControllerAnswer:
        """Ask for the cluster id, and for the quorum if it leads; no error where it is silent."""
        said = ControllerAnswer()
        connection = Connection((node.host, node.port), self._settings, self._ports)
        ask = partial(connection.request, timeout_ms=self._timeout_ms)
        with closing(connection), suppress(ClientError, TimeoutError):
            async with asyncio.timeout(self._timeout_ms / 1000):
                said = _of_cluster(
                    await ask(
                        ApiKey.DESCRIBE_CLUSTER, _cluster_question(), versions=_DESCRIBE_CLUSTER
                    )
                )
                quorum = await ask(
                    ApiKey.DESCRIBE_QUORUM, quorum_question(), versions=_DESCRIBE_QUORUM
                )
                view = _leader_view(quorum, f"{node.host}:{node.port}")
                said = ControllerAnswer(said.cluster_id, view, said.controllers)
        return said  # without an answer to the second question the first one counts

    async def compare(
        self, leader: Node, epoch: int, batch: CommittedBatch, cluster_id: str
    ) -> Comparison | None:
        """Compare the log of the leader of `epoch` with `batch`; None if it does not answer."""
        request = FetchRequest(
            replica=_NOBODYS,
            epoch=epoch,
            offset=batch.base_offset,
            last_fetched_epoch=batch.epoch,
            high_watermark=UNKNOWN_HIGH_WATERMARK,
            max_wait_ms=0,
            max_bytes=1,
        )
        versions = VERSIONS[ApiKey.FETCH]
        body = write_request(request, versions.last, WireIdentity(cluster_id))
        connection = Connection((leader.host, leader.port), self._settings, self._ports)
        with closing(connection), suppress(ClientError, TimeoutError, UnreadableAnswer):
            async with asyncio.timeout(self._timeout_ms / 1000):
                answer = await connection.request(
                    ApiKey.FETCH, body, versions=versions, timeout_ms=self._timeout_ms
                )
            said = read_answer(request, answer, NO_DATA)
            assert isinstance(said, FetchResponse)
            return compare(batch, said, records_of(answer))
        return None


def _cluster_question() -> Any:
    return codec.request(ApiKey.DESCRIBE_CLUSTER).cls(endpoint_type=_CONTROLLERS)


def _of_cluster(answer: Any) -> ControllerAnswer:
    if answer.error_code:
        return ControllerAnswer()
    known = tuple(Node(one.broker_id, one.host, one.port) for one in answer.brokers)
    return ControllerAnswer(answer.cluster_id, None, known)


def _leader_view(answer: Any, address: str) -> LeaderView | None:
    one = only_partition(answer.topics, "topic_name", "partition_index")
    if answer.error_code or one is None or one.error_code:
        return None
    replicas = [_seen(voter, is_voter=True) for voter in one.current_voters]
    replicas += [_seen(observer, is_voter=False) for observer in one.observers]
    # A leader that votes reports the present time as that of its own last Fetch.
    now_ms = max((replica.last_fetch_ms for replica in replicas), default=-1)
    return LeaderView(one.leader_id, address, one.leader_epoch, now_ms, tuple(replicas))


def _seen(one: Any, *, is_voter: bool) -> SeenReplica:
    key = ReplicaKey(one.replica_id, one.replica_directory_id)
    return SeenReplica(key, is_voter, one.last_fetch_timestamp)
