"""Rows of KIP-595 about roles, votes and elections, each on the core of one node."""

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import Closed, Persist, Respond, RoleChanged, Send
from metadata_topic.raft.events import Closing, ElectionState, Received
from metadata_topic.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.role_states import Tally
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey, VoterSet
from tests.support.worlds.scripted_core import ScriptedCore, key, leading, node_of, static_facts

OBSERVER = RaftConfig(can_vote=False)


def test_k595_01_a_change_that_is_not_in_the_table_stops_the_node() -> None:
    leader = ScriptedCore()
    leader.lead()
    with pytest.raises(AssertionError, match="a leader replica cannot become candidate"):
        leader.core.replica.become_candidate()


def test_k595_06_an_observer_never_votes_or_stands_and_finds_the_leader() -> None:
    node = ScriptedCore(9, config=OBSERVER)
    (refused,) = node.ask(VoteRequest(5, key(1), key(9), 0, 0, pre_vote=False))
    assert isinstance(refused, Respond)
    assert refused.response.error is ErrorCode.UNSUPPORTED_VERSION
    assert node.core.election == ElectionState(), "epoch and vote are as they were"
    asked = set()
    for _ in range(20):
        node.run_until(node.now_ms + 5_000)
        for fetch in node.take(FetchRequest):
            asked.add(fetch.to.id)
            node.answer(fetch, None)
    assert asked == {1, 2, 3}, "it continues asking, all of them"
    assert {one.role for one in node.wanted(RoleChanged)} == {Role.UNATTACHED}
    node.run_until(node.now_ms + 5_000)
    (fetch,) = node.take(FetchRequest)
    node.answer(fetch, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leading(4, 3)))
    assert (node.core.role, node.core.leader_id) == (Role.FOLLOWER, 3)
    (fetch,) = node.take(FetchRequest)
    assert fetch.to == node_of(3), "one round trip was enough"


@pytest.mark.parametrize(
    ("random", "stands_at_ms"), [(0.0, 1_000), (0.5, 1_500), (0.999999, 1_999)]
)
def test_k595_23_election_timeout_is_random_from_once_to_twice_its_value(
    random: float, stands_at_ms: int
) -> None:
    node = ScriptedCore()
    vote = VoteRequest(1, key(1), key(2), 0, 0, pre_vote=False)
    node.step(Received(1, vote, random))  # a vote that is given draws again
    node.tick(stands_at_ms - 1)
    assert node.core.role is Role.UNATTACHED
    node.tick(stands_at_ms)
    assert node.core.role is Role.PROSPECTIVE


def test_k595_20_a_follower_stands_only_when_its_fetch_timeout_is_over() -> None:
    node = ScriptedCore()
    node.follow()
    since = node.now_ms
    node.tick(since + 1_999)
    assert node.core.role is Role.FOLLOWER
    assert node.take(VoteRequest) == []
    node.tick(since + 2_000)
    assert node.core.role is Role.PROSPECTIVE
    assert [one.request.pre_vote for one in node.take(VoteRequest)] == [True, True]


def test_k595_20_an_unattached_voter_stands_at_its_election_timeout() -> None:
    node = ScriptedCore()
    node.tick(999)
    assert node.core.role is Role.UNATTACHED
    node.tick(1_000)
    assert node.core.role is Role.PROSPECTIVE


def test_k595_20_a_named_successor_stands_at_once() -> None:
    node = ScriptedCore()
    node.follow()
    node.ask(EndQuorumEpochRequest(1, 1, (key(2), key(3)), node_of(1)))
    assert node.core.role is Role.PROSPECTIVE


def test_k595_21_a_candidate_has_its_vote_before_it_asks() -> None:
    node = ScriptedCore()
    votes = node.stand()
    durable = [one for one in node.wanted(Persist) if one.election.voted == key(2)]
    assert [one.election.epoch for one in durable] == [1]
    assert all(one.after == durable[0].number for one in votes)


def test_k595_27_a_vote_of_another_cluster_is_reported_and_skipped() -> None:
    node = ScriptedCore()
    first, second = node.stand()
    node.answer(first, VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, Standing(99)))
    assert node.reports == ["node 1 at n1:9093 belongs to another cluster"]
    assert (node.core.role, node.core.epoch) == (Role.CANDIDATE, 1)
    node.answer(second, node.yes())
    assert node.core.role is Role.LEADER
    assert node.fatal == []


def test_k595_16_an_elected_leader_of_another_cluster_is_fatal() -> None:
    node = ScriptedCore()
    fetch = node.follow()
    node.answer(fetch, FetchResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, Standing(0)))
    assert node.fatal == ["node 1 at n1:9093, the elected leader, belongs to another cluster"]


