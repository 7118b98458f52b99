"""Rows of KIP-595 about timeouts: which are kept, which are drawn again, what counts as contact."""

from collections.abc import Callable

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.effects import Respond
from metadata_topic.raft.events import ElectionState, Received, SnapshotWritten, Tick
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    SnapshotId,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from tests.support.worlds.scripted_core import ScriptedCore, directory, key

T = 1_000
"""The election timeout; a time is drawn from [T, 2T)."""
NOW = 5_000
LATER = 400
"""So long after its time to stand was drawn a node hears of a higher epoch, or of a refusal."""


def _unattached(random: float) -> ScriptedCore:
    node = ScriptedCore(now_ms=NOW)
    node.step(Received(7, VoteRequest(1, key(1), key(2), 0, 0, pre_vote=False), random))
    assert node.core.role is Role.UNATTACHED, "a vote that is given draws the time"
    return node


def _prospective(random: float) -> ScriptedCore:
    node = ScriptedCore()
    node.tick(NOW, random)
    assert node.core.role is Role.PROSPECTIVE
    return node


def _candidate(random: float) -> ScriptedCore:
    node = _prospective(0.0)
    pre_vote, _ = node.take(VoteRequest)
    node.answer(pre_vote, node.yes(), random)
    assert node.core.role is Role.CANDIDATE
    return node


def _resigned(random: float) -> ScriptedCore:
    node = ScriptedCore(election=ElectionState(1, 2, None), now_ms=NOW, random=random)
    assert node.core.role is Role.RESIGNED
    return node


def _follower(random: float) -> ScriptedCore:
    node = ScriptedCore(now_ms=NOW, random=random)
    node.follow()
    return node


def _leader(random: float) -> ScriptedCore:
    node = _candidate(random)
    vote, _ = node.take(VoteRequest)
    node.answer(vote, node.yes(), random)
    assert node.core.role is Role.LEADER
    return node


def _stands_at(node: ScriptedCore) -> int:
    while node.core.role is not Role.PROSPECTIVE:
        node.tick(node.now_ms + 1)
    return node.now_ms


@pytest.mark.parametrize("random", [0.0, 0.9])
@pytest.mark.parametrize("made", [_unattached, _prospective, _candidate, _resigned])
def test_k595_23_a_higher_epoch_leaves_the_time_to_stand_as_it_was(
    made: Callable[[float], ScriptedCore], random: float
) -> None:
    node = made(random)
    _hear_of_a_higher_epoch(node, 0.5)
    assert _stands_at(node) == NOW + T + int(random * T)


@pytest.mark.parametrize("random", [0.0, 0.9])
@pytest.mark.parametrize("made", [_follower, _leader])
def test_k595_23_with_a_higher_epoch_who_did_not_stand_draws_a_time(
    made: Callable[[float], ScriptedCore], random: float
) -> None:
    node = made(0.5)
    _hear_of_a_higher_epoch(node, random)
    assert _stands_at(node) == NOW + LATER + T + int(random * T)


@pytest.mark.parametrize("random", [0.0, 0.9])
def test_k595_23_a_prospective_that_was_refused_draws_a_new_time(random: float) -> None:
    node = _prospective(0.5)
    first, second = node.take(VoteRequest)
    node.answer(first, node.no())
    assert node.core.role is Role.PROSPECTIVE
    node.now_ms = NOW + LATER
    node.answer(second, node.no(), random)
    assert node.core.role is Role.UNATTACHED
    assert _stands_at(node) == NOW + LATER + T + int(random * T)


def _hear_of_a_higher_epoch(node: ScriptedCore, random: float) -> None:
    """From a candidate whose log is shorter, so that it gets no vote, which would draw again."""
    node.core.log.append(1, node.core.log.end_offset, node.core.log.end_offset + 5)
    node.now_ms = NOW + LATER
    vote = VoteRequest(9, key(3), key(2), 0, 0, pre_vote=False)
    (answer,) = ScriptedCore.answers(node.step(Received(7, vote, random)))
    assert isinstance(answer, Respond)
    assert answer.response == VoteResponse(ErrorCode.NONE, Standing(9), granted=False)
    assert (node.core.role, node.core.epoch) == (Role.UNATTACHED, 9)


