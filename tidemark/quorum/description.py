"""A quorum as its leader describes it. Knows neither sockets nor how it is printed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_protocol.errors import TidemarkError


class QuorumError(TidemarkError):
    """The quorum cannot be described; the text says why."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """How far one replica is, by what the leader saw.

    Attributes:
        directory_id: zeros if it has none.
        log_end_offset: first offset that it has not (exclusive end); -1 unknown.
        last_fetch_ms: wall clock of its last Fetch; -1 never.
        last_caught_up_ms: wall clock when it last had all that the leader had; -1 never.
    """

    id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a controller listens."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The answer of a leader.

    Attributes:
        high_watermark: first offset that is not committed (exclusive end); -1 unknown.
        voters: in the leader's order, it is among them.
        observers: replicas without a vote that fetched lately.
        endpoints: of controllers, by id; some are not known.
    """

    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    endpoints: Mapping[int, tuple[Endpoint, ...]]

    @property
    def leader(self) -> ReplicaState:
        """The leader's own state.

        Raises:
            QuorumError: it is no voter, as while it hands over after its removal.
        """
        for voter in self.voters:
            if voter.id == self.leader_id:
                return voter
        raise QuorumError(
            f"node {self.leader_id} leads epoch {self.leader_epoch} without being a voter, so "
            "its log end is unknown; ask again when another node leads"
        )


def described(partition: Any, nodes: Iterable[Any], cluster_id: str) -> QuorumDescription:
    """Read the answer of a leader.

    Args:
        partition: the one partition of a DescribeQuorum answer, without an error.
        nodes: of the same answer.
        cluster_id: from another answer.
    """
    return QuorumDescription(
        cluster_id=cluster_id,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=_states(partition.current_voters),
        observers=_states(partition.observers),
        endpoints={
            node.node_id: tuple(Endpoint(one.name, one.host, one.port) for one in node.listeners)
            for node in nodes
        },
    )


def _states(replicas: Iterable[Any]) -> tuple[ReplicaState, ...]:
    return tuple(
        ReplicaState(
            one.replica_id,
            bytes(one.replica_directory_id),
            one.log_end_offset,
            one.last_fetch_timestamp,
            one.last_caught_up_timestamp,
        )
        for one in replicas
    )
