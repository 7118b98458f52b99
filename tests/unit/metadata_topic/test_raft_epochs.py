"""Epochs and addresses that a replica takes over from others, and those it does not."""

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.effects import Fatal, Persist, Respond
from metadata_topic.raft.epochs import EPOCH_MAX, JUMP_END_MAX, JUMP_MAX, is_believable
from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.messages import (
    ANY_REPLICA,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Node,
    Request,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey
from tests.support.worlds.told_core import ToldCore, key, leading, node_of

OURS = 5
STRANGER = 77
MOVED = Node(1, "moved", 7777)


def requests(epoch: int, asker: int) -> dict[str, Request]:
    """Each request by which somebody can name an epoch that becomes ours."""
    me, last = ReplicaKey(asker, b"\x07" * 16), min(OURS, epoch - 1)
    return {
        "vote": VoteRequest(epoch, me, ANY_REPLICA, last, 10, pre_vote=False),
        "pre-vote": VoteRequest(epoch, me, ANY_REPLICA, last, 10, pre_vote=True),
        "begin": BeginQuorumEpochRequest(epoch, asker, ANY_REPLICA, Node(asker, "evil", 1)),
        "end": EndQuorumEpochRequest(epoch, asker, (), None),
    }


KINDS = list(requests(1, 1))


def unattached() -> ToldCore:
    """A voter in epoch 5 that hears nobody."""
    return ToldCore(election=ElectionState(OURS), log=[(OURS, 0), (0, 10)])


def error_of(answers: list[object]) -> ErrorCode:
    (answer,) = answers
    assert isinstance(answer, Respond)
    return answer.response.error


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("theirs", "asked", "answered"),
    [
        (OURS - 1, True, True),
        (OURS + JUMP_MAX, True, True),
        (OURS + JUMP_MAX + 1, False, True),
        (JUMP_END_MAX, False, True),
        (JUMP_END_MAX + 1, False, False),
        (EPOCH_MAX, False, False),
    ],
)
def test_a_jump_needs_an_answer_from_a_known_address(
    theirs: int, known: bool, asked: bool, answered: bool
) -> None:
    believed = is_believable(theirs, OURS, from_known_address=known)
    assert believed is (answered if known else asked)


def test_the_last_epoch_is_reached_by_steps_and_none_is_after_it() -> None:
    for known in (False, True):
        assert is_believable(EPOCH_MAX, EPOCH_MAX - 1, from_known_address=known)
        assert not is_believable(EPOCH_MAX + 1, EPOCH_MAX, from_known_address=known)


@pytest.mark.parametrize("asker", [3, STRANGER])
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_raises_our_epoch_by_a_thousand_at_most(kind: str, asker: int) -> None:
    node = unattached()
    assert error_of(list(node.ask(requests(OURS + JUMP_MAX + 1, asker)[kind]))) is (
        ErrorCode.INVALID_REQUEST
    )
    assert (node.core.epoch, node.wanted(Persist)) == (OURS, [])
    node.ask(requests(OURS + JUMP_MAX, asker)[kind])
    assert node.core.epoch == OURS + JUMP_MAX


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", [Role.LEADER, Role.FOLLOWER, Role.CANDIDATE])
def test_no_request_ends_a_replica_by_the_highest_epoch(kind: str, role: Role) -> None:
    node = ToldCore()
    if role is Role.LEADER:
        node.lead()
    elif role is Role.CANDIDATE:
        node.stand()
    else:
        node.follow(leader_id=1, epoch=1)
    before = node.core.epoch
    for epoch in (2**31 - 1, EPOCH_MAX):
        for asker in (1, 3, STRANGER):
            assert error_of(list(node.ask(requests(epoch, asker)[kind]))) is (
                ErrorCode.INVALID_REQUEST
            )
    assert (node.core.role, node.core.epoch, node.fatal) == (role, before, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_voter_in_whose_name_a_jump_came_is_asked_and_its_answer_counts(kind: str) -> None:
    node = ToldCore()
    node.lead()
    for begun in node.take(BeginQuorumEpochRequest):
        node.answer(begun, None)
    node.run_until(node.now_ms + 100)
    node.take(FetchRequest)
    node.ask(requests(90_000, 3)[kind])
    (fetch,) = node.take(FetchRequest)
    assert fetch.to == node_of(3)
    node.answer(fetch, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, leading(90_000, 3)))
    assert (node.core.epoch, node.core.leader_id, node.core.role) == (90_000, 3, Role.FOLLOWER)


