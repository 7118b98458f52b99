"""Settings of the Raft core; names and defaults are Kafka's."""

from dataclasses import dataclass

from metadata_topic.raft.messages import Node
from metadata_topic.raft.voters import VoterEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Settings of one replica.

    Attributes:
        can_vote: This node is a controller; a broker's replica only observes.
        election_timeout_ms: `controller.quorum.election.timeout.ms`; drawn from [it, twice it).
        fetch_timeout_ms: `controller.quorum.fetch.timeout.ms`.
        election_backoff_max_ms: `controller.quorum.election.backoff.max.ms`.
        request_timeout_ms: `controller.quorum.request.timeout.ms`.
        retry_backoff_ms: `controller.quorum.retry.backoff.ms`.
        fetch_max_wait_ms: Longest wait of our Fetch at the leader.
        fetch_max_bytes: Limit of records in an answer (8 MiB in Kafka).
        snapshot_max_bytes: `controller.quorum.fetch.snapshot.max.bytes`, of a chunk.
        bootstrap: Nodes to ask for the leader besides the known voters; ids -1.
        static_nodes: Addresses of the static voters in `controller.quorum.voters`; a dynamic quorum
            has its addresses in the voter set.
        listener_name: The first of `controller.listener.names`: of several listeners of a voter in
            the voter set, requests go to this one.
        endpoints: This controller's listeners, for its entry in the voter set; empty: no update.
        joins: `controller.quorum.auto.join.enable`: a controller without a vote asks for one.
        close_timeout_ms: Longest wait of a closing leader until the others have its resignation.
            Then it stays until another replica stands, for `election_backoff_max_ms` at most.
    """

    can_vote: bool = True
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 << 20
    snapshot_max_bytes: int = 1 << 20
    bootstrap: tuple[Node, ...] = ()
    static_nodes: tuple[Node, ...] = ()
    listener_name: str = "CONTROLLER"
    endpoints: tuple[VoterEndpoint, ...] = ()
    joins: bool = False
    close_timeout_ms: int = 5000
