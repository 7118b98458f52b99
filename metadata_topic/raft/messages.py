"""What replicas of the metadata log say to each other, without the wire's versions.

The adapter of the wire (`quorum/rpc`) refuses what concerns another cluster, another topic or
several partitions before the core sees it; so these messages are about the one partition there is.

Offsets called `end` are exclusive. Source: KIP-595, KIP-630, KIP-853 (directory ids), KIP-996
(pre-vote), KIP-1166 (the asker's high watermark).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet

SUFFIX: Final = ".checkpoint"

NOBODY: Final = -1
"""A replica id where none is known."""
ANY_REPLICA: Final = ReplicaKey(NOBODY)
"""An addressee that the sender did not name."""
UNKNOWN_HIGH_WATERMARK: Final = -1
IGNORES_HIGH_WATERMARK: Final = 2**63 - 1
"""The high watermark in a Fetch whose sender is not to be woken when it moves."""


class SnapshotId(NamedTuple):
    """Which snapshot: the first offset not in it (exclusive end) and the epoch before that."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """Its file's name."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


BOOTSTRAP_ID: Final = SnapshotId(0, 0)
"""The one of the format step; it is never sent."""


@dataclass(frozen=True, slots=True)
class Node:
    """Whom to send to, and where it listens.

    Attributes:
        id: -1 for a bootstrap server, whose id is not known.
    """

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """May `candidate` lead (pre-vote: could it lead) `epoch`?

    Attributes:
        epoch: a pre-vote has the asker's own epoch, a vote the one it stands in.
        voter: whom it is meant for.
        last_epoch: of the asker's last record, in log or snapshot.
        end_offset: of the asker's log.
    """

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    end_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """`leader_id` leads `epoch`.

    Attributes:
        voter: whom it is meant for.
        leader: where to fetch from; None where the sender's version does not say.
    """

    epoch: int
    leader_id: int
    voter: ReplicaKey
    leader: Node | None


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """`leader_id` leads `epoch` no longer.

    Attributes:
        successors: voters by descending log end.
        leader: as in BeginQuorumEpochRequest.
    """

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]
    leader: Node | None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Send what follows my log.

    Attributes:
        replica: the asker; id -1 for a reader without id.
        epoch: the one in which the asker takes the addressee for the leader.
        offset: the asker's log end, all before it is flushed there.
        last_fetched_epoch: of the asker's last record, in log or snapshot.
        high_watermark: the asker's; -1 unknown, see also IGNORES_HIGH_WATERMARK.
        max_wait_ms: how long the answer may wait for something new.
        max_bytes: of records; one batch is sent however large it is.
    """

    replica: ReplicaKey
    epoch: int
    offset: int
    last_fetched_epoch: int
    high_watermark: int = IGNORES_HIGH_WATERMARK
    max_wait_ms: int = 500
    max_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """Send the bytes of a snapshot from `position` on.

    Attributes:
        epoch: as in FetchRequest.
    """

    replica: ReplicaKey
    epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


LogRequest = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
)
"""What names the one partition of the metadata log on the wire."""


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """Let a controller vote that observes until now (KIP-853).

    Attributes:
        epoch: the one in which the asker takes the addressee for the leader.
        voter: which kraft.version it can do the leader asks it.
        waits_for_commit: the answer does; else it comes once the change is in the leader's log.
    """

    epoch: int
    voter: Voter
    waits_for_commit: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """Let a voter vote no more; `epoch` as in AddVoterRequest."""

    epoch: int
    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """This voter, known by its key, listens there and can do that; `epoch` as in AddVoterRequest.

    The answer does not wait for the commit.
    """

    epoch: int
    voter: Voter


VoterRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


@dataclass(frozen=True, slots=True)
class UpgradeKraftVersionRequest:
    """Finalise kraft.version `level`, which puts the static voters into the log.

    It comes from the active controller of this very node (UpdateFeatures), never over the wire.

    Attributes:
        epoch: as in AddVoterRequest.
        validate_only: check, append nothing.
    """

    epoch: int
    level: int
    validate_only: bool = False


ChangeRequest = VoterRequest | UpgradeKraftVersionRequest
"""What changes the voters; one at a time."""

Request = LogRequest | ChangeRequest


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    """Which kraft.version can `voter` do? Only asked of others; any node answers it by itself."""

    voter: ReplicaKey


Question = LogRequest | VoterRequest | ApiVersionsRequest
"""What a replica asks another one."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What every answer says about the answering replica.

    Attributes:
        epoch: its epoch.
        leader_id: who leads it, -1 if not known.
        leader: where the leader listens, None if not known.
    """

    epoch: int
    leader_id: int = NOBODY
    leader: Node | None = None


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """Answer to a VoteRequest."""

    error: ErrorCode
    standing: Standing
    granted: bool = False


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    """Answer to a BeginQuorumEpochRequest."""

    error: ErrorCode
    standing: Standing


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    """Answer to an EndQuorumEpochRequest."""

    error: ErrorCode
    standing: Standing


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where an epoch ended in the leader's log.

    Attributes:
        end_offset: first offset after the epoch (exclusive end).
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What the core needs of a batch; its bytes travel beside.

    Attributes:
        end_offset: first offset after it (exclusive end).
        kraft_version: what a KRAFT_VERSION record in it says; None without one.
        voters: what a KRAFT_VOTERS record in it says; None without one.
    """

    base_offset: int
    end_offset: int
    epoch: int
    kraft_version: int | None = None
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Answer to a FetchRequest: records, or where to continue instead.

    Attributes:
        high_watermark: the leader's; -1 unknown.
        log_start_offset: the leader's; -1 unknown.
        diverging: the asker's log is not the leader's from here on, it must be cut.
        snapshot_id: the asker must fetch this snapshot first.
        batches: facts of the sound batches in `data`, in order.
        data: their bytes, back to back.
        fault: why not all that came is in `data`: the batch after it is damaged; None if all is.
    """

    error: ErrorCode
    standing: Standing
    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    snapshot_id: SnapshotId | None = None
    batches: tuple[BatchFacts, ...] = ()
    data: bytes = b""
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """Answer to a FetchSnapshotRequest.

    Attributes:
        size_bytes: of the whole snapshot.
        data: what lies at `position`; batches may be cut anywhere.
    """

    error: ErrorCode
    standing: Standing
    snapshot_id: SnapshotId
    size_bytes: int = 0
    position: int = 0
    data: bytes = b""


LogResponse = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
)
"""Answers to LogRequest."""


@dataclass(frozen=True, slots=True)
class VoterResponse:
    """Answer to a ChangeRequest.

    Attributes:
        text: why it is refused; empty where the code says it.
    """

    error: ErrorCode
    standing: Standing
    text: str = ""


Response = LogResponse | VoterResponse


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    """Answer to an ApiVersionsRequest.

    Attributes:
        kraft_versions: lowest and highest, both inclusive; None: it knows no such feature.
    """

    error: ErrorCode
    kraft_versions: tuple[int, int] | None = None


Reply = Response | ApiVersionsResponse
"""What a replica is answered."""
