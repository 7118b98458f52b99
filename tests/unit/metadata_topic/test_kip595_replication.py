"""Rows of KIP-595 about Fetch, the high watermark, voters and settings, on the core of one node."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft import leading as raft_leading
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import (
    AppendEpochStart,
    FlushLog,
    Persist,
    Report,
    Respond,
    RespondRecords,
)
from metadata_topic.raft.events import (
    ElectionState,
    Flushed,
    Proposed,
    Resign,
    SnapshotWritten,
    Truncated,
)
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import (
    BatchFacts,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    SnapshotId,
    Standing,
    VoteRequest,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from tests.support.worlds.scripted_core import ScriptedCore, directory, key, leading, node_of


def dynamic(*ids: int) -> VoterSet:
    """Voters as the log names them, with directories."""
    return VoterSet(
        tuple(Voter(key(one), (VoterEndpoint("CONTROLLER", f"n{one}", 9093),)) for one in ids)
    )


def fetch_of(replica: ReplicaKey, offset: int, *, epoch: int = 1, last: int = 1) -> FetchRequest:
    return FetchRequest(replica, epoch, offset, last, max_wait_ms=0)


def test_k595_04_the_high_watermark_is_flushed_by_a_majority_of_voters() -> None:
    node = ScriptedCore()
    node.lead()
    assert node.core.log.flushed_end == 1
    assert node.core.high_watermark == -1
    node.ask(fetch_of(key(8), 1))
    node.ask(fetch_of(key(9), 1))
    assert node.core.high_watermark == -1, "two observers and the leader are no majority"
    node.ask(fetch_of(key(3), 1))
    assert node.core.high_watermark == 1


@pytest.mark.parametrize("has_snapshot", [True, False], ids=["with a snapshot", "without"])
def test_what_a_voter_had_before_it_lost_its_disk_commits_nothing_more(has_snapshot: bool) -> None:
    """It is known to have nothing, before the leader's own fsync makes it a majority."""
    leader = ScriptedCore(log=((1, 0), (0, 5)), election=ElectionState(1))
    leader.lead()
    epoch = leader.core.epoch
    if has_snapshot:
        leader.step(SnapshotWritten(SnapshotFile(SnapshotId(5, 1), 100)))
    leader.ask(fetch_of(key(3), 6, epoch=epoch, last=epoch))
    assert leader.core.high_watermark == 6
    leader.flushes = False
    leader.append(4)
    leader.ask(fetch_of(key(3), 10, epoch=epoch, last=epoch))
    leader.ask(fetch_of(key(3), 0, epoch=epoch, last=0))
    leader.step(Flushed(10))
    assert leader.core.high_watermark == 6, "only the leader has the rest"
    assert [one.text for one in leader.wanted(Report) if "voter 3" in one.text] == [
        "voter 3 fetches from offset 0 and had flushed up to 10: its disk is lost, or an older "
        "copy of it was put back"
    ]
    leader.ask(fetch_of(key(3), 10, epoch=epoch, last=epoch))
    assert leader.core.high_watermark == 10


def test_k595_06_an_observer_that_has_all_of_it_commits_nothing() -> None:
    node = ScriptedCore(voters=(2, 3))
    node.lead()
    for observer in range(10, 20):
        node.ask(fetch_of(key(observer), 1))
    assert node.core.high_watermark == -1


def test_k595_13_neither_leader_nor_follower_counts_what_is_not_flushed() -> None:
    leader = ScriptedCore()
    leader.flushes = False
    leader.lead()
    leader.ask(fetch_of(key(3), 1))
    assert leader.core.high_watermark == -1
    leader.step(Flushed(1))
    assert leader.core.high_watermark == 1

    follower = ScriptedCore()
    fetch = follower.follow()
    follower.flushes = False
    follower.answer(fetch, follower.records(BatchFacts(0, 1, 1)))
    assert follower.take(FetchRequest) == []
    follower.step(Flushed(1))
    assert [one.request.offset for one in follower.take(FetchRequest)] == [1]


def test_k595_13_an_observer_fetches_again_without_waiting_for_its_disk() -> None:
    """It counts for nothing, so its log is flushed when a segment or a snapshot is closed."""
    node = ScriptedCore(9, config=RaftConfig(can_vote=False))
    fetch = node.follow()
    node.flushes = False
    node.answer(fetch, node.records(BatchFacts(0, 1, 1)))
    assert [one.request.offset for one in node.take(FetchRequest)] == [1]
    assert node.wanted(FlushLog) == []


