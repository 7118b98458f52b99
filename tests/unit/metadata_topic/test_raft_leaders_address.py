"""Where a replica seeks the leader of its epoch, and whom it follows after a restart."""

from dataclasses import replace

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import Send
from metadata_topic.raft.epochs import EPOCH_STEP_MAX
from metadata_topic.raft.events import Answered, ElectionState
from metadata_topic.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Node,
    Response,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.role_states import Follower
from metadata_topic.raft.roles import Role
from tests.support.worlds.scripted_core import ScriptedCore, key, leading, node_of

EPOCH = 5


def unattached(**more: object) -> ScriptedCore:
    return ScriptedCore(election=ElectionState(EPOCH), log=((EPOCH, 0), (0, 10)), **more)  # type: ignore[arg-type]


MOVED = Node(1, "moved", 9093)


def run(node: ScriptedCore, for_ms: int) -> list[Node]:
    """Let time pass while the leader answers nowhere and node 3 names MOVED; where it is sought."""
    sought, until_ms = [], node.now_ms + for_ms
    while node.now_ms < until_ms:
        for number, pending in list(node.core.replica.pending.items()):
            told = Standing(EPOCH, 1, MOVED)
            response: Response | None = None
            if pending.to.id == 3 and isinstance(pending.request, VoteRequest):
                response = VoteResponse(ErrorCode.NONE, told)
            elif pending.to.id == 3:
                response = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, told)
            node.step(Answered(number, response, 0.0))
        node.tick(node.now_ms + 10)
        state = node.core.replica.state
        if isinstance(state, Follower) and state.leader not in sought[-1:]:
            sought.append(state.leader)
    return sought


def fetch_at(node: ScriptedCore, address: Node) -> Send:
    """Let it run until it fetches there; that Fetch."""
    for _ in range(1_000):
        run(node, 10)
        for number, pending in node.core.replica.pending.items():
            if pending.to == address and isinstance(pending.request, FetchRequest):
                return Send(number, address, pending.request, 0, 0)
    raise AssertionError(f"it never fetches at {address}")


def test_a_follower_alternates_between_known_and_reported_leader_address() -> None:
    node = unattached()
    node.follow(1, EPOCH)
    assert run(node, 1_900) == [node_of(1)], "not before a fetch timeout"
    assert run(node, 12_000)[:4] == [node_of(1), MOVED, node_of(1), MOVED]
    assert node.core.epoch == EPOCH


@pytest.mark.parametrize(
    ("epoch", "taken"), [(EPOCH + EPOCH_STEP_MAX, True), (EPOCH + EPOCH_STEP_MAX + 1, False)]
)
def test_a_reported_address_raises_the_epoch_by_at_most_1000_for_any_voter(
    epoch: int, *, taken: bool
) -> None:
    node = unattached()
    node.follow(1, EPOCH)
    answer = FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, Standing(epoch))
    node.answer(fetch_at(node, MOVED), answer)
    assert node.core.epoch == (epoch if taken else EPOCH)


def test_the_address_of_a_leader_is_not_that_of_the_next() -> None:
    node = unattached()
    node.follow(1, EPOCH)
    node.answer(fetch_at(node, MOVED), node.records())
    node.follow(3, EPOCH + 1)
    replica = node.core.replica
    assert (replica.proven_leader, replica.reported_leader) == (None, None)


def test_an_address_named_once_by_the_leader_is_tried_without_another_hint() -> None:
    node = unattached(node_id=9, config=RaftConfig(can_vote=False))
    node.ask(BeginQuorumEpochRequest(EPOCH, 1, key(9), MOVED))
    node.tick(node.now_ms + 2_000)
    state = node.core.replica.state
    assert isinstance(state, Follower)
    assert state.leader == MOVED


def test_a_follower_keeps_an_address_where_the_leader_answered() -> None:
    node = unattached()
    node.follow(1, EPOCH)
    node.answer(fetch_at(node, MOVED), node.records())
    assert node.core.replica.proven_leader == MOVED
    assert run(node, 12_000) == [MOVED], "it cannot move within an epoch"


def test_a_follower_seeks_a_moved_leader_at_the_address_others_name() -> None:
    node = unattached()
    node.answer(node.follow(1, EPOCH), node.records())
    assert node.core.replica.proven_leader == node_of(1)
    assert run(node, 12_000)[:4] == [node_of(1), MOVED, node_of(1), MOVED]
    assert node.core.epoch == EPOCH


def test_where_a_leader_is_sought_anyway_is_no_news() -> None:
    """One that has read the new settings is heard among others that have not."""
    node = unattached()
    fetch = node.follow(1, EPOCH)
    for told in (MOVED, node_of(1)):
        answer = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, Standing(EPOCH, 1, told))
        node.answer(fetch, answer)
        node.tick(node.now_ms + 100)
        *_, fetch = node.take(FetchRequest)
    assert node.core.replica.reported_leader == MOVED


def test_another_process_at_a_told_address_is_no_proof() -> None:
    node = unattached()
    node.follow(1, EPOCH)
    other = replace(node.records(), standing=leading(EPOCH, 3))
    node.answer(fetch_at(node, MOVED), other)
    assert node_of(1) in run(node, 6_000)


def test_settings_win_over_the_address_in_a_request() -> None:
    node = unattached()
    node.ask(BeginQuorumEpochRequest(EPOCH, 1, key(2), MOVED))
    state = node.core.replica.state
    assert isinstance(state, Follower)
    assert state.leader == node_of(1)


def test_an_observer_seeks_at_the_told_address_too() -> None:
    node = unattached(node_id=9, config=RaftConfig(can_vote=False))
    node.ask(BeginQuorumEpochRequest(EPOCH, 1, key(9), node_of(1)))
    assert run(node, 5_000)[:2] == [node_of(1), MOVED]


# -- a restart --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["begin", "answer"])
@pytest.mark.parametrize("role", [Role.CANDIDATE, Role.PROSPECTIVE])
def test_a_restarted_voter_follows_the_leader_of_the_epoch_it_stood_in(
    role: Role, how: str
) -> None:
    node = ScriptedCore(election=ElectionState(EPOCH, 1, key(2)), log=((EPOCH, 0), (0, 10)))
    if role is Role.PROSPECTIVE:
        node.tick(1_000)
    assert node.core.role is role
    *_, vote = node.take(VoteRequest)
    if how == "begin":
        node.ask(BeginQuorumEpochRequest(EPOCH, 1, key(2), node_of(1)))
    else:
        node.answer(vote, VoteResponse(ErrorCode.NONE, leading(EPOCH, 1)))
    assert (node.core.role, node.core.leader_id) == (Role.FOLLOWER, 1)
    assert node.core.election == replace(node.core.election, epoch=EPOCH, voted=key(2))


def test_a_voter_without_a_leader_keeps_asking_although_others_name_one() -> None:
    node = unattached()
    node.answer(node.follow(1, EPOCH), node.records())
    node.tick(node.now_ms + 2_000)
    vote, *_ = node.take(VoteRequest)
    node.answer(vote, VoteResponse(ErrorCode.NONE, leading(EPOCH, 1)))
    assert node.core.role is Role.PROSPECTIVE


def test_a_voter_follows_again_when_the_leader_itself_calls() -> None:
    node = unattached()
    node.answer(node.follow(1, EPOCH), node.records())
    node.tick(node.now_ms + 2_000)
    assert node.core.role is Role.PROSPECTIVE
    node.ask(BeginQuorumEpochRequest(EPOCH, 1, key(2), node_of(1)))
    assert node.core.role is Role.FOLLOWER
