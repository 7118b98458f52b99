"""State of a replica in each role; dropped with the role.

Times are milliseconds of the clock of `step`.
"""

from dataclasses import dataclass, field

from kafka_protocol.types import ZERO_UUID
from metadata_topic.raft.messages import ChangeRequest, EpochEnd, Node, SnapshotId
from metadata_topic.raft.parked import ParkedFetches
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet


class Tally:
    """Votes in one election."""

    __slots__ = ("_needed", "granted", "refused", "voters")

    def __init__(self, voters: VoterSet, me: ReplicaKey) -> None:
        """Begin with our own vote, if we are a voter.

        Args:
            voters: The voter set of the candidate.
            me: The candidate.
        """
        self.voters = voters.ids
        self._needed = voters.majority
        self.granted: set[int] = {me.id} if voters.has(me) else set()
        self.refused: set[int] = set()

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Ids of voters without an answer, rising."""
        return tuple(i for i in self.voters if i not in self.granted and i not in self.refused)

    @property
    def is_won(self) -> bool:
        """True if a majority granted its vote."""
        return len(self.granted) >= self._needed

    @property
    def is_lost(self) -> bool:
        """True if too many refused for a majority."""
        return len(self.voters) - len(self.refused) < self._needed

    def take(self, voter_id: int, *, granted: bool) -> None:
        """Count an answer; only the first of each voter counts."""
        if voter_id in self.unanswered:
            (self.granted if granted else self.refused).add(voter_id)


@dataclass(slots=True)
class Unattached:
    """Attributes: election_deadline_ms: when to stand."""

    election_deadline_ms: int


@dataclass(slots=True)
class Prospective:
    """Runs a pre-vote.

    Attributes:
        leader: Of this epoch, to follow again if the pre-vote is lost; None if unknown.
        cannot_ask: A voter's version has no pre-vote.
    """

    election_deadline_ms: int
    tally: Tally
    leader: Node | None
    cannot_ask: bool = False


@dataclass(slots=True)
class Candidate:
    """Stands for election.

    Attributes:
        winning: Number of the `Persist` that makes it leader once durable; None before a majority.
    """

    election_deadline_ms: int
    tally: Tally
    winning: int | None = None


@dataclass(slots=True)
class Follower:
    """Fetches from `leader`.

    Attributes:
        fetch_deadline_ms: When the leader counts as lost.
        has_fetched: The leader has answered a Fetch of ours.
        leader_resigned: The leader sent EndQuorumEpoch.
        asks_others: The leader did not answer; others are asked for it until one answers.
        download: The snapshot being fetched, None if none is.
        voter_request_ms: Earliest time of the next request to change its voter entry.
        has_reported: The leader has accepted the report of this static voter.
    """

    leader: Node
    fetch_deadline_ms: int
    has_fetched: bool = False
    leader_resigned: bool = False
    asks_others: bool = False
    download: "Download | None" = None
    voter_request_ms: int = 0
    has_reported: bool = False

    def hears_leader(self, now_ms: int) -> bool:
        """True if the leader has answered within the fetch timeout, and has not resigned."""
        return self.has_fetched and not self.leader_resigned and now_ms < self.fetch_deadline_ms


@dataclass(slots=True)
class Download:
    """A snapshot being fetched.

    Attributes:
        position: Bytes written so far.
        is_writing: A chunk is being written.
    """

    snapshot_id: SnapshotId
    position: int = 0
    size_bytes: int = 0
    is_writing: bool = False


@dataclass(slots=True)
class Resigned:
    """Led this epoch before.

    Attributes:
        election_deadline_ms: When it becomes unattached in the next epoch.
        unacknowledged: Voters that have not answered EndQuorumEpoch yet, rising ids.
        successors: Proposed to the others, best first.
    """

    election_deadline_ms: int
    unacknowledged: list[int]
    successors: tuple[ReplicaKey, ...]


@dataclass(slots=True)
class ReplicaProgress:
    """A leader's state of another replica.

    Attributes:
        end_offset: First offset it has not flushed (exclusive end); -1 unknown.
        last_fetch_ms: Of the last valid Fetch or FetchSnapshot; None before the first.
        last_caught_up_ms: When it last had all records of the leader; None if never.
        leader_end_then: The leader's log end at `last_fetch_ms`.
        begin_sent_ms: Time of the last BeginQuorumEpoch sent to it.
        directory_id: Of the replica that counts for a static voter; zero if unknown.
    """

    end_offset: int = -1
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    leader_end_then: int = -1
    begin_sent_ms: int | None = None
    directory_id: bytes = ZERO_UUID


@dataclass(slots=True)
class VoterChange:
    """A change of the voters, in preparation or waiting for its commit.

    Attributes:
        token: Of the request to answer.
        deadline_ms: Latest time of the answer.
        voters: Set to append; None while the new voter's kraft.version range is unknown.
        asked: Static voters that have not yet answered at their reported address.
        end_offset: First offset (exclusive end) after its batch; -1 before it is appended.
    """

    token: int
    request: ChangeRequest
    deadline_ms: int
    voters: VoterSet | None = None
    end_offset: int = -1
    asked: frozenset[ReplicaKey] = frozenset()


@dataclass(slots=True)
class Leader:
    """Leads.

    Attributes:
        epoch_start_offset: Of its LEADER_CHANGE batch.
        since_ms: When it became leader.
        voters: Progress of the other voters, by their key.
        observers: Progress of all others that fetch, the longest silent first.
        parked: Fetches that wait.
        high_watermark: Of this epoch; -1 until a record of this epoch is on a majority.
        must_look: The log's end or the high watermark moved; parked Fetches may be answered.
        change: Of the voters, one at a time; None if none is pending.
        reported: Reports of static voters in this epoch, by id; in memory only.
    """

    epoch_start_offset: int
    since_ms: int
    voters: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    parked: ParkedFetches = field(default_factory=ParkedFetches)
    high_watermark: int = -1
    must_look: bool = False
    change: VoterChange | None = None
    reported: dict[int, Voter] = field(default_factory=dict)


RoleState = Unattached | Prospective | Candidate | Follower | Resigned | Leader

__all__ = [
    "Candidate",
    "Download",
    "EpochEnd",
    "Follower",
    "Leader",
    "Prospective",
    "ReplicaProgress",
    "Resigned",
    "RoleState",
    "Tally",
    "Unattached",
    "VoterChange",
]