def test_a_follower_that_lags_knows_how_far_its_leader_is() -> None:
    """Its own high watermark is no further than its log; a page that says ready needs more."""
    follower = ScriptedCore()
    fetch = follower.follow()
    told = replace(follower.records(BatchFacts(0, 1, 1)), high_watermark=300)
    follower.answer(fetch, told)
    assert follower.core.high_watermark == 1
    assert follower.core.replica.leader_high_watermark == 300


def test_k595_46_a_voter_that_lost_its_disk_lowers_no_high_watermark() -> None:
    node = ScriptedCore()
    node.lead()
    node.ask(fetch_of(key(3), 1))
    node.ask(fetch_of(key(3), 0, last=0))
    assert node.core.high_watermark == 1


def test_k595_47_a_node_asked_in_error_names_the_leader_to_the_asker() -> None:
    follower = ScriptedCore()
    follower.follow(leader_id=3)
    (answer,) = follower.ask(fetch_of(key(1), 0, last=0))
    assert isinstance(answer, Respond)
    assert answer.response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.response.standing == leading(1, 3)

    asker = ScriptedCore(1)
    fetch = asker.follow(leader_id=2)
    moved = FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, leading(2, 3))
    asker.answer(fetch, moved)
    assert [one.to for one in asker.take(FetchRequest)] == [node_of(3)]


def test_k595_47_a_follower_with_a_silent_leader_asks_another_voter() -> None:
    node = ScriptedCore()
    node.answer(node.follow(leader_id=1), None)
    (elsewhere,) = node.take(FetchRequest)
    assert elsewhere.to == node_of(3)
    node.answer(elsewhere, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, Standing(1)))
    node.tick(node.now_ms + 20)
    assert [one.to for one in node.take(FetchRequest)] == [node_of(1)], "back to the leader"


def test_k595_48_where_an_epoch_ended_is_known_after_a_restart() -> None:
    """The log's epochs come from `leader-epoch-checkpoint`."""
    node = ScriptedCore(log=((1, 0), (3, 5), (4, 9), (0, 12)), election=ElectionState(4))
    node.lead()
    (answer,) = node.ask(fetch_of(key(3), 8, epoch=5, last=2))
    assert isinstance(answer, Respond)
    assert isinstance(answer.response, FetchResponse)
    assert answer.response.diverging == EpochEnd(1, 5)
    (answer,) = node.ask(fetch_of(key(3), 10, epoch=5, last=3))
    assert isinstance(answer, Respond)
    assert isinstance(answer.response, FetchResponse)
    assert answer.response.diverging == EpochEnd(3, 9)
    (answer,) = node.ask(fetch_of(key(3), 9, epoch=5, last=3))
    assert isinstance(answer, RespondRecords)


def test_k595_12_the_kraft_version_decides_how_quorum_state_is_written() -> None:
    node = ScriptedCore()
    fetch = node.follow()
    node.answer(fetch, node.records(BatchFacts(0, 3, 1, 1, dynamic(1, 2, 3))))
    node.ask(VoteRequest(2, key(3), key(2), 1, 3, pre_vote=False))
    levels = [(one.election.epoch, one.kraft_version) for one in node.wanted(Persist)]
    assert (levels[0], levels[-1]) == ((1, 0), (2, 1))


def test_k595_49_fetched_voters_hold_at_once_and_a_truncation_reverts_them() -> None:
    node = ScriptedCore(facts=QuorumFacts(1, dynamic(1, 2, 3), in_log=True))
    fetch = node.follow()
    node.answer(fetch, node.records(BatchFacts(0, 1, 1), BatchFacts(1, 2, 1, None, dynamic(1, 3))))
    assert node.core.voters.ids == (1, 3)
    assert not node.core.replica.is_voter
    *_, fetch = node.take(FetchRequest)
    cut = FetchResponse(ErrorCode.NONE, leading(1, 1), -1, 0, diverging=EpochEnd(1, 1))
    node.answer(fetch, cut)
    node.step(Truncated(1))
    assert node.core.voters.ids == (1, 2, 3)
    assert node.core.replica.is_voter


def test_offsets_in_a_snapshot_are_not_cut_without_a_high_watermark() -> None:
    """As after a start of a node that keeps its log below its newest snapshot."""
    node = ScriptedCore(log=((1, 0), (0, 10)), election=ElectionState(1))
    node.step(SnapshotWritten(SnapshotFile(SnapshotId(8, 1), 100)))
    fetch = node.follow(epoch=2)
    assert (node.core.high_watermark, node.core.log.start_offset) == (-1, 0)
    cut = FetchResponse(ErrorCode.NONE, leading(2, 1), -1, 0, diverging=EpochEnd(1, 5))
    node.answer(fetch, cut)
    assert ["below 8, which is committed" in why for why in node.fatal] == [True]


