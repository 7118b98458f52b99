"""State of one replica, and the changes to it that all parts of the core make.

Invariants kept here:

* The epoch never falls, and a vote never changes within an epoch.
* Every change of epoch, leader or vote is a `Persist`, and later messages name the one that they
  depend on.
* A role is left and entered only by the table in `roles`.
"""

from dataclasses import dataclass
from typing import Final

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import (
    DropChunks,
    Effect,
    Fatal,
    FlushLog,
    Persist,
    Report,
    Respond,
    RoleChanged,
    Send,
)
from metadata_topic.raft.events import EPOCH_MAX, LAST_EPOCH, ElectionState
from metadata_topic.raft.log_view import LogView
from metadata_topic.raft.messages import (
    NOBODY,
    AddVoterRequest,
    FetchResponse,
    Node,
    Question,
    RemoveVoterRequest,
    Response,
    Standing,
    UpdateVoterRequest,
    VoterRequest,
    VoterResponse,
)
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
from metadata_topic.raft.roles import Role, check_transition
from metadata_topic.raft.voter_history import VoterHistory
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

NO_VOTERS = VoterSet(())
_REMEMBERED_MAX: Final = 64
_ROLES = {
    Unattached: Role.UNATTACHED,
    Prospective: Role.PROSPECTIVE,
    Candidate: Role.CANDIDATE,
    Leader: Role.LEADER,
    Follower: Role.FOLLOWER,
    Resigned: Role.RESIGNED,
}


@dataclass(frozen=True, slots=True)
class Pending:
    """A request without an answer yet."""

    to: Node
    request: Question


