"""Elections: votes of a replica, and its own candidacy.

Source: KIP-595 (Vote), KIP-996 (pre-vote), KIP-853 (keys of voters); rules of Kafka 4.3.
"""

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from metadata_topic.raft.epochs import believes_request, is_disturbing
from metadata_topic.raft.events import EPOCH_MAX, ElectionState
from metadata_topic.raft.messages import (
    NOBODY,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.replica import Pending, Replica
from metadata_topic.raft.role_states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from metadata_topic.raft.voters import ReplicaKey

# -- requests ---------------------------------------------------------------------------------


def on_vote_request(replica: Replica, token: int, request: VoteRequest) -> None:
    """Answer a candidate."""
    error = _vote_error(replica, request)
    if error is None and is_disturbing(replica, request.epoch, request.candidate.id):
        replica.respond(token, VoteResponse(ErrorCode.NONE, replica.standing()))
        return
    if error is None and request.epoch > replica.epoch:
        replica.become_unattached(request.epoch)
    if error is None and not is_meant_for(request.voter, replica.key):
        error = ErrorCode.INVALID_VOTER_KEY
    if error is not None:
        replica.respond(token, VoteResponse(error, replica.standing()))
        return
    granted = would_grant(replica, request)
    after = replica.epoch_persist
    if not request.pre_vote:
        if granted:
            _give_vote(replica, request.candidate)
        # A refusal may depend on the vote of this epoch; a grant is the vote.
        after = replica.last_persist
    replica.respond(token, VoteResponse(ErrorCode.NONE, replica.standing(), granted), after=after)


def _vote_error(replica: Replica, request: VoteRequest) -> ErrorCode | None:
    last_allowed = request.epoch if request.pre_vote else request.epoch - 1
    is_absurd = min(request.epoch, request.last_epoch, request.end_offset) < 0
    if is_absurd or request.candidate.id < 0 or request.last_epoch > last_allowed:
        return ErrorCode.INVALID_REQUEST
    if not replica.config.can_vote:
        return ErrorCode.UNSUPPORTED_VERSION
    if request.epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not believes_request(replica, request.epoch, request.candidate.id):
        return ErrorCode.INVALID_REQUEST
    return None


def is_meant_for(voter: ReplicaKey, me: ReplicaKey) -> bool:
    """True if a request's addressee, if it names one, is this replica."""
    if voter.id == NOBODY:
        return True
    return voter.id == me.id and voter.directory_id in (ZERO_UUID, me.directory_id)


def would_grant(replica: Replica, request: VoteRequest) -> bool:
    """True if the candidate gets, or would get, this replica's vote in the current epoch.

    Observing controllers answer like unattached voters: the record that made them voters may not
    have reached them (KIP-853).
    """
    is_new_enough = replica.log.is_behind(request.last_epoch, request.end_offset)
    state, election = replica.state, replica.election
    if request.pre_vote:
        if isinstance(state, Leader):
            return False
        if isinstance(state, Follower) and replica.is_voter:
            return is_new_enough and (not state.has_fetched or state.leader_resigned)
        return is_new_enough
    if not isinstance(state, Unattached | Prospective):
        return False
    if is_meant_for(request.candidate, replica.key):
        # Kafka's process ends over it. A copy of this node does not get its vote: after a restart
        # this replica could stand in that epoch, too.
        replica.report(f"node {request.candidate.id} with our key asks for votes", is_error=True)
        return False
    if election.voted is not None:
        return _is_same_candidate(election.voted, request.candidate)
    return election.leader_id is None and is_new_enough


def _is_same_candidate(voted: ReplicaKey, candidate: ReplicaKey) -> bool:
    if voted.id != candidate.id:
        return False
    return voted.directory_id in (ZERO_UUID, candidate.directory_id)


def _give_vote(replica: Replica, candidate: ReplicaKey) -> None:
    if replica.election.voted is not None:
        return
    replica.persist(ElectionState(replica.epoch, None, candidate))
    state = replica.state
    assert isinstance(state, Unattached | Prospective)
    if isinstance(state, Prospective):
        replica.become_unattached(replica.epoch)
        state = replica.state
        assert isinstance(state, Unattached)
    state.election_deadline_ms = replica.draw_election_deadline()


def on_begin_request(replica: Replica, token: int, request: BeginQuorumEpochRequest) -> None:
    """Take the announcement of a leader."""
    error = _leaders_error(replica, request.epoch, request.leader_id)
    if error is None:
        replica.follow(request.epoch, request.leader_id, request.leader, by_leader=True)
        if not is_meant_for(request.voter, replica.key):
            error = ErrorCode.INVALID_VOTER_KEY
    replica.respond(token, BeginQuorumEpochResponse(error or ErrorCode.NONE, replica.standing()))


def on_end_request(replica: Replica, token: int, request: EndQuorumEpochRequest) -> None:
    """Take the leader's resignation: stand after this replica's delay as successor."""
    error = _leaders_error(replica, request.epoch, request.leader_id)
    if error is None:
        replica.follow(request.epoch, request.leader_id, request.leader)
        state = replica.state
        if isinstance(state, Follower) and replica.can_stand:
            state.leader_resigned = True
            delay_ms = successor_delay_ms(
                request.successors, replica.key, replica.config.election_backoff_max_ms
            )
            state.fetch_deadline_ms = replica.now_ms + delay_ms
    replica.respond(token, EndQuorumEpochResponse(error or ErrorCode.NONE, replica.standing()))


def _leaders_error(replica: Replica, epoch: int, leader_id: int) -> ErrorCode | None:
    if leader_id < 0 or epoch < 0:
        return ErrorCode.INVALID_REQUEST
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    known = replica.election.leader_id
    if epoch == replica.epoch and known is not None and known != leader_id:
        replica.report(f"two leaders of epoch {epoch}: {known} and {leader_id}", is_error=True)
        return ErrorCode.INVALID_REQUEST
    if leader_id == replica.key.id:
        replica.report(f"node {leader_id} is another's id, too: it leads epoch {epoch}")
        return ErrorCode.INVALID_REQUEST
    if not believes_request(replica, epoch, leader_id):
        return ErrorCode.INVALID_REQUEST
    if is_disturbing(replica, epoch, leader_id):
        return ErrorCode.INVALID_REQUEST
    return None


def successor_delay_ms(
    successors: tuple[ReplicaKey, ...], me: ReplicaKey, backoff_max_ms: int
) -> int:
    """Return the delay of a proposed successor before it stands.

    Args:
        successors: Best first; directory ids are zero if the sender's version has none.
        me: This replica.
        backoff_max_ms: `controller.quorum.election.backoff.max.ms`.
    """
    count = len(successors)
    for rank, successor in enumerate(successors):
        if successor.id == me.id and successor.directory_id in (ZERO_UUID, me.directory_id):
            if rank == 0:
                return 0
            return min(backoff_max_ms, (backoff_max_ms >> (count - 1)) << (rank - 1))
    return backoff_max_ms


# -- candidacy --------------------------------------------------------------------------------


def poll_unattached(replica: Replica, state: Unattached) -> bool:
    """Stand when the timeout is over; returns whether the role changed."""
    is_due = replica.is_sole or replica.now_ms >= state.election_deadline_ms
    if is_due and replica.can_stand and replica.closing_deadline_ms is None:
        replica.become_prospective()
        return True
    return False


def poll_prospective(replica: Replica, state: Prospective) -> bool:
    """Continue with a pre-vote; returns whether the role changed."""
    if not replica.can_stand:
        return _give_up(replica, state)  # removed from the voters meanwhile
    if state.tally.is_won or state.cannot_ask:
        replica.become_candidate()
        return True
    if state.tally.is_lost or replica.now_ms >= state.election_deadline_ms:
        return _give_up(replica, state)
    _ask_for_votes(replica, state)
    return False


def _give_up(replica: Replica, state: Prospective) -> bool:
    if state.leader is not None:
        replica.become_follower(replica.epoch, state.leader)
    else:
        replica.become_unattached(replica.epoch, replica.election.leader_id)
        if not replica.is_voter and isinstance(replica.state, Unattached):
            # It may have been removed long ago: it fetches the log before it stands again.
            replica.state.election_deadline_ms = replica.draw_election_deadline()
    return True


def poll_candidate(replica: Replica, state: Candidate) -> bool:
    """Continue with an election; returns whether the role changed or a majority was reached."""
    if state.winning is not None:
        return False
    if state.tally.is_won:
        # The leadership is durable before any record of it: otherwise a restart could win this
        # epoch again and give the same offsets to other records.
        state.winning = replica.persist(
            ElectionState(replica.epoch, replica.key.id, replica.election.voted)
        )
        return True
    if replica.now_ms >= state.election_deadline_ms:
        replica.become_prospective()
        return True
    if not state.tally.is_lost:
        _ask_for_votes(replica, state)
    return False


def _ask_for_votes(replica: Replica, state: Prospective | Candidate) -> None:
    is_pre_vote = isinstance(state, Prospective)
    if not is_pre_vote and replica.log.flushed_end < replica.log.end_offset:
        # A vote is given to this log. It also counts for a candidate that stands again in this
        # epoch after a crash. So the log must be durable first.
        replica.flush()
        return
    after = replica.epoch_persist if is_pre_vote else replica.last_persist
    for voter_id in state.tally.unanswered:
        node = replica.node_of(voter_id)
        voter = replica.voters.get(voter_id)
        if node is None or voter is None or not replica.is_ready(node):
            continue
        request = VoteRequest(
            epoch=replica.epoch,
            candidate=replica.key,
            voter=voter.key,
            last_epoch=replica.log.last_epoch,
            end_offset=replica.log.end_offset,
            pre_vote=is_pre_vote,
        )
        replica.send(node, request, after=after)


def on_vote_response(replica: Replica, pending: Pending, response: VoteResponse) -> None:
    """Count an answer; the caller has checked its epoch."""
    state = replica.state
    if response.error is ErrorCode.UNSUPPORTED_VERSION and isinstance(state, Prospective):
        state.cannot_ask = True
    elif response.error is not ErrorCode.NONE:
        replica.back_off(pending.to)
    elif isinstance(state, Prospective | Candidate):
        state.tally.take(pending.to.id, granted=response.granted)


def on_end_response(replica: Replica, pending: Pending, response: EndQuorumEpochResponse) -> None:
    """Take a voter's acknowledgement of this replica's resignation."""
    state = replica.state
    if isinstance(state, Resigned) and pending.to.id in state.unacknowledged:
        if response.error is ErrorCode.NONE:
            state.unacknowledged.remove(pending.to.id)
            if replica.closing_deadline_ms is not None and not state.unacknowledged:
                last_ms = replica.now_ms + replica.config.election_backoff_max_ms
                replica.closing_deadline_ms = min(replica.closing_deadline_ms, last_ms)
        else:
            replica.back_off(pending.to)


def poll_resigned(replica: Replica, state: Resigned) -> bool:
    """Send the resignation to the others; continue in the next epoch after the timeout."""
    is_closing = replica.closing_deadline_ms is not None
    if replica.is_sole and not is_closing:
        replica.become_prospective()
        return True
    is_due = replica.now_ms >= state.election_deadline_ms and replica.epoch < EPOCH_MAX
    if is_due and not is_closing:
        replica.become_unattached(replica.epoch + 1)
        return True
    me = replica.node_of(replica.key.id)
    for voter_id in state.unacknowledged:
        node = replica.node_of(voter_id)
        if node is not None and replica.is_ready(node):
            request = EndQuorumEpochRequest(replica.epoch, replica.key.id, state.successors, me)
            replica.send(node, request)
    return False