def test_k595_31_a_leader_follows_a_higher_epoch_and_may_vote_in_it() -> None:
    node = ScriptedCore()
    node.lead()
    (answer,) = node.ask(VoteRequest(7, key(3), key(2), 6, 99, pre_vote=False))
    assert isinstance(answer, Respond)
    assert answer.response == VoteResponse(ErrorCode.NONE, Standing(7), granted=True)
    assert node.core.election == ElectionState(7, None, key(3))


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INVALID_VOTER_KEY])
def test_k595_31_a_candidate_follows_a_higher_epoch_of_any_answer(
    error: ErrorCode,
) -> None:
    node = ScriptedCore()
    vote, other = node.stand()
    node.answer(vote, VoteResponse(error, Standing(5), granted=True))
    assert (node.core.role, node.core.epoch) == (Role.UNATTACHED, 5)
    node.answer(other, node.yes())
    assert node.core.role is Role.UNATTACHED, "a vote of the epoch before"

    node = ScriptedCore()
    vote, _ = node.stand()
    node.answer(vote, VoteResponse(error, leading(6, 3), granted=True))
    assert (node.core.role, node.core.epoch, node.core.leader_id) == (Role.FOLLOWER, 6, 3)


def test_k595_32_a_vote_of_an_older_role_or_epoch_does_not_count() -> None:
    node = ScriptedCore()
    first, second = node.stand()
    node.answer(first, node.no())
    node.answer(second, None)
    late = node.yes()
    node.tick(node.now_ms + 60_000)
    assert node.core.role is Role.PROSPECTIVE
    node.answer(second, late)
    assert node.core.role is Role.PROSPECTIVE, "that question was answered already"
    again = node.stand()
    node.answer(first, late)
    assert node.core.role is Role.CANDIDATE, "a vote of epoch 1 is none of epoch 2"
    node.answer(again[0], late)
    assert node.core.role is Role.CANDIDATE, "an answer of an older epoch says nothing"


def test_k595_34_a_refused_candidate_of_two_waits_for_its_election_timeout() -> None:
    node = ScriptedCore(voters=(1, 2))
    (vote,) = node.stand()
    stood_at = node.now_ms
    node.answer(vote, node.no())
    assert node.core.role is Role.CANDIDATE
    node.tick(stood_at + 999)
    assert (node.core.role, node.take(VoteRequest)) == (Role.CANDIDATE, [])
    node.tick(stood_at + 1_000)
    assert node.core.role is Role.PROSPECTIVE
    assert node.core.epoch == 1, "asking costs no epoch"


def test_k595_36_begin_goes_to_voters_until_they_fetch_not_to_observers() -> None:
    node = ScriptedCore()
    node.lead()
    to_1, to_3 = node.take(BeginQuorumEpochRequest)
    assert (to_1.to.id, to_3.to.id) == (1, 3)
    node.ask(FetchRequest(key(9), 1, 0, 0))
    told = node.now_ms
    fetch = FetchRequest(key(1), 1, 0, 0, max_wait_ms=0)
    node.tick(told + 900)
    node.ask(fetch)  # an endorsement
    node.tick(told + 999)
    assert node.take(BeginQuorumEpochRequest) == []
    node.answer(to_1, BeginQuorumEpochResponse(ErrorCode.NONE, leading(1, 2)))
    node.answer(to_3, None)
    node.tick(told + 1_100)
    assert [one.to.id for one in node.take(BeginQuorumEpochRequest)] == [3]


def test_k595_38_a_higher_epoch_in_a_begin_answer_makes_the_leader_follow() -> None:
    node = ScriptedCore()
    node.lead()
    begin, _ = node.take(BeginQuorumEpochRequest)
    fenced = BeginQuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, leading(6, 3))
    node.answer(begin, fenced)
    assert (node.core.role, node.core.epoch, node.core.leader_id) == (Role.FOLLOWER, 6, 3)


@pytest.mark.parametrize("best", [1, 3])
def test_k595_39_successors_are_named_by_how_much_they_have(best: int) -> None:
    node = ScriptedCore()
    node.lead()
    (other,) = {1, 3} - {best}
    node.ask(FetchRequest(key(other), 1, 0, 0, max_wait_ms=0))
    node.ask(FetchRequest(key(best), 1, 1, 1, max_wait_ms=0))
    for begin in node.take(BeginQuorumEpochRequest):
        node.answer(begin, None)
    node.step(Closing(0.0))
    node.run_until(node.now_ms + 100)
    told = [
        one.request for one in node.wanted(Send) if isinstance(one.request, EndQuorumEpochRequest)
    ]
    assert [[one.id for one in request.successors] for request in told] == [[best, other]] * 2


