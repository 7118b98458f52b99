"""Votes at the edges of each rule, on the core of one node: each answer whole."""

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import Report, Respond, Send
from metadata_topic.raft.events import AbleToLead, Closing, ElectionState, Tick
from metadata_topic.raft.messages import (
    NOBODY,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    Node,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey
from metadata_topic.raft.voting import successor_delay_ms
from tests.support.worlds.scripted_core import ScriptedCore, key, leading, node_of, static_facts

TOKEN = 7
ME, OTHER = key(2), key(1)
IN_EPOCH_1 = ElectionState(1)
UNREACHABLE = static_facts([1, 2, 3, 4])
"""The settings name no address of voter 4."""


def vote_of(
    epoch: int,
    candidate: ReplicaKey = OTHER,
    voter: ReplicaKey = ME,
    last_epoch: int = 0,
    end_offset: int = 0,
    *,
    pre_vote: bool = False,
) -> VoteRequest:
    return VoteRequest(epoch, candidate, voter, last_epoch, end_offset, pre_vote)


def voted(node: ScriptedCore, request: VoteRequest) -> VoteResponse:
    (answer,) = node.ask(request, TOKEN)
    assert isinstance(answer, Respond)
    assert answer.token == TOKEN
    assert isinstance(answer.response, VoteResponse)
    return answer.response


def granted(node: ScriptedCore, request: VoteRequest) -> bool:
    response = voted(node, request)
    assert response.error is ErrorCode.NONE
    return response.granted


def test_a_stranger_does_not_end_a_leadership_that_works() -> None:
    node = ScriptedCore()
    node.answer(node.follow(), node.records())
    assert voted(node, vote_of(2, key(9))) == VoteResponse(ErrorCode.NONE, leading(1, 1))


def test_who_is_not_meant_takes_over_the_epoch_and_refuses() -> None:
    node = ScriptedCore()
    refused = VoteResponse(ErrorCode.INVALID_VOTER_KEY, Standing(4))
    assert voted(node, vote_of(4, voter=key(3))) == refused
    assert granted(node, vote_of(4, voter=ReplicaKey(NOBODY)))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote_of(1, last_epoch=1), ErrorCode.INVALID_REQUEST),
        (vote_of(1, last_epoch=1, pre_vote=True), ErrorCode.NONE),
        (vote_of(1, last_epoch=2, pre_vote=True), ErrorCode.INVALID_REQUEST),
        (vote_of(-1, last_epoch=-2), ErrorCode.INVALID_REQUEST),
        (vote_of(1, last_epoch=-1), ErrorCode.INVALID_REQUEST),
        (vote_of(1, end_offset=-1), ErrorCode.INVALID_REQUEST),
        (vote_of(1, key(0)), ErrorCode.NONE),
        (vote_of(1, ReplicaKey(-1)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_input_what_no_candidate_can_say_is_refused(
    request_: VoteRequest, error: ErrorCode
) -> None:
    response = voted(ScriptedCore(voters=(0, 1, 2)), request_)
    assert (response.error, response.granted) == (error, error is ErrorCode.NONE)


def test_a_leader_would_grant_nobody_its_own_epoch() -> None:
    node = ScriptedCore()
    node.lead()
    assert not granted(node, vote_of(1, last_epoch=1, end_offset=99, pre_vote=True))


def test_another_process_with_our_key_gets_no_vote_and_is_reported() -> None:
    node = ScriptedCore(election=IN_EPOCH_1)
    assert not granted(node, vote_of(1, key(2)))
    assert node.wanted(Report) == [Report("node 2 with our key asks for votes", True)]


def test_a_vote_is_given_again_to_the_same_candidate_alone() -> None:
    node = ScriptedCore()
    assert granted(node, vote_of(1))
    assert granted(node, vote_of(1))
    assert not granted(node, vote_of(1, ReplicaKey(1, b"another".ljust(16))))
    assert not granted(node, vote_of(1, ReplicaKey(3, key(1).directory_id)))
    assert not granted(node, vote_of(1, key(3)))
    nameless = ScriptedCore(election=ElectionState(1, None, ReplicaKey(1)))
    assert granted(nameless, vote_of(1))


def test_who_asks_for_pre_votes_may_still_vote_in_that_epoch() -> None:
    node = ScriptedCore(election=IN_EPOCH_1)
    node.tick(1_999)
    assert node.core.role is Role.PROSPECTIVE
    assert granted(node, vote_of(1))
    assert (node.core.role, node.core.election.voted) == (Role.UNATTACHED, key(1))


@pytest.mark.parametrize(
    ("voter", "error"), [(key(2), ErrorCode.NONE), (key(3), ErrorCode.INVALID_VOTER_KEY)]
)
def test_a_leader_is_followed_though_it_means_another(voter: ReplicaKey, error: ErrorCode) -> None:
    node = ScriptedCore(voters=(0, 2, 3))
    (answer,) = node.ask(BeginQuorumEpochRequest(0, 0, voter, None), TOKEN)
    assert isinstance(answer, Respond)
    assert answer.response == BeginQuorumEpochResponse(error, leading(0, 0))


def test_a_leader_that_speaks_again_is_followed_again() -> None:
    node = ScriptedCore()
    node.follow()
    node.tick(node.now_ms + 2_000)
    assert node.core.role is Role.PROSPECTIVE
    node.ask(EndQuorumEpochRequest(1, 1, (), node_of(1)))
    assert node.core.role is Role.PROSPECTIVE, "it only says that it goes"
    node.ask(BeginQuorumEpochRequest(1, 1, key(2), node_of(1)))
    assert node.core.role is Role.FOLLOWER


def test_who_hears_only_the_end_of_a_leadership_knows_whose_it_was() -> None:
    node = ScriptedCore()
    (answer,) = node.ask(EndQuorumEpochRequest(1, 1, (), None))
    assert isinstance(answer, Respond)
    assert answer.response == EndQuorumEpochResponse(ErrorCode.NONE, leading(1, 1))
    moved = Node(1, "moved", 9093)
    node.ask(EndQuorumEpochRequest(1, 1, (), moved))
    assert node.core.replica.reported_leader == moved


@pytest.mark.parametrize(("epoch", "leader_id"), [(1, -1), (-1, 1)])
def test_bad_input_nobody_leads_and_nothing_before_epoch_0(epoch: int, leader_id: int) -> None:
    (answer,) = ScriptedCore().ask(BeginQuorumEpochRequest(epoch, leader_id, key(2), None))
    assert isinstance(answer, Respond)
    assert answer.response == BeginQuorumEpochResponse(ErrorCode.INVALID_REQUEST, Standing(0))


def test_two_leaders_of_an_epoch_and_one_with_our_id_are_reported() -> None:
    node = ScriptedCore()
    node.follow()
    node.ask(BeginQuorumEpochRequest(1, 3, key(2), node_of(3)))
    node.ask(BeginQuorumEpochRequest(2, 2, key(2), node_of(2)))
    assert node.wanted(Report) == [
        Report("two leaders of epoch 1: 1 and 3", True),
        Report("node 2 is another's id, too: it leads epoch 2", False),
    ]


def test_successors_stand_one_after_the_other() -> None:
    others = (key(1), key(3), key(4), key(5))
    delays = [
        successor_delay_ms((*others[:rank], key(2), *others[rank:]), key(2), 1_600)
        for rank in range(5)
    ]
    assert delays == [0, 100, 200, 400, 800]
    assert successor_delay_ms((key(1), ReplicaKey(2)), key(2), 1_600) == 800
    assert successor_delay_ms((ReplicaKey(1), key(3)), key(2), 1_600) == 1_600
    assert successor_delay_ms((key(1), ReplicaKey(2, b"b" * 16)), key(2), 1_600) == 1_600


def test_who_can_no_longer_lead_gives_a_candidacy_up() -> None:
    node = ScriptedCore()
    node.tick(1_999)
    assert node.core.role is Role.PROSPECTIVE
    node.step(AbleToLead(False, 0.0))
    assert node.core.role is Role.UNATTACHED


def test_after_a_lost_pre_vote_a_voter_knows_its_leader_and_fetches() -> None:
    node = ScriptedCore(facts=UNREACHABLE)
    node.ask(BeginQuorumEpochRequest(1, 4, key(2), None))
    node.tick(1_999)
    pre_votes = node.take(VoteRequest)
    assert [one.to.id for one in pre_votes] == [1, 3]
    for vote in pre_votes:
        node.answer(vote, node.no())
    assert (node.core.role, node.core.leader_id) == (Role.UNATTACHED, 4)
    assert len(node.take(FetchRequest)) == 1


def test_a_pre_vote_waits_for_the_epoch_and_not_for_a_vote_that_was_given() -> None:
    node = ScriptedCore()
    assert granted(node, vote_of(1))
    node.tick(1_999)
    waits_for = {one.after for one in node.take(VoteRequest)}
    assert waits_for == {node.core.replica.epoch_persist}
    assert waits_for != {node.core.replica.last_persist}


def test_a_voter_that_refused_with_an_error_is_left_alone_for_a_while() -> None:
    node = ScriptedCore(config=RaftConfig(retry_backoff_ms=20))
    vote, _ = node.stand()
    node.answer(vote, VoteResponse(ErrorCode.INVALID_REQUEST, Standing(1)))
    assert node.take(VoteRequest) == []
    node.tick(node.now_ms + 20)
    assert [one.to for one in node.take(VoteRequest)] == [vote.to]


def test_a_resigning_leader_sends_its_endpoints_and_retries_after_backoff() -> None:
    node = ScriptedCore(config=RaftConfig(retry_backoff_ms=20))
    node.lead()
    for begin in node.take(BeginQuorumEpochRequest):
        node.answer(begin, BeginQuorumEpochResponse(ErrorCode.NONE, leading(1, 2)))
    node.step(Closing(0.0))
    first, _ = node.take(EndQuorumEpochRequest)
    assert isinstance(first.request, EndQuorumEpochRequest)
    assert first.request.leader == node_of(2)
    node.answer(first, EndQuorumEpochResponse(ErrorCode.INVALID_REQUEST, leading(1, 2)))
    assert node.take(EndQuorumEpochRequest) == []
    node.tick(node.now_ms + 20)
    assert [one.to for one in node.take(EndQuorumEpochRequest)] == [first.to]


def test_a_sole_voter_that_led_before_its_restart_leads_again_at_once() -> None:
    node = ScriptedCore(voters=(2,), election=ElectionState(1, 2, key(2)))
    assert (node.core.role, node.core.epoch) == (Role.LEADER, 2)


def test_a_former_leader_asks_for_the_leader_when_its_timeout_ends() -> None:
    node = ScriptedCore(election=ElectionState(1, 2, key(2)))
    assert node.core.role is Role.RESIGNED
    effects = node.core.step(Tick(0.0), 1_999)
    assert (node.core.role, node.core.epoch) == (Role.UNATTACHED, 2)
    asked = [one.request for one in effects if isinstance(one, Send)]
    assert [type(one) for one in asked] == [FetchRequest]
