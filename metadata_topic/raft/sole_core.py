"""One replica of the metadata log as a state machine: events in, effects out.

Today it is complete for a quorum of one, which goes through the same election as any other: it
raises the epoch, puts its vote on disk, wins, and opens the epoch with a LeaderChange record. Votes
and fetches of others become further events; roles, voters and the majority rule are there for them.

Invariants:
- the epoch never falls, over restarts neither;
- an epoch above every epoch in the log and in quorum-state is opened by each start as leader;
- the high watermark never falls, and moves only once a majority has a record of the leader's own
  epoch (an older one may still be replaced, Raft §5.4.2).
"""

from typing import assert_never

from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.roles import Role
from metadata_topic.raft.sole_events import (
    AdvanceHighWatermark,
    AppendStartOfEpoch,
    Closing,
    Effect,
    Event,
    Flushed,
    FlushLog,
    PersistElection,
    Started,
)
from metadata_topic.raft.voters import ReplicaKey, VoterSet, majority_offset


class RaftCore:
    """Decides for one replica.

    Attributes:
        role: see the table in `roles`.
        election: epoch, leader and vote as last asked to persist.
        epoch_start_offset: where this leader's epoch begins in the log; None unless leader.
        high_watermark: first offset not known to be committed (exclusive); -1 unknown.
    """

    def __init__(self, key: ReplicaKey, voters: VoterSet, *, voters_in_log: bool) -> None:
        """Make a replica that has not started.

        Args:
            key: this replica.
            voters: who votes.
            voters_in_log: the voters need not be written into the log: they are in it, or come
                from the configuration (kraft.version 0).
        """
        self.key = key
        self.voters = voters
        self.role = Role.UNATTACHED
        self.election = ElectionState()
        self.epoch_start_offset: int | None = None
        self.high_watermark = -1
        self._voters_in_log = voters_in_log

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.election.epoch

    @property
    def leader_id(self) -> int | None:
        """Who leads the current epoch."""
        return self.election.leader_id

    def handle(self, event: Event) -> list[Effect]:
        """Take one event.

        Returns:
            Effects to be carried out in this order, see `events`.
        """
        match event:
            case Started():
                return self._on_started(event)
            case Flushed(end_offset):
                return self._on_flushed(end_offset)
            case Closing():
                return self._on_closing()
            case _:
                assert_never(event)

    def _on_started(self, event: Started) -> list[Effect]:
        # quorum-state may be lost or older than the log; what the log has seen was an epoch too.
        epoch = max(event.election.epoch, event.last_epoch)
        self.election = (
            event.election if epoch == event.election.epoch else ElectionState(epoch=epoch)
        )
        if not self.voters.is_sole(self.key):
            return []  # waits to hear of a leader, or for its election timeout
        return self._elect_self(event.end_offset)

    def _elect_self(self, end_offset: int) -> list[Effect]:
        self._become(Role.CANDIDATE)
        candidate = ElectionState(self.epoch + 1, None, self.key)
        self._become(Role.LEADER)
        self.election = ElectionState(candidate.epoch, self.key.id, None)
        self.epoch_start_offset = end_offset
        with_voters, self._voters_in_log = not self._voters_in_log, True
        return [
            PersistElection(candidate),
            PersistElection(self.election),
            AppendStartOfEpoch(self.epoch, self.voters, (self.key.id,), with_voters),
            FlushLog(),
        ]

    def _on_flushed(self, end_offset: int) -> list[Effect]:
        if self.role is not Role.LEADER:
            return []
        assert self.epoch_start_offset is not None
        # The others' ends arrive with their fetches; until then they are unknown.
        ends = [end_offset if v.key.id == self.key.id else -1 for v in self.voters.voters]
        committed = majority_offset(ends, self.voters.majority)
        if committed <= self.epoch_start_offset or committed <= self.high_watermark:
            return []
        self.high_watermark = committed
        return [AdvanceHighWatermark(committed)]

    def _on_closing(self) -> list[Effect]:
        if self.role is Role.LEADER:
            self._become(Role.RESIGNED)
        return []

    def _become(self, role: Role) -> None:
        self.role = role