def test_k595_41_unreachable_voters_delay_a_stop_only_up_to_its_limit() -> None:
    node = ScriptedCore()
    node.lead()
    began = node.now_ms
    node.step(Closing(0.0))
    assert node.core.role is Role.RESIGNED
    node.run_until(began + 4_999)
    for end in node.take(EndQuorumEpochRequest):
        node.answer(end, None)
    assert node.wanted(Closed) == []
    node.run_until(began + 5_000)
    assert node.wanted(Closed) == [Closed()]
    assert node.core.role is Role.RESIGNED, "it does not lead that epoch again"


def test_k595_41_a_voter_that_heard_ends_no_wait_for_another() -> None:
    node = ScriptedCore()
    node.lead()
    began = node.now_ms
    node.step(Closing(0.0))
    heard = EndQuorumEpochResponse(ErrorCode.NONE, node.core.replica.standing())
    node.answer(node.take(EndQuorumEpochRequest)[0], heard)
    node.run_until(began + 4_999)
    assert node.wanted(Closed) == []
    node.run_until(began + 5_000)
    assert node.wanted(Closed) == [Closed()]


def test_k595_41_voters_that_hear_late_do_not_prolong_a_stop() -> None:
    node = ScriptedCore()
    node.lead()
    began = node.now_ms
    node.step(Closing(0.0))
    node.run_until(began + 4_900)
    heard = EndQuorumEpochResponse(ErrorCode.NONE, node.core.replica.standing())
    for end in node.take(EndQuorumEpochRequest):
        node.answer(end, heard)
    assert node.wanted(Closed) == []
    node.run_until(began + 5_000)
    assert node.wanted(Closed) == [Closed()]


def test_k595_39_a_leader_of_two_stays_for_the_backoff_at_most() -> None:
    node = ScriptedCore(voters=(1, 2), config=RaftConfig(election_backoff_max_ms=300))
    node.lead()
    node.step(Closing(0.0))
    (end,) = node.take(EndQuorumEpochRequest)
    node.answer(end, EndQuorumEpochResponse(ErrorCode.NONE, node.core.replica.standing()))
    heard_ms = node.now_ms
    node.run_until(heard_ms + 299)
    assert node.wanted(Closed) == []
    node.run_until(heard_ms + 300)
    assert node.wanted(Closed) == [Closed()]


def test_k595_39_a_lone_leader_that_stops_waits_for_nobody() -> None:
    node = ScriptedCore(voters=(2,))
    node.run_until(5_000)
    assert node.core.role is Role.LEADER
    node.step(Closing(0.0))
    assert node.wanted(Closed) == [Closed()]


@pytest.mark.parametrize("asks", [False, True])
def test_k595_39_a_leader_that_all_heard_stays_to_give_its_vote(asks: bool) -> None:
    """A follower of Kafka 4.3.1 gives no pre-vote then: without this one the first heir loses."""
    node = ScriptedCore()
    node.lead()
    node.step(Closing(0.0))
    for end in node.take(EndQuorumEpochRequest):
        node.answer(end, EndQuorumEpochResponse(ErrorCode.NONE, node.core.replica.standing()))
    heard_ms, epoch, log = node.now_ms, node.core.epoch, node.core.replica.log
    assert node.wanted(Closed) == []
    if asks:
        pre_vote, vote = (
            VoteRequest(
                epoch + is_real,
                key(1),
                key(2),
                log.last_epoch,
                log.end_offset,
                pre_vote=not is_real,
            )
            for is_real in (False, True)
        )
        assert _is_granted(node.ask(pre_vote)[0].response)
        node.ask(vote)
    else:
        node.run_until(heard_ms + 999)
        assert node.wanted(Closed) == []
        node.run_until(heard_ms + 1_000)
    assert node.wanted(Closed) == [Closed()]


def test_bad_input_a_candidate_outside_the_voters_is_validated_equally() -> None:
    """N106."""
    node = ScriptedCore(log=((3, 0), (0, 10)), election=ElectionState(3))
    shorter = VoteRequest(4, ReplicaKey(77), key(2), 3, 9, pre_vote=False)
    longer = VoteRequest(5, ReplicaKey(77), key(2), 3, 10, pre_vote=False)
    answers = [node.ask(one)[0] for one in (shorter, longer)]
    granted = [isinstance(one, Respond) and _is_granted(one.response) for one in answers]
    assert granted == [False, True]


def _is_granted(response: object) -> bool:
    return isinstance(response, VoteResponse) and response.granted


def test_bad_input_the_vote_of_a_stranger_counts_towards_no_majority() -> None:
    """N106."""
    tally = Tally(static_facts([1, 2, 3]).voters or VoterSet(()), key(2))
    tally.take(77, granted=True)
    assert (tally.granted, tally.is_won) == ({2}, False)
    tally.take(3, granted=True)
    assert tally.is_won