def test_k595_33_the_first_record_of_an_epoch_names_voters_and_grants() -> None:
    node = ScriptedCore()
    node.lead()
    (start,) = node.wanted(AppendEpochStart)
    assert (start.epoch, start.base_offset, start.leader_id) == (1, 0, 2)
    assert start.voters.ids == (1, 2, 3)
    assert start.granting == (1, 2)


def test_k595_57_a_wiped_disk_under_a_voters_id_counts_as_no_voter() -> None:
    node = ScriptedCore(facts=QuorumFacts(1, dynamic(1, 2, 3), in_log=True), voters=())
    node.lead()
    end = node.core.log.end_offset
    wiped = ReplicaKey(3, directory(33))
    node.ask(fetch_of(wiped, end))
    assert node.core.high_watermark == -1
    node.ask(fetch_of(key(3), end))
    assert node.core.high_watermark == end

    me = ScriptedCore(
        3, facts=QuorumFacts(1, VoterSet((dynamic(1).voters[0], Voter(wiped)))), voters=()
    )
    me.run_until(60_000)
    assert me.core.role is Role.UNATTACHED, "with another disk than the voter's it never stands"
    assert me.take(VoteRequest) == []


def test_the_leader_remembers_and_parks_a_bounded_number_of_observers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raft_leading, "OBSERVERS_MAX", 5)
    monkeypatch.setattr(raft_leading, "PARKED_MAX", 3)
    node = ScriptedCore()
    node.lead()
    node.ask(fetch_of(key(3), 1))
    waiting = [replace(fetch_of(key(n), 1), max_wait_ms=500) for n in range(10, 20)]
    answered = [bool(node.ask(one, token=n)) for n, one in enumerate(waiting)]
    assert answered == [False] * 3 + [True] * 7, "those that cannot wait are answered at once"
    assert [one.id for one in node.leading.observers] == [10, 11, 12, 13, 14]
    assert len(node.leading.parked) == 3


def test_k595_56_an_observer_asks_for_ever_without_harm() -> None:
    node = ScriptedCore(9, config=RaftConfig(can_vote=False))
    for _ in range(500):
        node.run_until(node.now_ms + 20)
        for fetch in node.take(FetchRequest):
            node.answer(fetch, None)
    assert node.core.election == ElectionState()
    assert node.wanted(Persist) == []
    assert len(node.core.replica.pending) <= 1


# -- settings (K595-08) ---------------------------------------------------------------------------


def _stands_after(node: ScriptedCore) -> int:
    began = node.now_ms
    while node.core.role not in (Role.PROSPECTIVE, Role.CANDIDATE):
        node.tick(node.now_ms + 1)
    return node.now_ms - began


def _election_timeout(config: RaftConfig) -> int:
    return _stands_after(ScriptedCore(config=config))


def _fetch_timeout(config: RaftConfig) -> int:
    node = ScriptedCore(config=config)
    node.follow()
    return _stands_after(node)


def _election_backoff(config: RaftConfig) -> int:
    node = ScriptedCore(config=config)
    node.follow()
    node.ask(EndQuorumEpochRequest(1, 1, (), node_of(1)))
    return _stands_after(node)


def _retry_backoff(config: RaftConfig) -> int:
    node = ScriptedCore(config=config, voters=(1, 2))
    node.answer(node.follow(), None)
    began = node.now_ms
    while not node.take(FetchRequest):
        node.tick(node.now_ms + 1)
    return node.now_ms - began


def _request_timeout(config: RaftConfig) -> int:
    return ScriptedCore(config=config).follow().timeout_ms


def _fetched_bytes(config: RaftConfig) -> int:
    request = ScriptedCore(config=config).follow().request
    assert isinstance(request, FetchRequest)
    return request.max_bytes


