"""Messages between replicas of the metadata log, independent of wire versions.

The wire adapter (`quorum/wire`) refuses requests about another cluster, another topic or several
partitions before the core gets them. So these messages are about the only partition.

Offsets called `end` are exclusive. Source: KIP-595, KIP-630, KIP-853 (directory ids), KIP-996
(pre-vote), KIP-1166 (the asker's high watermark).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet

SUFFIX: Final = ".checkpoint"

NOBODY: Final = -1
"""Replica id for an unknown replica."""
ANY_REPLICA: Final = ReplicaKey(NOBODY)
"""Addressee in a request that names none."""
UNKNOWN_HIGH_WATERMARK: Final = -1
IGNORES_HIGH_WATERMARK: Final = 2**63 - 1
"""High watermark in a Fetch that must not be answered early when it moves."""


class SnapshotId(NamedTuple):
    """Id of a snapshot: first offset not in it (exclusive end), and the epoch before that."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """Name of its file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


BOOTSTRAP_ID: Final = SnapshotId(0, 0)
"""Id of the format step's checkpoint, which is never sent."""


@dataclass(frozen=True, slots=True)
class Node:
    """Id and address of a node.

    Attributes:
        id: -1 for a bootstrap server, whose id is not known.
    """

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A candidate asks for a vote in `epoch` (pre-vote: whether it would get one).

    Attributes:
        epoch: Of a pre-vote the candidate's present epoch, of a vote the one it stands in.
        voter: The addressee.
        last_epoch: Of the candidate's last record, in log or snapshot.
        end_offset: Of the candidate's log.
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
        voter: The addressee.
        leader: Its address; None if the sender's version has no such field.
    """

    epoch: int
    leader_id: int
    voter: ReplicaKey
    leader: Node | None


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """`leader_id` no longer leads `epoch`.

    Attributes:
        successors: Voters by descending log end.
        leader: Same as in BeginQuorumEpochRequest.
    """

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]
    leader: Node | None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica asks for the records after its log.

    Attributes:
        replica: The sender; id -1 for a reader without id.
        epoch: The sender's; in it the sender takes the addressee for the leader.
        offset: The sender's log end; everything before it is flushed there.
        last_fetched_epoch: Of the sender's last record, in log or snapshot.
        high_watermark: The sender's; -1 unknown, see also IGNORES_HIGH_WATERMARK.
        max_wait_ms: Longest wait of the answer for new records.
        max_bytes: Of records; a single batch of any size is sent.
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
    """A replica asks for the bytes of a snapshot from `position` on.

    Attributes:
        epoch: Same as in FetchRequest.
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
"""Requests about the only partition of the metadata log."""


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """Make an observing controller a voter (KIP-853).

    Attributes:
        epoch: In it the sender takes the addressee for the leader.
        voter: The leader asks it for its kraft.version range.
        waits_for_commit: Answer after the commit; otherwise once the leader has appended it.
    """

    epoch: int
    voter: Voter
    waits_for_commit: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """Remove a voter; `epoch` as in AddVoterRequest."""

    epoch: int
    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """Update a voter's endpoints and kraft.version range, by key; `epoch` as in AddVoterRequest.

    The answer does not wait for the commit.
    """

    epoch: int
    voter: Voter


VoterRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


@dataclass(frozen=True, slots=True)
class UpgradeKraftVersionRequest:
    """Finalise kraft.version `level`, which puts the static voters into the log.

    Sent by the active controller of this node (UpdateFeatures), never over the wire.

    Attributes:
        epoch: Same as in AddVoterRequest.
        validate_only: Check, append nothing.
    """

    epoch: int
    level: int
    validate_only: bool = False


ChangeRequest = VoterRequest | UpgradeKraftVersionRequest
"""Requests that change the voters; one at a time."""

Request = LogRequest | ChangeRequest


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    """Ask a node for its kraft.version range; it answers without its core."""

    voter: ReplicaKey


Question = LogRequest | VoterRequest | ApiVersionsRequest
"""Requests that a replica sends to another one."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Epoch and leader in every answer of a replica.

    Attributes:
        epoch: Of the replica.
        leader_id: Leader of that epoch, -1 if unknown.
        leader: Address of the leader, None if unknown.
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
    """End of an epoch in the leader's log.

    Attributes:
        end_offset: First offset after the epoch (exclusive end).
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The core's view of a batch, without its bytes.

    Attributes:
        end_offset: First offset after it (exclusive end).
        kraft_version: From a KRAFT_VERSION record in it; None without one.
        voters: From a KRAFT_VOTERS record in it; None without one.
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
        high_watermark: The leader's; -1 unknown.
        log_start_offset: The leader's; -1 unknown.
        diverging: The follower's log differs from the leader's after this and must be cut.
        snapshot_id: The follower must fetch this snapshot first.
        batches: Facts of the sound batches in `data`, in order.
        data: Their bytes, contiguous.
        fault: Why `data` is only a part of the records received: a damaged batch; None if it is
            all of them.
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
        size_bytes: Of the whole snapshot.
        data: Bytes from `position` on; batches may be cut anywhere.
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
        text: Reason of a refusal; empty if the code is enough.
    """

    error: ErrorCode
    standing: Standing
    text: str = ""


Response = LogResponse | VoterResponse


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    """Answer to an ApiVersionsRequest.

    Attributes:
        kraft_versions: Lowest and highest, both inclusive; None: the node lacks the feature.
    """

    error: ErrorCode
    kraft_versions: tuple[int, int] | None = None


Reply = Response | ApiVersionsResponse
"""Answers that a replica gets."""
