"""Events of a replica of the metadata log.

Random numbers come in with the events that may need one: the caller draws `random` from [0, 1).
Results of effects carry the fields of the effect, so that late ones are recognised.
"""

from dataclasses import dataclass
from typing import Final

from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import BatchFacts, Reply, Request, SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey
from runtime.health_reasons import HealthReason

EPOCH_MAX: Final = 2**31 - 2
"""Highest epoch that is ever proposed, taken over or persisted."""
LAST_EPOCH: Final = HealthReason.LAST_EPOCH.line(epoch=EPOCH_MAX)
"""The health reason of a quorum in that epoch."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """Content of `quorum-state`, which is kept across restarts.

    Attributes:
        epoch: The highest epoch seen, at most `EPOCH_MAX`; 0 before the first election.
        leader_id: Leader of that epoch, None if unknown.
        voted: Candidate that this replica voted for in it.
    """

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The process has started and has read its disk.

    Attributes:
        election: Content of quorum-state; the default if there is none.
        seen_epoch: Highest epoch on the disk, also in damaged or cut parts.
        start_offset: Of the log.
        end_offset: Of the log (exclusive); all of it is flushed.
        epochs: (epoch, first offset) of the log's epochs from its start on, by rising offset.
        snapshots: Complete ones, oldest first, including 0-0 of the format step.
        history: (first offset after the batch, its facts), by rising offset. There is at least one
            entry; the first has the facts of the newest snapshot or of the configuration.
        is_able_to_lead: See `AbleToLead`.
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
    """The deadline of the last `WakeAt` has come; harmless at any other time."""

    random: float


@dataclass(frozen=True, slots=True)
class Received:
    """A request arrived.

    Attributes:
        token: Identifies the request in the effect that answers it; unique in an incarnation.
    """

    token: int
    request: Request
    random: float


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was answered, or will not be.

    Attributes:
        number: Of the `Send`.
        response: None: no answer within the request's time, or no connection.
    """

    number: int
    response: Reply | None
    random: float


@dataclass(frozen=True, slots=True)
class Proposed:
    """The active controller has batches to append.

    Attributes:
        epoch: The one in which it is active.
        batches: In order; nothing is appended unless the first begins at the log's end.
        data: Their bytes.
    """

    epoch: int
    batches: tuple[BatchFacts, ...]
    data: bytes | bytearray


@dataclass(frozen=True, slots=True)
class AppendGranted:
    """The active controller has no proposal in preparation: control records may be appended.

    Answers `AwaitAppend`, possibly much later or in another role. Between the two only this replica
    appends.
    """


@dataclass(frozen=True, slots=True)
class Persisted:
    """The `Persist` of this number is durable, and so are those before it."""

    number: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """The log is durable up to `end_offset` (exclusive); answers `FlushLog`."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class SegmentFull:
    """The log's newest segment is full; the next one begins once it is flushed."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log ends at `end_offset` (exclusive), durably; answers `TruncateLog`."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class ChunkWritten:
    """The snapshot being fetched has bytes up to `position`; answers `WriteChunk`."""

    snapshot_id: SnapshotId
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """The snapshot is durable, and the log begins at its end; answers `InstallSnapshot`.

    Attributes:
        facts: Quorum facts in the snapshot.
    """

    snapshot: SnapshotFile
    facts: QuorumFacts


@dataclass(frozen=True, slots=True)
class SnapshotRefused:
    """The fetched bytes were damaged and are dropped; answers `InstallSnapshot`."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """This node has written a snapshot of its own."""

    snapshot: SnapshotFile


@dataclass(frozen=True, slots=True)
class LogStartRaised:
    """The log now starts at `start_offset`, the end of the oldest snapshot left.

    Attributes:
        snapshots: The snapshots left, oldest first.
    """

    start_offset: int
    snapshots: tuple[SnapshotFile, ...]


@dataclass(frozen=True, slots=True)
class Resign:
    """This node's controller cannot continue as the active one; another node must lead."""

    random: float


@dataclass(frozen=True, slots=True)
class AbleToLead:
    """Reports if this node's controller can be the active one.

    If it cannot, the replica neither stands nor continues to lead; it votes and fetches as before.
    """

    is_able: bool
    random: float


@dataclass(frozen=True, slots=True)
class Closing:
    """The process is in controlled shutdown; `Closed` allows it to end."""

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