@pytest.mark.parametrize(
    ("name", "effect", "default"),
    [
        ("election_timeout_ms", _election_timeout, 1_000),
        ("fetch_timeout_ms", _fetch_timeout, 2_000),
        ("election_backoff_max_ms", _election_backoff, 1_000),
        ("retry_backoff_ms", _retry_backoff, 20),
        ("request_timeout_ms", _request_timeout, 2_000),
        ("fetch_max_bytes", _fetched_bytes, 8 << 20),
    ],
)
def test_k595_08_each_setting_has_its_effect_and_kafkas_default(
    name: str, effect: Callable[[RaftConfig], int], default: int
) -> None:
    assert effect(RaftConfig()) == default
    assert effect(replace(RaftConfig(), **{name: 77})) == 77


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        FetchRequest(key(3), 1, -1, 0),
        FetchRequest(key(3), 1, 0, -1),
        FetchRequest(key(3), 1, 0, 2),
        FetchRequest(key(3), -1, 0, 0),
        FetchRequest(key(3), 1, 0, 0, max_wait_ms=-1),
    ],
    ids=["offset", "last epoch", "last epoch above its epoch", "epoch", "wait"],
)
def test_bad_input_absurd_numbers_in_a_fetch_change_nothing(request_: FetchRequest) -> None:
    node = ScriptedCore()
    node.lead()
    before = node.core.leadership
    assert before is not None
    known = [(one.end_offset, one.last_fetch_ms) for one in before.voters.values()]
    (answer,) = node.ask(request_)
    assert isinstance(answer, Respond)
    assert answer.response.error is ErrorCode.INVALID_REQUEST
    assert [(one.end_offset, one.last_fetch_ms) for one in before.voters.values()] == known
    assert node.core.parked_count == 0


def test_bad_input_a_replica_that_asks_repeatedly_has_one_parked_fetch() -> None:
    node = ScriptedCore()
    node.lead()
    waits = FetchRequest(key(3), 1, 1, 1, high_watermark=1, max_wait_ms=60_000)
    node.ask(replace(waits, max_wait_ms=0))
    assert node.ask(waits, token=1) == []
    for token in range(2, 20):
        (answer,) = node.ask(waits, token=token)
        assert answer.token == token - 1, "nobody waits for the older question any more"
        assert node.core.parked_count == 1


def test_bad_input_an_answer_of_an_older_epoch_or_request_appends_nothing() -> None:
    node = ScriptedCore()
    fetch = node.follow()
    old = node.records(BatchFacts(0, 1, 1))
    newer = node.follow(leader_id=3, epoch=2)
    node.answer(fetch, old)
    assert node.core.log.end_offset == 0, "that question is nobody's any more"
    node.answer(newer, old)
    assert node.core.log.end_offset == 0, "an answer of epoch 1 to a question of epoch 2"
    assert (node.core.role, node.core.epoch, node.core.leader_id) == (Role.FOLLOWER, 2, 3)


def test_bad_input_a_damaged_batch_of_the_leader_is_refetched_and_reported() -> None:
    node = ScriptedCore()
    fetch = node.follow()
    good = node.records(BatchFacts(0, 1, 1))
    node.answer(fetch, replace(good, fault="batch at offset 1: checksum"))
    assert node.core.log.end_offset == 1, "what was sound before it stays"
    (again,) = node.take(FetchRequest)
    assert again.request.offset == 1
    nothing = replace(node.records(), fault="batch at offset 1: checksum")
    node.answer(again, nothing)
    node.tick(node.now_ms + 20)
    assert [one.request.offset for one in node.take(FetchRequest)] == [1]
    told = "damaged records from the leader, asked again: batch at offset 1: checksum"
    assert node.reports == [told, told]
    assert node.fatal == []


@pytest.mark.parametrize(
    "batch",
    [BatchFacts(5, 6, 1), BatchFacts(0, 1, 2), BatchFacts(-3, 1, 1)],
    ids=["not due", "an epoch above the leader's", "below the log"],
)
def test_bad_input_a_batch_that_was_not_asked_for_is_not_appended(batch: BatchFacts) -> None:
    node = ScriptedCore()
    fetch = node.follow()
    node.answer(fetch, node.records(batch))
    assert node.core.log.end_offset == 0
    assert "the leader sent a batch at offset" in node.reports[0]


def test_bad_input_what_a_deposed_controller_proposes_is_not_appended() -> None:
    node = ScriptedCore()
    node.lead()
    node.ask(VoteRequest(5, key(3), key(2), 4, 9, pre_vote=False))
    end = node.core.log.end_offset
    node.step(Proposed(1, (BatchFacts(end, end + 1, 1),), b"x"))
    assert node.core.log.end_offset == end


def test_bad_input_what_a_leader_that_resigned_proposes_is_not_appended() -> None:
    node = ScriptedCore()
    node.lead()
    node.step(Resign(0.0))
    assert node.core.role is Role.RESIGNED
    end, epoch = node.core.log.end_offset, node.core.epoch
    node.step(Proposed(epoch, (BatchFacts(end, end + 1, epoch),), b"x"))
    assert node.core.log.end_offset == end
