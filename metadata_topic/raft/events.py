"""What happens to a replica of the metadata log.

Random numbers come in with the events that may need one: `random` is drawn from [0, 1) by the
caller. Results of effects carry what the effect carried, so that a late one can be told apart.
"""

from dataclasses import dataclass
from typing import Final

from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import BatchFacts, Reply, Request, SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey
from runtime.health_reasons import HealthReason

EPOCH_MAX: Final = 2**31 - 2
"""The highest epoch that is ever proposed, taken over or persisted."""
LAST_EPOCH: Final = HealthReason.LAST_EPOCH.line(epoch=EPOCH_MAX)
"""What a person is told of a quorum that is in it."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What `quorum-state` remembers over restarts.

    Attributes:
        epoch: the highest epoch seen, at most `EPOCH_MAX`; 0 before the first election.
        leader_id: who leads it, None if not known.
        voted: whom this replica voted for in it.
    """

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The process is up and has read its disk.

    Attributes:
        election: content of quorum-state; the default if there is none.
        seen_epoch: the highest of anything on the disk, also of what is damaged or was cut.
        start_offset: of the log.
        end_offset: of the log (exclusive); all of it is flushed.
        epochs: (epoch, first offset) of the log's epochs from its start on, by rising offset.
        snapshots: complete ones, oldest first; 0-0 of the format step among them.
        history: (first offset after the batch that said it, facts), by rising offset, at least
            one; the first is what the newest snapshot or the configuration says.
        is_able_to_lead: see `AbleToLead`.
    """

    election: ElectionState
    start_offset: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...]
    snapshots: tuple[SnapshotFile, ...]
    history: tuple[tuple[int, QuorumFacts], ...]
    random: float
    seen_epoch: int = 0
    is_able_to_lead: bool = True


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due at the deadline of the last `WakeAt`, harmless at any other time."""

    random: float


@dataclass(frozen=True, slots=True)
class Received:
    """A request came.

    Attributes:
        token: names the request in the effect that answers it; never used twice in an incarnation.
    """

    token: int
    request: Request
    random: float


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer came, or will never come.

    Attributes:
        number: of the `Send`.
        response: None: no answer within the request's time, or no connection.
    """

    number: int
    response: Reply | None
    random: float


@dataclass(frozen=True, slots=True)
class Proposed:
    """The active controller wants these batches appended.

    Attributes:
        epoch: the one in which it is active.
        batches: in order; the first begins at the log's end, or nothing is appended.
        data: their bytes.
    """

    epoch: int
    batches: tuple[BatchFacts, ...]
    data: bytes | bytearray


@dataclass(frozen=True, slots=True)
class AppendGranted:
    """Nothing that the active controller decided waits to be appended: control records may be.

    Answers `AwaitAppend`, also much later or in another role; nothing is appended between the two
    by anybody else than this replica.
    """


@dataclass(frozen=True, slots=True)
class Persisted:
    """The `Persist` of this number is durable, and so are those before it."""

    number: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """The log is durable up to `end_offset` (exclusive), as `FlushLog` asked."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class SegmentFull:
    """The log's newest segment is full: the next one begins once all of it is flushed."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """`TruncateLog` is done: the log ends at `end_offset` (exclusive), durably."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class ChunkWritten:
    """`WriteChunk` is done: the snapshot that is being fetched has bytes up to `position`."""

    snapshot_id: SnapshotId
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """`InstallSnapshot` is done: the snapshot is durable, and the log begins at its end.

    Attributes:
        facts: what the snapshot says about the quorum.
    """

    snapshot: SnapshotFile
    facts: QuorumFacts


@dataclass(frozen=True, slots=True)
class SnapshotRefused:
    """`InstallSnapshot` found the fetched bytes damaged and dropped them."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """This node has made a snapshot of its own."""

    snapshot: SnapshotFile


@dataclass(frozen=True, slots=True)
class LogStartRaised:
    """The log now starts at `start_offset`, the end of the oldest snapshot that is left.

    Attributes:
        snapshots: those that are left, oldest first.
    """

    start_offset: int
    snapshots: tuple[SnapshotFile, ...]


@dataclass(frozen=True, slots=True)
class Resign:
    """The controller on this node cannot continue as the active one: somebody else must lead."""

    random: float


@dataclass(frozen=True, slots=True)
class AbleToLead:
    """Whether the controller on this node could be the active one.

    One that could not neither stands nor continues leading. It votes and fetches as ever.
    """

    is_able: bool
    random: float


@dataclass(frozen=True, slots=True)
class Closing:
    """The process is about to end in an orderly way; `Closed` says when it may."""

    random: float


Event = (
    Started
    | Tick
    | Received
    | Answered
    | Proposed
    | AppendGranted
    | Persisted
    | Flushed
    | SegmentFull
    | Truncated
    | ChunkWritten
    | SnapshotInstalled
    | SnapshotRefused
    | SnapshotWritten
    | LogStartRaised
    | Resign
    | AbleToLead
    | Closing
)