def test_a_voter_that_was_named_by_another_keeps_our_epoch_as_it_is() -> None:
    node = unattached()
    for asked in node.take(FetchRequest):
        node.answer(asked, None)
    node.run_until(node.now_ms + 100)
    for asked in node.take(FetchRequest):
        node.answer(asked, None)
    node.ask(requests(90_000, 3)["vote"])
    for asked in node.take(FetchRequest):
        node.answer(asked, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, Standing(OURS)))
    assert (node.core.epoch, node.core.role) == (OURS, Role.UNATTACHED)


@pytest.mark.parametrize("epoch", [JUMP_END_MAX + 1, 2**31 - 1])
def test_an_answer_leaves_a_million_elections(epoch: int) -> None:
    node = unattached()
    (fetch,) = node.take(FetchRequest)
    for _ in range(3):
        node.answer(fetch, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, leading(epoch, 3)))
        node.run_until(node.now_ms + 30)
        fetch = node.take(FetchRequest)[-1]
    assert node.core.epoch == OURS
    assert len([text for text in node.reports if str(epoch) in text]) == 1


def test_an_answer_from_an_address_that_somebody_named_takes_no_jump() -> None:
    node = ToldCore(election=ElectionState(OURS), log=[(OURS, 0), (0, 10)])
    node.ask(BeginQuorumEpochRequest(OURS + 1, STRANGER, ANY_REPLICA, Node(STRANGER, "evil", 1)))
    fetch = node.take(FetchRequest)[-1]
    assert fetch.to.host == "evil"
    node.answer(fetch, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, leading(90_000, STRANGER)))
    assert node.core.epoch == OURS + 1


def test_nobody_stands_after_the_last_epoch_and_it_says_so_at_a_start() -> None:
    node = ToldCore(election=ElectionState(EPOCH_MAX))
    node.run_until(60_000)
    assert (node.core.role, node.core.epoch) == (Role.UNATTACHED, EPOCH_MAX)
    beyond = ToldCore(election=ElectionState(EPOCH_MAX + 1))
    (fatal,) = beyond.wanted(Fatal)
    assert "no election is left" in fatal.reason
    resigned = ToldCore(election=ElectionState(EPOCH_MAX, leader_id=2))
    resigned.run_until(60_000)
    assert (resigned.core.role, resigned.core.epoch) == (Role.RESIGNED, EPOCH_MAX)


# -- strangers while there is a leader ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["vote", "begin", "end"])
@pytest.mark.parametrize("voters", [(2,), (1, 2, 3)])
def test_a_stranger_deposes_no_leader_that_a_majority_follows(
    kind: str, voters: tuple[int, ...]
) -> None:
    node = ToldCore(voters=voters)
    if len(voters) == 1:
        node.run_until(2_000)
    else:
        node.lead()
    epoch = node.core.epoch
    for step in range(1, 10):
        node.ask(requests(epoch + step, STRANGER)[kind])
    assert (node.core.role, node.core.epoch) == (Role.LEADER, epoch)


@pytest.mark.parametrize("kind", ["vote", "begin", "end"])
def test_a_stranger_may_be_a_new_voter_once_the_leader_is_silent(kind: str) -> None:
    node = ToldCore()
    node.answer(node.follow(leader_id=1, epoch=1), node.records())
    until = node.now_ms + 2_000
    node.tick(until - 1)
    node.ask(requests(2, STRANGER)[kind])
    assert (node.core.role, node.core.epoch) == (Role.FOLLOWER, 1)
    node.tick(until)
    node.ask(requests(2, STRANGER)[kind])
    assert node.core.epoch == 2


def test_a_stranger_with_the_best_log_wins_where_there_is_no_leader() -> None:
    node = unattached()
    vote = VoteRequest(OURS + 1, key(STRANGER), ANY_REPLICA, OURS, 10, pre_vote=False)
    (answer,) = node.ask(vote)
    assert isinstance(answer, Respond)
    assert isinstance(answer.response, VoteResponse)
    assert answer.response.granted


# -- a leader that is heard of, or that moved ----------------------------------------------------


def voted_and_lost() -> ToldCore:
    """A start of a voter that voted for itself in the epoch that node 1 won."""
    return ToldCore(election=ElectionState(OURS, 1, key(2)), log=[(OURS, 0), (0, 10)])


