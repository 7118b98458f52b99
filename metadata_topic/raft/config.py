"""Settings of the Raft core; names and defaults are Kafka's."""

from dataclasses import dataclass

from metadata_topic.raft.messages import Node
from metadata_topic.raft.voters import VoterEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Typed view.

    Attributes:
        can_vote: this node is a controller; a broker's replica only observes.
        election_timeout_ms: `controller.quorum.election.timeout.ms`; drawn from [it, twice it).
        fetch_timeout_ms: `controller.quorum.fetch.timeout.ms`.
        election_backoff_max_ms: `controller.quorum.election.backoff.max.ms`.
        request_timeout_ms: `controller.quorum.request.timeout.ms`.
        retry_backoff_ms: `controller.quorum.retry.backoff.ms`.
        fetch_max_wait_ms: how long a leader may keep our Fetch.
        fetch_max_bytes: of records in an answer we ask for (8 MiB in Kafka).
        snapshot_max_bytes: `controller.quorum.fetch.snapshot.max.bytes`, of a chunk.
        bootstrap: whom to ask for the leader beside the voters that are known; ids -1.
        static_nodes: where the static voters of `controller.quorum.voters` listen; a dynamic
            quorum has its addresses in the voter set.
        listener_name: the first of `controller.listener.names`: of a voter with several listeners
            in the voter set the one of this name is asked.
        endpoints: where this controller listens, as the voter set should have it; empty: it does
            not care.
        joins: `controller.quorum.auto.join.enable`: a controller without a vote asks for one.
        close_timeout_ms: how long a closing leader waits for the others to hear of it; then it
            stays until another stands, for `election_backoff_max_ms` at most.
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
