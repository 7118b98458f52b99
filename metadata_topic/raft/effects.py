"""Effects: work that the core returns to the driver.

The order of a step's effects is part of the contract. Appends, timers, the high watermark and
changes of the role are executed before the next effect, and a failure of one ends the node. Other
effects take time: `Persist`s run one after the other in their order. Beside them, in their order as
well, run `FlushLog`, `TruncateLog`, `WriteChunk`, `InstallSnapshot` and `DropChunks`. Each is
answered by the event that it names.

`after` is the number of the last `Persist` that must be durable before a message is sent; it waits
for nothing else. A message with a vote waits for the vote, one that only names the epoch waits for
the epoch.
"""

from dataclasses import dataclass

from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.messages import (
    BatchFacts,
    Node,
    Question,
    Response,
    SnapshotId,
    Standing,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class Persist:
    """Write quorum-state; answered by `Persisted`.

    Attributes:
        number: Rises with each; of several waiting ones only the newest must be written.
        kraft_version: Decides the version of the file.
        voters: Repeated in the file's version 0.
    """

    number: int
    election: ElectionState
    kraft_version: int
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; answered by `Answered`, within `timeout_ms`.

    Attributes:
        number: Identifies the request; rises with each.
    """

    number: int
    to: Node
    request: Question
    timeout_ms: int
    after: int


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request `token`."""

    token: int
    response: Response
    after: int


@dataclass(frozen=True, slots=True)
class RespondRecords:
    """Answer the Fetch `token` with records of the log.

    If this replica does not lead `standing.epoch` any more after the bytes are read, the answer is
    an error: the log may have other records there.

    Attributes:
        offset: First offset to send (inclusive); the log's end for an answer without records.
        max_bytes: Limit of the whole batches to send; at least one is sent.
        end_offset: End of the records to send (exclusive).
    """

    token: int
    standing: Standing
    high_watermark: int
    log_start_offset: int
    offset: int
    end_offset: int
    max_bytes: int
    after: int


@dataclass(frozen=True, slots=True)
class RespondChunk:
    """Answer the FetchSnapshot `token` with bytes of a snapshot file.

    If the file is deleted by then, the answer is SNAPSHOT_NOT_FOUND.

    Attributes:
        size_bytes: Of the whole file.
    """

    token: int
    standing: Standing
    snapshot_id: SnapshotId
    size_bytes: int
    position: int
    max_bytes: int
    after: int


@dataclass(frozen=True, slots=True)
class AppendEpochStart:
    """Append the control batch that opens an epoch: LEADER_CHANGE, perhaps with the voters.

    Attributes:
        base_offset: Of the batch: the log's end before it.
        granting: Ids of the majority's votes.
        with_voters: Also append KRAFT_VERSION and KRAFT_VOTERS. The log has none yet, and the
            checkpoint of the format step is not replicated; or the leader's addresses have changed.
    """

    epoch: int
    base_offset: int
    leader_id: int
    voters: VoterSet
    kraft_version: int
    granting: tuple[int, ...]
    with_voters: bool


@dataclass(frozen=True, slots=True)
class AwaitAppend:
    """The leader wants to append control records; answered by `AppendGranted`."""


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """Append a control batch with the voters that are valid from now on: KRAFT_VOTERS.

    Attributes:
        base_offset: Of the batch: the log's end before it.
        kraft_version: The level finalised with them, in a KRAFT_VERSION record before
            KRAFT_VOTERS; None: the level stays.
    """

    epoch: int
    base_offset: int
    voters: VoterSet
    kraft_version: int | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Append batches at the log's end."""

    batches: tuple[BatchFacts, ...]
    data: bytes | bytearray


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Make the log durable; answered by `Flushed` with the durable end. One at a time."""


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Drop everything at and after `end_offset`; the note of the flushed end is lowered first.

    Answered by `Truncated`. No append runs before that.
    """

    end_offset: int


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Write bytes of a snapshot being fetched; answered by `ChunkWritten`.

    Attributes:
        position: Of the first byte; 0 begins a new file and drops the one before.
    """

    snapshot_id: SnapshotId
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Check the fetched snapshot, give it its name, restart the log at its end.

    Answered by `SnapshotInstalled` or `SnapshotRefused`. No append runs before that.
    """

    snapshot_id: SnapshotId
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DropChunks:
    """Drop the snapshot being fetched."""


@dataclass(frozen=True, slots=True)
class NoteLeaderLogStart:
    """Report the leader's log start: ours may rise as far, to the end of an own snapshot."""

    offset: int


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below `offset` (exclusive) is committed and may be applied."""

    offset: int


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """Role, epoch or leader changed.

    Attributes:
        epoch_start_offset: First offset of this leader's epoch; None unless leader.
    """

    role: Role
    epoch: int
    leader_id: int | None
    epoch_start_offset: int | None


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send `Tick` at `deadline_ms`, by the clock of `step`; replaces the last `WakeAt`.

    Attributes:
        deadline_ms: None: no `Tick` is needed.
    """

    deadline_ms: int | None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The `Proposed` of this step was not appended: this replica does not lead that epoch."""


@dataclass(frozen=True, slots=True)
class Report:
    """Text for the operator; logged at ERROR or WARNING."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Fatal:
    """The node must end: otherwise it could lose or invent committed records."""

    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Leadership is handed over, or no voter answered in time; the process may end."""


Effect = (
    Persist
    | Send
    | Respond
    | RespondRecords
    | RespondChunk
    | AppendEpochStart
    | AwaitAppend
    | AppendVoters
    | Append
    | FlushLog
    | TruncateLog
    | WriteChunk
    | InstallSnapshot
    | DropChunks
    | NoteLeaderLogStart
    | AdvanceHighWatermark
    | RoleChanged
    | WakeAt
    | Refuse
    | Report
    | Fatal
    | Closed
)