@pytest.mark.parametrize("by", ["begin", "answer"])
def test_a_voter_that_lost_an_election_follows_as_soon_as_it_hears_of_the_leader(by: str) -> None:
    node = voted_and_lost()
    assert node.core.role is Role.CANDIDATE
    if by == "begin":
        node.ask(BeginQuorumEpochRequest(OURS, 1, node.core.key, node_of(1)))
    else:
        vote = node.take(VoteRequest)[-1]
        node.answer(vote, VoteResponse(ErrorCode.NONE, leading(OURS, 1)))
    assert (node.core.role, node.core.leader_id) == (Role.FOLLOWER, 1)


def silent_for_a_fetch_timeout() -> ToldCore:
    """A follower whose leader did not answer for a fetch timeout; it asks for pre-votes."""
    node = ToldCore()
    node.answer(node.follow(leader_id=1, epoch=1), None)
    node.run_until(node.now_ms + 2_000)
    assert node.core.role is Role.PROSPECTIVE
    return node


def test_a_leader_that_calls_is_followed_again_and_one_that_others_name_is_not() -> None:
    node = silent_for_a_fetch_timeout()
    first, _ = node.take(VoteRequest)
    node.answer(first, VoteResponse(ErrorCode.NONE, leading(1, 1), granted=True))
    assert node.core.role is Role.CANDIDATE, "a dead leader is still named by its followers"
    node = silent_for_a_fetch_timeout()
    node.ask(BeginQuorumEpochRequest(1, 1, node.core.key, node_of(1)))
    assert node.core.role is Role.FOLLOWER


def lose_pre_vote(node: ToldCore, leader: Node) -> None:
    """The others follow this leader."""
    for vote in node.take(VoteRequest):
        node.answer(vote, VoteResponse(ErrorCode.NONE, Standing(1, leader.id, leader)))


@pytest.mark.parametrize("told", ["before", "after"])
def test_a_silent_leader_is_looked_for_at_the_address_that_others_name(told: str) -> None:
    node = ToldCore()
    fetch = node.follow(leader_id=1, epoch=1)
    if told == "before":
        node.ask(BeginQuorumEpochRequest(1, 1, node.core.key, MOVED))
        node.answer(fetch, None)
        node.run_until(node.now_ms + 1_999)
        assert not [one for one in node.take(FetchRequest) if one.to == MOVED], "not yet silent"
        node.run_until(node.now_ms + 1)
        lose_pre_vote(node, node_of(1))
    else:
        node.answer(fetch, None)
        node.run_until(node.now_ms + 2_000)
        lose_pre_vote(node, MOVED)
    (fetch,) = node.take(FetchRequest)
    assert fetch.to == MOVED
    node.answer(fetch, FetchResponse(ErrorCode.NONE, Standing(1, 1, MOVED)))
    node.ask(BeginQuorumEpochRequest(1, 1, node.core.key, node_of(1)))
    (fetch,) = node.take(FetchRequest)
    assert fetch.to == MOVED, "it answers there, so it is kept"


def test_a_made_up_address_is_left_again_for_that_of_the_settings() -> None:
    node = ToldCore()
    node.answer(node.follow(leader_id=1, epoch=1), None)
    node.run_until(node.now_ms + 2_000)
    lose_pre_vote(node, MOVED)
    node.answer(node.take(FetchRequest)[-1], None)
    node.run_until(node.now_ms + 2_000)
    lose_pre_vote(node, MOVED)
    (fetch,) = node.take(FetchRequest)
    assert fetch.to == node_of(1)


def test_the_address_of_the_settings_goes_before_that_of_the_leaders_request() -> None:
    node = ToldCore()
    node.ask(BeginQuorumEpochRequest(1, 1, node.core.key, MOVED))
    *_, fetch = node.take(FetchRequest)
    assert fetch.to == node_of(1)


def test_an_observer_looks_for_its_silent_leader_elsewhere_too() -> None:
    node = ToldCore(9)
    node.answer(node.follow(leader_id=1, epoch=1), None)
    node.ask(BeginQuorumEpochRequest(1, 1, node.core.key, MOVED))
    seen = []
    for _ in range(200):
        node.run_until(node.now_ms + 25)
        for fetch in node.take(FetchRequest):
            seen.append(fetch.to)
            standing = Standing(1, 1, node_of(1))
            away = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, standing)
            node.answer(fetch, None if fetch.to.id == 1 else away)
    assert MOVED in seen