class Replica:
    """State of one replica.

    Attributes:
        now_ms: Time of the step.
        random: The newest random number, from [0, 1).
        effects: Of the step.
        high_watermark: The known one, at most the end of the log here; never falls.
        leader_high_watermark: The highest in a leader's answer to a Fetch; -1 none.
        durable: Number of the newest `Persist` that is durable.
        busy: A truncation or an installation of a snapshot is in progress: no appends.
        flushing: A flush is in progress.
        is_segment_full: No Fetch is sent before the log is flushed, so that a segment can begin.
        stale_chunks: Number of queued chunk writes that belong to an abandoned download.
        is_able_to_lead: See `AbleToLead`.
        closing_deadline_ms: Latest end of a closing process; None: it is not closing.
        leader_answered_ms: Time of the last answer to a Fetch by a leader; -1 never.
        reported_leader: The newest address that other nodes gave for the leader of this epoch, if
            it differs from the known one.
        proven_leader: Address at which the leader of this epoch has answered a Fetch.
        proven_epoch: The newest epoch in which a leader worked, or that of the start.
        doubted: Voters to ask for their epoch, after a request in their name was refused.
        disbelieved: Nodes whose epoch was refused with a report.
    """

    def __init__(self, key: ReplicaKey, config: RaftConfig) -> None:
        self.key = key
        self.config = config
        self.election = ElectionState()
        self.state: RoleState = Unattached(0)
        self.log = LogView(0, 0, (), ())
        self.history: VoterHistory
        self.high_watermark = self.leader_high_watermark = -1
        self.now_ms = 0
        self.random = 0.0
        self.effects: list[Effect] = []
        self.durable = 0
        self.busy = False
        self.flushing = False
        self.is_segment_full = False
        self.stale_chunks = 0
        self.is_able_to_lead = True
        self.closing_deadline_ms: int | None = None
        self.leader_answered_ms = -1
        self.reported_leader: Node | None = None
        self.proven_leader: Node | None = None
        self.proven_epoch = 0
        self.doubted: set[int] = set()
        self.disbelieved: set[Node] = set()
        self.pending: dict[int, Pending] = {}
        self._retry_at: dict[Node, int] = {}
        self._numbers = 0
        self._persists = 0
        self._epoch_persist = 0
        self._cursor = 0

    # -- facts ----------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The role."""
        return _ROLES[type(self.state)]

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.election.epoch

    @property
    def voters(self) -> VoterSet:
        """Voters by the newest record of the log, committed or not."""
        return self.history.latest.voters or NO_VOTERS

    @property
    def can_stand(self) -> bool:
        """True if this replica is a voter that may lead, and an epoch is left to stand in.

        DIFFERS: also a voter whose removal is not known to be committed may stand. The others may
        lack that record and need its vote, which it cannot give them: its log is ahead of theirs.
        In Kafka neither of two voters leads again then (`tests/model/voters`, rule 7).
        """
        may_vote = self.is_voter or self._is_removal_open
        return may_vote and self.is_able_to_lead and self.epoch < EPOCH_MAX

    @property
    def _is_removal_open(self) -> bool:
        before = self.history.before_latest
        if before is None or before.voters is None or not self.config.can_vote:
            return False
        was_voter = before.kraft_version > 0 and before.voters.has(self.key)
        return was_voter and self.history.latest_end > self.high_watermark

    @property
    def is_voter(self) -> bool:
        """True if this replica is a voter."""
        return self.config.can_vote and self.voters.has(self.key)

    @property
    def is_sole(self) -> bool:
        """True if this replica is the only voter, and can stand."""
        return self.can_stand and self.voters.is_sole(self.key)

    @property
    def last_persist(self) -> int:
        """Number of the newest `Persist`, for messages that depend on the vote."""
        return self._persists

    @property
    def epoch_persist(self) -> int:
        """Number of the `Persist` that took over the epoch."""
        return self._epoch_persist

    @property
    def own_voter(self) -> Voter:
        """This replica as an entry of a voter set in the log.

        A static voter without configured endpoints has the address in the settings.
        """
        said, config = self.config.endpoints, self.config
        if not said and self.history.latest.kraft_version == 0:
            said = tuple(
                VoterEndpoint(config.listener_name, one.host, one.port)
                for one in config.static_nodes
                if one.id == self.key.id
            )
        return Voter(self.key, said)

    def voters_with_own_report(self) -> VoterSet:
        """The voters, with this replica's own endpoints and versions."""
        mine = self.voters.get(self.key.id)
        if mine is None or not self._is_listed_wrong(mine):
            return self.voters
        return self.voters.with_voter(self.own_voter)

    def wanted_voters(self) -> VoterRequest | None:
        """Request to the leader that corrects this replica's entry in the voter set; None: no need.

        A replica that joins automatically first removes the voter of its id on another disk: two
        requests, since voters change one at a time.
        """
        mine = self.voters.get(self.key.id)
        if mine is not None and (self._is_listed_wrong(mine) or self._must_report):
            return UpdateVoterRequest(self.epoch, self.own_voter)
        config, level = self.config, self.history.latest.kraft_version
        joins = config.joins and config.can_vote and level > 0 and bool(config.endpoints)
        if not joins or self.voters.has(self.key):
            return None
        if mine is not None:
            return RemoveVoterRequest(self.epoch, mine.key)
        return AddVoterRequest(self.epoch, self.own_voter, waits_for_commit=False)

    @property
    def _must_report(self) -> bool:
        """True if a static voter has yet to report itself to this epoch's leader.

        kraft.version can be raised only after that: its directory id is recorded nowhere else.
        """
        is_static = self.history.latest.kraft_version == 0 and self.config.can_vote
        has_reported = isinstance(self.state, Follower) and self.state.has_reported
        return is_static and bool(self.own_voter.endpoints) and not has_reported

    def _is_listed_wrong(self, mine: Voter) -> bool:
        is_in_log = self.history.latest.kraft_version > 0 and mine.key == self.key
        said = self.config.endpoints
        return is_in_log and bool(said) and not mine.equals_reported(self.own_voter)

    def node_of(self, replica_id: int) -> Node | None:
        """Return the address of a voter; None if unknown.

        Once the voters are in the log, the addresses in the settings may be old.
        """
        if self.history.latest.kraft_version == 0:
            for node in self.config.static_nodes:
                if node.id == replica_id:
                    return node
        voter = self.voters.get(replica_id)
        if voter is None and (before := self.history.before_latest) is not None:
            # A voter may lead until its removal is committed, and the others must find it.
            voter = None if before.voters is None else before.voters.get(replica_id)
        if voter is None or not voter.endpoints:
            return None
        name, first = self.config.listener_name, voter.endpoints[0]
        endpoint = next((one for one in voter.endpoints if one.name == name), first)
        return Node(replica_id, endpoint.host, endpoint.port)

    def standing(self) -> Standing:
        """Epoch and leader, for every answer."""
        leader_id = self.election.leader_id
        if leader_id is None:
            return Standing(self.epoch)
        if isinstance(self.state, Follower):
            return Standing(self.epoch, leader_id, self.state.leader)
        return Standing(self.epoch, leader_id, self.node_of(leader_id))

    # -- effects --------------------------------------------------------------------------------

    def do(self, effect: Effect) -> None:
        """Add an effect to this step."""
        self.effects.append(effect)

    def report(self, text: str, *, is_error: bool = False) -> None:
        """Add a report for the operator."""
        self.effects.append(Report(text, is_error))

    def fail(self, reason: str) -> None:
        """End the node."""
        self.effects.append(Fatal(reason))

    def respond(self, token: int, response: Response, *, after: int | None = None) -> None:
        """Answer a request; the answer names the epoch, so it waits at least for its `Persist`."""
        self.effects.append(
            Respond(token, response, self._epoch_persist if after is None else after)
        )

    def is_ready(self, to: Node) -> bool:
        """True if a request may go to a node: none is in progress, and its backoff is over."""
        if any(pending.to == to for pending in self.pending.values()):
            return False
        return self.now_ms >= self._retry_at.get(to, 0)

    def back_off(self, to: Node) -> None:
        """Send no request to a node for `retry_backoff_ms`."""
        if len(self._retry_at) >= _REMEMBERED_MAX:  # other nodes may name any number of addresses
            now_ms = self.now_ms
            self._retry_at = {node: at for node, at in self._retry_at.items() if at > now_ms}
        self._retry_at[to] = self.now_ms + self.config.retry_backoff_ms

    def retry_at(self, to: Node) -> int | None:
        """Return when a node may get a request; None while one is in progress."""
        if any(pending.to == to for pending in self.pending.values()):
            return None
        return self._retry_at.get(to, 0)

    def send(self, to: Node, request: Question, *, after: int | None = None) -> None:
        """Send a request."""
        self._numbers += 1
        self.pending[self._numbers] = Pending(to, request)
        self.effects.append(
            Send(
                self._numbers,
                to,
                request,
                self.config.request_timeout_ms,
                self._epoch_persist if after is None else after,
            )
        )

    def persist(self, election: ElectionState) -> int:
        """Persist epoch, leader and vote; returns the number to wait for."""
        assert self.epoch <= election.epoch <= EPOCH_MAX, f"{election} after {self.election}"
        if election == self.election:
            return self._persists
        self._persists += 1
        if election.epoch > self.epoch:
            self._epoch_persist = self._persists
            self.reported_leader = self.proven_leader = None
            if election.epoch == EPOCH_MAX:
                self.report(LAST_EPOCH, is_error=True)
        self.election = election
        facts = self.history.latest
        self.do(Persist(self._persists, election, facts.kraft_version, self.voters))
        return self._persists

    def flush(self) -> None:
        """Flush the log, unless that is in progress or needless."""
        if not self.flushing and not self.busy and self.log.flushed_end < self.log.end_offset:
            self.flushing = True
            self.do(FlushLog())

    # -- other controllers ------------------------------------------------------------------------

    def anybody(self) -> list[Node]:
        """All other nodes that may know the leader: voters and bootstrap servers.

        All voters may have been replaced while this node was down.
        """
        nodes = [self.node_of(i) for i in self.voters.ids if i != self.key.id]
        known = [node for node in nodes if node is not None]
        if not known:
            return list(self.config.bootstrap)
        mine = self.node_of(self.key.id)
        places = {(one.host, one.port) for one in (*known, mine, *self.config.endpoints) if one}
        others = (one for one in self.config.bootstrap if (one.host, one.port) not in places)
        return [*known, *others]

    def next_to_ask(self, but: Node | None = None) -> Node | None:
        """Return the next of `anybody` that may get a request; None if there is none.

        Args:
            but: Not this one, if there are others.
        """
        nodes = self.anybody()
        others = [node for node in nodes if node != but] or nodes
        for turn in range(len(others)):
            node = others[(self._cursor + turn) % len(others)]
            if self.is_ready(node):
                self._cursor += turn + 1
                return node
        return None

    # -- time -----------------------------------------------------------------------------------

    def draw_election_deadline(self) -> int:
        """Draw a time in [T, 2T) from now; T is the election timeout."""
        timeout_ms = self.config.election_timeout_ms
        return self.now_ms + timeout_ms + min(int(self.random * timeout_ms), timeout_ms - 1)

    def begin_asking_at(self, random: float) -> None:
        """Set the node of `anybody` that is asked first."""
        self._cursor = int(random * 997)

    # -- roles ----------------------------------------------------------------------------------

    def become_unattached(self, epoch: int, leader_id: int | None = None) -> None:
        """Follow no leader, in this epoch or a higher one.

        Args:
            epoch: The new one.
            leader_id: Leader of that epoch, if known without an address.
        """
        state = self.state
        match state:
            case Candidate() | Unattached() | Resigned():
                deadline_ms = state.election_deadline_ms
            case Prospective() if not state.tally.is_lost:
                deadline_ms = state.election_deadline_ms
            case _:
                deadline_ms = self.draw_election_deadline()
        if isinstance(state, Resigned) and deadline_ms <= self.now_ms:
            deadline_ms = self.draw_election_deadline()
        voted = self.election.voted if epoch == self.epoch else None
        self._enter(Unattached(deadline_ms), ElectionState(epoch, leader_id, voted))

    def become_prospective(self) -> None:
        """Start a pre-vote."""
        leader = self.next_address(self.state) if isinstance(self.state, Follower) else None
        tally = Tally(self.voters, self.key)
        self._enter(Prospective(self.draw_election_deadline(), tally, leader), self.election)

    def become_candidate(self) -> None:
        """Stand in the next epoch."""
        state = Candidate(self.draw_election_deadline(), Tally(self.voters, self.key))
        self._enter(state, ElectionState(self.epoch + 1, None, self.key))

    def become_follower(self, epoch: int, leader: Node) -> None:
        """Fetch from a leader."""
        state = self.follower_of(leader)
        voted = self.election.voted if epoch == self.epoch else None
        self._enter(state, ElectionState(epoch, leader.id, voted))

    def follower_of(self, leader: Node) -> Follower:
        """Return the initial state of a follower; its log may be old."""
        due_ms = self.now_ms + self.config.fetch_timeout_ms
        return Follower(leader, due_ms, voter_request_ms=due_ms)

    def become_leader(self, state: Leader) -> None:
        """Lead; the caller has made that durable."""
        self._enter(state, self.election)

    def become_resigned(self, state: Resigned) -> None:
        """Lead no longer."""
        self._enter(state, self.election)

    def follow(
        self, epoch: int, leader_id: int, leader: Node | None, *, by_leader: bool = False
    ) -> None:
        """Take over an epoch with its leader, if either is new.

        Args:
            epoch: Not below ours.
            leader_id: -1 if unknown.
            leader: Address given by others; settings and voter set take precedence.
            by_leader: Sent by the leader itself.
        """
        if leader_id in (NOBODY, self.key.id):
            # No other node can lead by our own id: our own leadership is over.
            if epoch > self.epoch:
                self.become_unattached(epoch)
            return
        known = self.node_of(leader_id) or leader
        if epoch == self.epoch and self.election.leader_id is not None:
            if self.election.leader_id != leader_id:
                return
            self._note_reported_leader(leader_id, leader)
            known = self.proven_leader or known
            if by_leader and isinstance(self.state, Prospective) and self.state.leader is not None:
                known = (
                    self.state.leader
                )  # it is alive: return to it before trying its other address
            elif known is None or not self._lacks_leader():
                return
        if known is None:
            if epoch > self.epoch or self.election.leader_id is None:
                self._meet_leader_without_address(epoch, leader_id)
            return
        self.become_follower(epoch, known)
        self._note_reported_leader(leader_id, leader)

    def _note_reported_leader(self, leader_id: int, leader: Node | None) -> None:
        """Note an address that others give for the leader, if it differs from the known one.

        Only such an address is new: most nodes repeat the known one.
        """
        if leader not in {None, self._home_of(leader_id)}:
            self.reported_leader = leader

    def _home_of(self, leader_id: int) -> Node | None:
        """Address at which the leader of this epoch answered; before that, the configured one."""
        return self.proven_leader or self.node_of(leader_id)

    def _lacks_leader(self) -> bool:
        """True if an address given by others makes this replica follow the known leader.

        A follower that lost its leader runs a pre-vote first: the address may be of a dead node.
        """
        match self.state:
            case Unattached() | Candidate():
                return True
            case Prospective():
                return self.state.leader is None
            case _:
                return False

    def next_address(self, state: Follower) -> Node:
        """Return the address to try after the leader was silent for a fetch timeout.

        The known address (proven, or from settings or voter set) alternates with the one that
        others give: the leader may have moved.
        """
        home = self._home_of(state.leader.id)
        if home is not None and home != state.leader:
            return home
        return self.reported_leader or state.leader

    def _meet_leader_without_address(self, epoch: int, leader_id: int) -> None:
        if epoch > self.epoch or isinstance(self.state, Unattached | Prospective | Candidate):
            self.become_unattached(epoch, leader_id)

    def _enter(self, state: RoleState, election: ElectionState) -> None:
        old = self.state
        check_transition(_ROLES[type(old)], _ROLES[type(state)])
        self.persist(election)
        self.leave(old)
        self.enter(state)

    def enter(self, state: RoleState) -> None:
        """Take a role without a check by the table; only at the start."""
        self.state = state
        self.pending.clear()
        start = state.epoch_start_offset if isinstance(state, Leader) else None
        self.do(RoleChanged(self.role, self.epoch, self.election.leader_id, start))

    def drop_download(self, state: Follower) -> None:
        """Abandon the snapshot being fetched, if any."""
        if state.download is not None:
            # A new download of the same snapshot must not count this one's last chunk as its own.
            self.stale_chunks += state.download.is_writing
            state.download = None
            self.do(DropChunks())

    def leave(self, state: RoleState) -> None:
        """Release the state of a role; parked Fetches are answered."""
        if isinstance(state, Follower):
            self.drop_download(state)
        if isinstance(state, Leader):
            for parked in state.parked.every():
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                self.respond(parked.token, FetchResponse(error, self.standing()))
            if state.change is not None:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                self.respond(state.change.token, VoterResponse(error, self.standing()))
