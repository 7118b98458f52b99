"""One replica of the metadata log as a state machine: events in, effects out.

    core = RaftCore(key, config)
    effects = core.step(Started(...), now_ms)      # always the first
    effects = core.step(event, now_ms)

Deterministic and pure: no disk, clock, rng, threads or log. Results of slow work come back as
events; random numbers come in with events.

Each step takes one event, then runs the due work of the resulting role. The rules are in `voting`,
`following` and `leading`; their shared state is in `replica`.

Source: KIP-595, KIP-630, KIP-853 (directory ids, voters in the log), KIP-996 (pre-vote).
"""

from typing import Final, assert_never

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from metadata_topic.raft import following, leading, voter_changes, voting
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.deadlines import next_deadline_ms
from metadata_topic.raft.effects import Closed, Effect, WakeAt
from metadata_topic.raft.epochs import ask_doubted, believes_answer
from metadata_topic.raft.events import (
    EPOCH_MAX,
    LAST_EPOCH,
    AbleToLead,
    Answered,
    AppendGranted,
    ChunkWritten,
    Closing,
    ElectionState,
    Event,
    Flushed,
    LogStartRaised,
    Persisted,
    Proposed,
    Received,
    Resign,
    SegmentFull,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotWritten,
    Started,
    Tick,
    Truncated,
)
from metadata_topic.raft.log_view import LogView
from metadata_topic.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Response,
    UpdateVoterRequest,
    UpgradeKraftVersionRequest,
    VoteRequest,
    VoteResponse,
    VoterResponse,
)
from metadata_topic.raft.replica import Pending, Replica
from metadata_topic.raft.role_states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    RoleState,
    Tally,
    Unattached,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import VoterHistory
from metadata_topic.raft.voters import ReplicaKey, VoterSet

_POLLS_MAX: Final = 10


