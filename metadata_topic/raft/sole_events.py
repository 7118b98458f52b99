"""What happens to a replica (events) and what it wants done about it (effects).

The core never acts. Whoever drives it carries out the effects in their order, and each `Persist`
or `Flush` is durable before the next effect is looked at: a vote that was answered but not on disk
could be given twice.

Only the node of one voter of before uses them; `events` and `effects` replace them.
"""

from dataclasses import dataclass

from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.voters import VoterSet

# Events


@dataclass(frozen=True, slots=True)
class Started:
    """The process is up and read its disk.

    Attributes:
        election: content of quorum-state; the default if there is none.
        last_epoch: epoch of the last batch in log or snapshot; 0 for an empty log.
        end_offset: first offset not in the log (exclusive end).
    """

    election: ElectionState
    last_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """The local log is durable up to `end_offset` (exclusive)."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Closing:
    """The process is about to end in an orderly way."""


Event = Started | Flushed | Closing

# Effects


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Write quorum-state; durable before the next effect."""

    election: ElectionState


@dataclass(frozen=True, slots=True)
class AppendStartOfEpoch:
    """Append the control records that open an epoch: LeaderChange, perhaps with the voters.

    Attributes:
        epoch: of the batch.
        voters: all who vote in it.
        granting: ids whose votes made the majority.
        with_voters: also write KRAFT_VERSION and KRAFT_VOTERS, because the log has none yet and
            the checkpoint of the format step is not replicated.
    """

    epoch: int
    voters: VoterSet
    granting: tuple[int, ...]
    with_voters: bool


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Make the log durable and answer with `Flushed`."""


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below `offset` (exclusive) is committed and may be applied."""

    offset: int


Effect = PersistElection | AppendStartOfEpoch | FlushLog | AdvanceHighWatermark