def test_k595_25_where_pre_vote_is_not_known_a_node_stands_at_once() -> None:
    node = ScriptedCore()
    node.tick(NOW)
    first, _ = node.take(VoteRequest)
    assert first.request.pre_vote  # type: ignore[union-attr]
    node.answer(first, VoteResponse(ErrorCode.UNSUPPORTED_VERSION, Standing(0)))
    assert (node.core.role, node.core.epoch) == (Role.CANDIDATE, 1)
    assert {one.request.pre_vote for one in node.take(VoteRequest)} == {False}  # type: ignore[union-attr]


def test_k595_36_an_observer_whose_address_is_known_is_sent_no_begin() -> None:
    """Another disk of voter 3, which has its address."""
    voters = VoterSet(
        tuple(Voter(key(one), (VoterEndpoint("CONTROLLER", f"n{one}", 9093),)) for one in (1, 2, 3))
    )
    node = ScriptedCore(facts=QuorumFacts(1, voters, in_log=True), voters=())
    node.lead()
    for begin in node.take(BeginQuorumEpochRequest):
        node.answer(begin, None)
    began = node.now_ms
    node.ask(FetchRequest(ReplicaKey(3, directory(33)), 1, 1, 1, max_wait_ms=0))
    node.run_until(began + 900)
    for voter in (1, 3):
        node.ask(FetchRequest(key(voter), 1, 1, 1, max_wait_ms=0))
    node.take(BeginQuorumEpochRequest)
    node.run_until(
        began + 1_500
    )  # half a fetch timeout after the observer's Fetch, not the voters'
    assert node.take(BeginQuorumEpochRequest) == []


@pytest.mark.parametrize("fetches", [True, False], ids=["fetches chunks", "is silent"])
def test_k595_24_a_voter_that_fetches_a_snapshot_counts_for_the_majority(
    fetches: bool,
) -> None:
    node = ScriptedCore(log=((1, 0), (0, 400)), election=ElectionState(1))
    node.lead()
    snapshot_id, epoch = SnapshotId(250, 1), node.core.epoch
    node.step(SnapshotWritten(SnapshotFile(snapshot_id, 1_000)))
    began = node.now_ms
    for number in range(1, 11):
        node.tick(began + number * 500)
        if fetches:
            node.ask(FetchSnapshotRequest(key(3), epoch, snapshot_id, 0, 10))
    assert (node.core.role is Role.LEADER) is fetches


def test_k595_24_parked_fetches_are_answered_when_the_leader_gives_up() -> None:
    node = ScriptedCore()
    node.lead()
    epoch, end = node.core.epoch, node.core.log.end_offset
    node.core.replica.high_watermark = end
    assert (
        node.ask(FetchRequest(key(9), epoch, end, epoch, high_watermark=end, max_wait_ms=60_000))
        == []
    )
    (answer,) = ScriptedCore.answers(_until_it_gives_up(node))
    assert isinstance(answer, Respond)
    assert isinstance(answer.response, FetchResponse)
    assert answer.response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def _until_it_gives_up(node: ScriptedCore) -> list:  # type: ignore[type-arg]
    done = []
    while node.core.role is Role.LEADER:
        node.now_ms += 100
        done += node.step(Tick(0.0))
    return done


def test_k595_46_a_replica_is_caught_up_as_of_the_records_it_has() -> None:
    """KIP-836: at the end now, or at what was the end when it asked the time before."""
    node = ScriptedCore()
    node.lead()
    (progress,) = [one for voter, one in node.leading.voters.items() if voter.id == 3]

    def asks(now_ms: int, offset: int) -> int | None:
        node.now_ms = now_ms
        node.ask(FetchRequest(key(3), 1, offset, min(offset, 1), max_wait_ms=0))
        return progress.last_caught_up_ms

    began, end = node.now_ms, 1
    assert asks(began + 100, 0) is None
    node.append(2)
    assert asks(began + 200, end) == began + 100, "it has what there was then"
    node.append(2)
    assert asks(began + 300, end + 1) == began + 100, "not yet what there was at its last Fetch"
    assert asks(began + 400, end + 4) == began + 400


def test_an_observer_is_remembered_for_five_minutes() -> None:
    """So long the idle leader writes NoOp records for it."""
    node = ScriptedCore(voters=(2,))
    node.ask(FetchRequest(key(9), node.core.epoch, 0, 0, max_wait_ms=0))
    began = node.now_ms
    node.tick(began + 5 * 60_000)
    assert set(node.leading.observers) == {key(9)}
    node.tick(began + 5 * 60_000 + 1)
    assert node.leading.observers == {}