class RaftCore:
    """One replica; the caller executes the effects of each step in order."""

    def __init__(self, key: ReplicaKey, config: RaftConfig) -> None:
        """Make a replica that has not started."""
        self.replica = Replica(key, config)
        self._wake_at: int | None = None
        self._is_closed = False

    # -- facts ----------------------------------------------------------------------------------

    @property
    def key(self) -> ReplicaKey:
        """This replica."""
        return self.replica.key

    @property
    def role(self) -> Role:
        """Role, see the table in `roles`."""
        return self.replica.role

    @property
    def election(self) -> ElectionState:
        """Epoch, leader and vote of the newest `Persist`."""
        return self.replica.election

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.replica.epoch

    @property
    def leader_id(self) -> int | None:
        """Id of the current epoch's leader; None if unknown."""
        return self.replica.election.leader_id

    @property
    def log(self) -> LogView:
        """The shape of the log."""
        return self.replica.log

    @property
    def history(self) -> VoterHistory:
        """Voters and kraft.version by offset."""
        return self.replica.history

    @property
    def voters(self) -> VoterSet:
        """Voters by the newest record of the log, committed or not."""
        return self.replica.voters

    @property
    def high_watermark(self) -> int:
        """First offset not known to be committed (exclusive end); -1 unknown."""
        return self.replica.high_watermark

    @property
    def leadership(self) -> Leader | None:
        """The leader's state of the other replicas; None unless leader."""
        return self.replica.state if isinstance(self.replica.state, Leader) else None

    @property
    def epoch_start_offset(self) -> int | None:
        """First offset of this leader's epoch; None unless leader."""
        return None if self.leadership is None else self.leadership.epoch_start_offset

    @property
    def parked_count(self) -> int:
        """Number of waiting Fetches."""
        return 0 if self.leadership is None else len(self.leadership.parked)

    # -- steps ----------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event.

        Args:
            event: The event.
            now_ms: Of a clock that never goes back.

        Returns:
            Effects to execute, in this order; see `effects`.
        """
        replica = self.replica
        replica.effects = []
        replica.now_ms = now_ms
        self._take(event)
        self._poll()
        wake_at = next_deadline_ms(replica)
        if wake_at != self._wake_at:
            self._wake_at = wake_at
            replica.do(WakeAt(wake_at))
        return replica.effects

    def _take(self, event: Event) -> None:
        replica = self.replica
        match event:
            case Tick(random):
                replica.random = random
                self._wake_at = None
            case Received():
                replica.random = event.random
                self._on_request(event)
            case Answered():
                replica.random = event.random
                self._on_answer(event)
            case Proposed():
                leading.on_proposed(replica, event)
            case Persisted(number):
                replica.durable = max(replica.durable, number)
            case Flushed(end_offset):
                self._on_flushed(end_offset)
            case Truncated():
                following.on_truncated(replica, event)
            case ChunkWritten():
                following.on_chunk_written(replica, event)
            case SnapshotInstalled():
                following.on_snapshot_installed(replica, event)
            case SnapshotRefused():
                following.on_snapshot_refused(replica, event)
            case _:
                self._take_rare(event)

    def _take_rare(
        self,
        event: Started
        | AppendGranted
        | SegmentFull
        | SnapshotWritten
        | LogStartRaised
        | Resign
        | AbleToLead
        | Closing,
    ) -> None:
        replica = self.replica
        match event:
            case Started():
                self._on_started(event)
            case AppendGranted():
                voter_changes.on_append_granted(replica)
            case SegmentFull():
                replica.is_segment_full = True
                replica.flush()
            case SnapshotWritten(snapshot):
                replica.log.add_snapshot(snapshot)
            case LogStartRaised():
                replica.log.raise_start(event.start_offset, event.snapshots)
            case Resign(random):
                replica.random = random
                if isinstance(replica.state, Leader):
                    leading.resign(replica, replica.state)
            case AbleToLead(is_able, random):
                replica.random = random
                replica.is_able_to_lead = is_able
            case Closing(random):
                replica.random = random
                replica.closing_deadline_ms = replica.now_ms + replica.config.close_timeout_ms
                if isinstance(replica.state, Leader):
                    leading.resign(replica, replica.state)
            case _:
                assert_never(event)

    # -- the start ------------------------------------------------------------------------------

    def _on_started(self, event: Started) -> None:
        replica = self.replica
        replica.random = event.random
        replica.begin_asking_at(event.random)
        replica.is_able_to_lead = event.is_able_to_lead
        replica.log = LogView(event.start_offset, event.end_offset, event.epochs, event.snapshots)
        replica.history = VoterHistory(event.history)
        replica.election = event.election
        seen = max(replica.log.last_epoch, event.seen_epoch)
        newest = max(seen, replica.epoch)
        if newest > EPOCH_MAX or (newest == EPOCH_MAX and replica.voters.is_sole(replica.key)):
            replica.fail(
                f"epoch {newest} in quorum-state or in the log leaves none to be elected in, the "
                f"last is {EPOCH_MAX}: format this node as one that lost its disk"
            )
            replica.enter(Unattached(replica.draw_election_deadline()))
            return
        if newest == EPOCH_MAX:
            replica.report(LAST_EPOCH, is_error=True)
        if event.election.epoch < seen:
            # quorum-state is lost or older than the log, whose epochs count too.
            replica.persist(ElectionState(seen))
        replica.proven_epoch = replica.epoch
        replica.enter(self._first_state())

    def _first_state(self) -> RoleState:
        replica = self.replica
        election, key = replica.election, replica.key
        deadline_ms = replica.draw_election_deadline()
        voted = election.voted
        if election.leader_id == key.id:
            # Its appended records may be lost; other records of the same offsets and epoch must
            # never exist.
            others = [i for i in replica.voters.ids if i != key.id]
            return Resigned(deadline_ms, others, ())
        if replica.can_stand and voted in (key, ReplicaKey(key.id, ZERO_UUID)):
            return Candidate(deadline_ms, Tally(replica.voters, key))
        leader = None if election.leader_id is None else replica.node_of(election.leader_id)
        if leader is not None:
            return replica.follower_of(leader)
        return Unattached(deadline_ms)

    # -- requests and answers -------------------------------------------------------------------

    def _on_request(self, event: Received) -> None:
        replica, token = self.replica, event.token
        match event.request:
            case FetchRequest():
                leading.on_fetch_request(replica, token, event.request)
            case FetchSnapshotRequest():
                leading.on_fetch_snapshot_request(replica, token, event.request)
            case VoteRequest():
                voting.on_vote_request(replica, token, event.request)
            case BeginQuorumEpochRequest():
                voting.on_begin_request(replica, token, event.request)
            case EndQuorumEpochRequest():
                voting.on_end_request(replica, token, event.request)
            case AddVoterRequest():
                voter_changes.on_add_request(replica, token, event.request)
            case RemoveVoterRequest():
                voter_changes.on_remove_request(replica, token, event.request)
            case UpdateVoterRequest():
                voter_changes.on_update_request(replica, token, event.request)
            case UpgradeKraftVersionRequest():
                voter_changes.on_upgrade_request(replica, token, event.request)
            case _:
                assert_never(event.request)

    def _on_answer(self, event: Answered) -> None:
        replica = self.replica
        pending = replica.pending.pop(event.number, None)
        if pending is None:
            return  # of an earlier role or epoch
        if isinstance(pending.request, ApiVersionsRequest):
            assert event.response is None or isinstance(event.response, ApiVersionsResponse)
            voter_changes.on_versions(replica, pending, event.response)
            return
        assert not isinstance(event.response, ApiVersionsResponse)
        is_fetch = isinstance(pending.request, FetchRequest | FetchSnapshotRequest)
        if event.response is None:
            replica.back_off(pending.to)
            if is_fetch:
                following.on_fetch_failure(replica, pending)
            return
        if not self._is_handled(pending, event.response):
            self._dispatch(pending, event.response)

    def _is_handled(self, pending: Pending, response: Response) -> bool:
        """Process the common part of all answers; True if nothing else is left."""
        replica = self.replica
        error, standing = response.error, response.standing
        if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._meet_other_cluster(pending)
            return True
        if error is ErrorCode.UNSUPPORTED_VERSION and isinstance(response, VoteResponse):
            return False
        if standing.epoch < replica.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            replica.back_off(pending.to)
            self._look_elsewhere(pending, error)
            return True
        is_moved = error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not believes_answer(replica, standing.epoch, pending.to):
            replica.back_off(pending.to)
            self._look_elsewhere(pending, ErrorCode.UNKNOWN_LEADER_EPOCH)
            return True
        if standing.epoch > replica.epoch or is_moved:
            before = replica.state
            replica.follow(standing.epoch, standing.leader_id, standing.leader)
            if replica.state is before:
                replica.back_off(pending.to)
                self._look_elsewhere(pending, error)
            return True
        if standing.leader_id >= 0 and isinstance(
            replica.state, Unattached | Prospective | Candidate
        ):
            # The leader may be known from quorum-state, and only its address is new.
            replica.follow(standing.epoch, standing.leader_id, standing.leader)
        return False

    def _look_elsewhere(self, pending: Pending, error: ErrorCode) -> None:
        state = self.replica.state
        if isinstance(state, Follower):
            state.asks_others = False  # the others have no newer leader: back to this one
            is_refused = error is not ErrorCode.NONE  # otherwise it is only behind
            if is_refused and isinstance(pending.request, FetchSnapshotRequest):
                self.replica.drop_download(state)

    def _meet_other_cluster(self, pending: Pending) -> None:
        replica, to = self.replica, pending.to
        where = f"node {to.id} at {to.host}:{to.port}"
        if isinstance(replica.state, Follower) and replica.state.leader == to:
            # DIFFERS: Kafka logs it and retries; KIP-595 requires the node to end.
            replica.fail(f"{where}, the elected leader, belongs to another cluster")
            return
        replica.report(f"{where} belongs to another cluster", is_error=True)
        replica.back_off(to)

    def _dispatch(self, pending: Pending, response: Response) -> None:
        replica = self.replica
        match response:
            case FetchResponse():
                following.on_fetch_response(replica, pending, response)
            case FetchSnapshotResponse():
                following.on_fetch_snapshot_response(replica, pending, response)
            case VoteResponse():
                voting.on_vote_response(replica, pending, response)
            case BeginQuorumEpochResponse():
                if response.error is not ErrorCode.NONE:
                    replica.back_off(pending.to)
            case VoterResponse():
                following.on_voter_response(replica, pending, response)
            case EndQuorumEpochResponse():
                voting.on_end_response(replica, pending, response)
            case _:
                assert_never(response)

    # -- the disk -------------------------------------------------------------------------------

    def _on_flushed(self, end_offset: int) -> None:
        replica = self.replica
        replica.flushing = False
        log = replica.log
        log.flushed_end = max(log.flushed_end, min(end_offset, log.end_offset))
        replica.is_segment_full &= log.flushed_end < log.end_offset
        replica.flush()
        if isinstance(replica.state, Leader):
            leading.update_high_watermark(replica, replica.state)

    # -- what is due ----------------------------------------------------------------------------

    def _poll(self) -> None:
        for _ in range(_POLLS_MAX):
            if not self._poll_role():
                break
        else:
            raise AssertionError(f"{self.role} does not come to rest")
        if self.replica.closing_deadline_ms is None:
            ask_doubted(self.replica)
        self._poll_closing()

    def _poll_role(self) -> bool:
        replica, state = self.replica, self.replica.state
        match state:
            case Leader():
                voter_changes.poll(replica, state)
                return leading.poll_leader(replica, state)
            case Follower():
                return following.poll_follower(replica, state)
            case Unattached():
                if voting.poll_unattached(replica, state):
                    return True
                following.poll_unattached_asks(replica, state)
                return False
            case Prospective():
                return voting.poll_prospective(replica, state)
            case Candidate():
                winning = state.winning
                if winning is not None and replica.durable >= winning and not replica.busy:
                    leading.win(replica, state)
                    return True
                return voting.poll_candidate(replica, state)
            case Resigned():
                return voting.poll_resigned(replica, state)
            case _:
                assert_never(state)

    def _poll_closing(self) -> None:
        replica = self.replica
        if replica.closing_deadline_ms is None or self._is_closed:
            return
        # Until another stands: a follower of Kafka 4.3.1 gives no pre-vote, so ours may be needed.
        is_needed = isinstance(replica.state, Resigned) and len(replica.voters.ids) > 1
        if not is_needed or replica.now_ms >= replica.closing_deadline_ms:
            self._is_closed = True
            replica.do(Closed())
