"""A controller's view of its quorum, for DescribeQuorum and DescribeCluster."""

from dataclasses import dataclass

from metadata_topic.raft.messages import NOBODY, Node, Standing
from metadata_topic.raft.voters import ReplicaKey, VoterEndpoint


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """Progress of one replica, from its Fetches to the leader.

    Attributes:
        log_end_offset: First offset that it does not have (exclusive end); -1 unknown.
        last_fetch_ms: Wall clock of its last Fetch; now for the leader itself; -1 never.
        last_caught_up_ms: Wall clock when it last had all records of the leader; -1 never.
    """

    key: ReplicaKey
    log_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """A controller and its endpoints."""

    id: int
    endpoints: tuple[VoterEndpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumView:
    """The quorum as one replica sees it now.

    Attributes:
        epoch: This replica's.
        leader_id: Leader of the epoch, -1 if unknown.
        leader: Address of the leader, None if unknown.
        leader_answered_ms: Time of a leader's last answer to a Fetch of this replica, by the
            monotonic clock; now if this replica leads; -1 never.
        is_leader: This replica leads.
        high_watermark: The high watermark of this replica, at most its log's end. -1 is unknown;
            a leader has -1 until a record of its epoch is committed.
        leader_high_watermark: The highest that a leader sent to this replica; -1 none.
        voters: By rising id; only a leader has their progress.
        observers: Replicas without a vote that fetched recently.
        nodes: Static voters, or those of the voter set.
    """

    epoch: int
    leader_id: int = NOBODY
    leader: Node | None = None
    leader_answered_ms: int = -1
    is_leader: bool = False
    high_watermark: int = -1
    leader_high_watermark: int = -1
    voters: tuple[ReplicaProgress, ...] = ()
    observers: tuple[ReplicaProgress, ...] = ()
    nodes: tuple[ControllerNode, ...] = ()

    @property
    def standing(self) -> Standing:
        """Epoch and leader, as in every answer of the quorum."""
        return Standing(self.epoch, self.leader_id, self.leader)
