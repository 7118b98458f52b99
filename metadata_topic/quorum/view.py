"""What a controller can say about its quorum, as DescribeQuorum and DescribeCluster ask it."""

from dataclasses import dataclass

from metadata_topic.raft.messages import NOBODY, Node, Standing
from metadata_topic.raft.voters import ReplicaKey, VoterEndpoint


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """How far one replica is, by what its Fetches told the leader.

    Attributes:
        log_end_offset: first offset that it has not (exclusive end); -1 unknown.
        last_fetch_ms: wall clock of its last Fetch; the leader's own is now; -1 never.
        last_caught_up_ms: wall clock when it last had all that the leader had; -1 never.
    """

    key: ReplicaKey
    log_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """A controller and where it listens."""

    id: int
    endpoints: tuple[VoterEndpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumView:
    """The quorum as one replica sees it now.

    Attributes:
        epoch: this replica's.
        leader_id: who leads the epoch, -1 if not known.
        leader: where the leader listens, None if not known.
        leader_answered_ms: when a leader last answered a Fetch of this replica, by the monotonic
            clock; now where this replica leads; -1 never.
        is_leader: this replica leads.
        high_watermark: as this replica knows it, at most its log's end; -1 unknown, and on a leader
            until a record of its epoch is committed.
        leader_high_watermark: the highest that a leader named to this replica; -1 none.
        voters: by rising id; only a leader knows their progress.
        observers: replicas without a vote that fetched lately.
        nodes: the controllers that may vote; the static voters, or those of the voter set.
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
        """What every answer of the quorum says."""
        return Standing(self.epoch, self.leader_id, self.leader)
