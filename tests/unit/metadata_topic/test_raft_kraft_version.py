"""kraft.version 0 becomes 1, on the core of one node: static voters come into the log."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import AppendVoters, AwaitAppend, Persist, Respond, Send
from metadata_topic.raft.events import AppendGranted, SnapshotInstalled, Truncated
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BatchFacts,
    BeginQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Node,
    RemoveVoterRequest,
    Request,
    SnapshotId,
    UpdateVoterRequest,
    UpgradeKraftVersionRequest,
    VoterResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from tests.support.worlds.scripted_core import ScriptedCore, directory, key, leading, node_of

HERE = RaftConfig(endpoints=(VoterEndpoint("CONTROLLER", "n2", 9093),))


def voter(node_id: int, *, host: str = "", **changes: Any) -> Voter:
    """A voter as it says that it is."""
    return Voter(
        key(node_id), (VoterEndpoint("CONTROLLER", host or f"n{node_id}", 9093),), **changes
    )


ALL = VoterSet((voter(1), voter(2), voter(3)))


def said(node: ScriptedCore, request: Request) -> list[VoterResponse]:
    found = [one for one in node.ask(request) if isinstance(one, Respond)]
    return [one.response for one in found if isinstance(one.response, VoterResponse)]


def fetch(node: ScriptedCore, replica: ReplicaKey) -> None:
    """A replica shows that it has flushed all of the leader's log."""
    end, epoch = node.core.log.end_offset, node.core.epoch
    node.ask(FetchRequest(replica, epoch, end, epoch, max_wait_ms=0), token=1000 + replica.id)


def leader(*tell: Voter) -> ScriptedCore:
    """Node 2 of the static voters 1, 2 and 3: its epoch has begun, and these have told of them."""
    node = ScriptedCore(config=HERE)
    node.lead()
    for other in (1, 3):
        fetch(node, key(other))
    for one in tell:
        assert codes(said(node, UpdateVoterRequest(node.core.epoch, one))) == [ErrorCode.NONE]
    return node


def codes(answers: Sequence[VoterResponse]) -> list[ErrorCode]:
    return [one.error for one in answers]


def upgrade(node: ScriptedCore, level: int = 1, **changes: Any) -> list[VoterResponse]:
    """The others answer where they said that they listen."""
    answers = said(node, UpgradeKraftVersionRequest(node.core.epoch, level, **changes))
    for asked in node.take(ApiVersionsRequest):
        node.answer(asked, ApiVersionsResponse(ErrorCode.NONE, (0, 1)))
    return answers


def answered(node: ScriptedCore) -> list[ErrorCode]:
    """All answers to requests about voters so far."""
    found = [one.response for one in node.wanted(Respond)]
    return [one.error for one in found if isinstance(one, VoterResponse)]


# -- the leader -------------------------------------------------------------------------------


def test_what_all_voters_have_said_goes_into_the_log_in_one_batch() -> None:
    node = leader(voter(1), voter(3, host="moved"))
    base = node.core.log.end_offset
    assert upgrade(node) == []
    assert len(node.wanted(AwaitAppend)) == 1
    assert node.core.history.latest.kraft_version == 0, "the controller's decisions come first"
    node.step(AppendGranted())
    wanted = ALL.with_voter(voter(3, host="moved"))
    assert node.wanted(AppendVoters) == [AppendVoters(1, base, wanted, kraft_version=1)]
    assert node.core.history.latest == QuorumFacts(1, wanted, in_log=True)
    assert node.core.log.end_offset == base + 2
    assert answered(node)[2:] == [], "it waits for the commit"
    fetch(node, key(3))
    assert node.core.high_watermark == base + 2
    assert answered(node)[2:] == [ErrorCode.NONE]
    assert node.core.replica.node_of(3) == Node(3, "moved", 9093), "the settings' is the old one"


def test_followers_continue_to_count_by_the_disks_that_they_named() -> None:
    node = leader(voter(1), voter(3))
    node.now_ms += 60_000  # long after it was elected
    fetch(node, key(1))
    fetch(node, key(3))
    upgrade(node)
    node.step(AppendGranted())
    assert node.core.role is Role.LEADER, "a majority has fetched a moment ago"
    assert set(node.leading.voters) == {key(1), key(3)}
    end = node.core.log.end_offset
    fetch(node, ReplicaKey(3, directory(33)))
    assert node.core.high_watermark == end - 2, "another disk counts no more"
    fetch(node, key(1))
    assert node.core.high_watermark == end


def test_from_then_on_voters_change_one_at_a_time() -> None:
    node = leader(voter(1), voter(3))
    assert codes(said(node, RemoveVoterRequest(1, key(3)))) == [ErrorCode.UNSUPPORTED_VERSION]
    upgrade(node)
    assert codes(said(node, RemoveVoterRequest(1, key(3)))) == [ErrorCode.REQUEST_TIMED_OUT]
    assert codes(upgrade(node)) == [ErrorCode.REQUEST_TIMED_OUT], "one is under way"
    node.step(AppendGranted())
    node.tick(node.now_ms + 2_000)
    assert answered(node)[-1] is ErrorCode.REQUEST_TIMED_OUT, "its time is over"
    assert codes(upgrade(node)) == [ErrorCode.REQUEST_TIMED_OUT], "nor is it committed"
    fetch(node, key(1))
    assert said(node, RemoveVoterRequest(1, key(3))) == []
    node.step(AppendGranted())
    assert node.core.voters == ALL.without(3)


def test_a_level_that_is_there_is_fine_and_writes_nothing() -> None:
    node = leader()
    assert codes(upgrade(node, 0)) == [ErrorCode.NONE]
    done = leader(voter(1), voter(3))
    upgrade(done)
    done.step(AppendGranted())
    fetch(done, key(1))
    end = done.core.log.end_offset
    assert codes(upgrade(done)) == [ErrorCode.NONE]
    assert done.core.log.end_offset == end


def test_a_check_alone_appends_nothing() -> None:
    node = leader(voter(1), voter(3))
    assert codes(upgrade(node, validate_only=True)) == [ErrorCode.NONE]
    assert node.wanted(AwaitAppend) == []
    assert codes(upgrade(leader(voter(1)), validate_only=True)) == [
        ErrorCode.INVALID_UPDATE_VERSION
    ]


def test_a_lone_static_voter_comes_into_the_log_by_itself() -> None:
    node = ScriptedCore(2, voters=(2,), config=HERE)
    assert node.core.role is Role.LEADER
    assert upgrade(node) == []
    node.step(AppendGranted())
    assert answered(node) == [ErrorCode.NONE]
    assert node.core.voters == VoterSet((voter(2),))


@pytest.mark.parametrize(
    ("told", "level", "why"),
    [
        ([voter(1)], 1, "voter 3 has not said in this epoch"),
        ([voter(1), voter(3, kraft_versions=(0, 0))], 1, "voter 3 supports 0 to 0"),
        ([voter(1), voter(3)], 2, "voter 1 supports 0 to 1"),
        ([voter(1), voter(3, host="n1")], 1, "voter 1 says that it listens at n1:9093, where"),
        ([voter(1), voter(3, host="0.0.0.0")], 1, "voter 3 says that it listens at 0.0.0.0:9093"),
    ],
)
def test_bad_input_not_all_voters_can_be_in_the_log(
    told: list[Voter], level: int, why: str
) -> None:
    node = leader(*told)
    [refused] = upgrade(node, level)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert why in refused.text
    assert node.wanted(AwaitAppend) == []


def test_a_voter_that_is_silent_at_its_address_is_not_written_to_the_log() -> None:
    """Else nobody finds it in the next election, and no restart helps."""
    node = leader(voter(1), voter(3, host="inner"))
    said(node, UpgradeKraftVersionRequest(1, 1))
    first, second = node.take(ApiVersionsRequest)
    assert (first.to, second.to) == (Node(1, "n1", 9093), Node(3, "inner", 9093))
    node.answer(first, ApiVersionsResponse(ErrorCode.NONE, (0, 1)))
    assert node.wanted(AwaitAppend) == []
    node.answer(second, None)
    *_, refused = node.wanted(Respond)
    assert "voter 3 does not answer at inner:9093" in refused.response.text
    upgrade(node)
    assert len(node.wanted(AwaitAppend)) == 1, "what is over is no change under way"


def test_a_voter_that_has_told_and_is_gone_does_not_come_into_the_log() -> None:
    node = leader(voter(1), voter(3))
    for _ in range(4):
        node.now_ms += 1_000
        fetch(node, key(1))
    [refused] = upgrade(node)
    assert "voter 3 is not there any more" in refused.text
    fetch(node, key(3))
    node.now_ms += 1_900
    fetch(node, key(1))
    assert upgrade(node) == []
    node.now_ms += 200
    fetch(node, ReplicaKey(3, directory(33)))
    node.step(AppendGranted())
    assert node.wanted(AppendVoters) == [], "nor one whose disk is replaced before its turn"
    assert answered(node)[-1] is ErrorCode.INVALID_UPDATE_VERSION


def test_of_two_disks_only_the_one_that_counts_can_tell() -> None:
    node, other = leader(voter(1), voter(3)), replace(voter(3), key=ReplicaKey(3, directory(33)))
    tells = UpdateVoterRequest(1, other)
    assert codes(said(node, tells)) == [ErrorCode.REQUEST_TIMED_OUT]
    node.now_ms += 4_000
    fetch(node, key(1))
    assert codes(upgrade(node)) == [ErrorCode.INVALID_UPDATE_VERSION]
    fetch(node, other.key)
    assert codes(upgrade(node)) == [ErrorCode.INVALID_UPDATE_VERSION], "the former one has told"
    assert codes(said(node, tells)) == [ErrorCode.NONE]
    assert upgrade(node) == []


def test_a_disk_that_takes_over_has_flushed_nothing_yet() -> None:
    node = leader(voter(1), voter(3))
    assert node.leading.voters[ReplicaKey(3)].end_offset > 0
    node.now_ms += 4_000
    fetch(node, key(1))
    newest = SnapshotId(0, 0)
    node.ask(FetchSnapshotRequest(ReplicaKey(3, directory(33)), 1, newest, 0, 1))
    assert node.leading.voters[ReplicaKey(3)].end_offset == -1


def test_a_static_voter_without_listeners_has_the_address_of_the_setting() -> None:
    node = ScriptedCore(config=RaftConfig())
    assert node.core.replica.own_voter.endpoints == (VoterEndpoint("CONTROLLER", "n2", 9093),)
    follow_for(node, 3)
    assert len(tells(node)) == 1
    raised(node)
    assert node.core.replica.own_voter.endpoints == (), "the log says it, and it does not care"


def test_bad_input_back_to_static_voters_is_refused() -> None:
    facts = QuorumFacts(1, ALL, in_log=True)
    node = ScriptedCore(voters=(), facts=facts, config=HERE)
    node.lead()
    fetch(node, key(1))
    [refused] = upgrade(node, 0)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert refused.text == (
        "Invalid upgrade of kraft.version from version 1 to 0 because the new version is a "
        "downgrade"
    )


def test_what_was_said_in_another_epoch_counts_no_more() -> None:
    node = leader(voter(1), voter(3))
    node.ask(BeginQuorumEpochRequest(2, 1, key(2), node_of(1)))
    node.lead()
    fetch(node, key(1))
    assert codes(upgrade(node)) == [ErrorCode.INVALID_UPDATE_VERSION]


def test_before_its_epoch_has_begun_a_leader_raises_nothing() -> None:
    node = ScriptedCore(config=HERE)
    node.lead()
    assert codes(upgrade(node)) == [ErrorCode.REQUEST_TIMED_OUT]
    assert codes(said(node, UpgradeKraftVersionRequest(0, 1))) == [ErrorCode.FENCED_LEADER_EPOCH]


# -- followers --------------------------------------------------------------------------------


def tells(node: ScriptedCore) -> list[Request]:
    """What it told its leader of itself."""
    sent = [one.request for one in node.wanted(Send)]
    return [one for one in sent if isinstance(one, UpdateVoterRequest)]


def follow_for(node: ScriptedCore, seconds: int, error: ErrorCode = ErrorCode.NONE) -> None:
    """It fetches so long from a leader that has nothing new; what it tells is answered so."""
    node.answer(node.follow(), node.records())
    for _ in range(seconds):
        node.now_ms += 1_000
        *_, last = node.wanted(Send)
        if isinstance(last.request, UpdateVoterRequest):
            node.answer(last, VoterResponse(error, leading(1, 1)))
            node.tick(node.now_ms + 20)  # it backs off from a refusal
            *_, last = node.wanted(Send)
        node.answer(last, node.records())


def test_a_static_voter_tells_of_itself_once_in_an_epoch() -> None:
    node = ScriptedCore(config=HERE)
    follow_for(node, 9)
    assert tells(node) == [UpdateVoterRequest(1, voter(2))]


def test_a_static_voter_tells_again_until_the_leader_takes_it() -> None:
    node = ScriptedCore(config=HERE)
    follow_for(node, 9, ErrorCode.REQUEST_TIMED_OUT)
    assert len(tells(node)) >= 3


def test_one_without_a_vote_tells_nothing() -> None:
    node = ScriptedCore(4, config=HERE)
    follow_for(node, 9)
    broker = ScriptedCore(2, config=replace(HERE, can_vote=False))
    follow_for(broker, 9)
    assert tells(node) == tells(broker) == []


def raised(node: ScriptedCore) -> BatchFacts:
    """A follower has the leader's batch that raises kraft.version, and has flushed it."""
    end = node.core.log.end_offset
    moved = ALL.with_voter(voter(3, host="moved"))
    batch = BatchFacts(end, end + 2, node.core.epoch, 1, moved)
    *_, asked = [one for one in node.wanted(Send) if isinstance(one.request, FetchRequest)]
    node.answer(asked, node.records(batch))
    assert node.core.history.latest == QuorumFacts(1, moved, in_log=True)
    return batch


def test_a_follower_uses_the_voters_of_the_log_and_the_new_quorum_state() -> None:
    node = ScriptedCore(config=HERE)
    node.follow()
    raised(node)
    assert node.core.replica.node_of(3) == Node(3, "moved", 9093)
    node.tick(60_000)
    node.stand()
    written = node.wanted(Persist)[-1]
    assert (written.kraft_version, written.election.voted) == (1, key(2))


def test_a_truncation_makes_the_voters_static_again() -> None:
    node = ScriptedCore(config=HERE)
    node.follow()
    batch = raised(node)
    node.ask(BeginQuorumEpochRequest(2, 1, key(2), node_of(1)), token=8)
    *_, asked = node.take(FetchRequest)
    cut = EpochEnd(0, batch.base_offset)
    node.answer(asked, FetchResponse(ErrorCode.NONE, leading(2, 1), -1, 0, diverging=cut))
    node.step(Truncated(batch.base_offset))
    assert node.core.history.latest.kraft_version == 0
    assert {one.key for one in node.core.voters.voters} == {ReplicaKey(i) for i in (1, 2, 3)}
    assert node.core.replica.node_of(3) == node_of(3)


def test_a_snapshot_of_static_voters_takes_an_uncommitted_level_back() -> None:
    node = ScriptedCore(config=HERE)
    node.follow()
    raised(node)
    node.ask(BeginQuorumEpochRequest(2, 1, key(2), node_of(1)), token=8)
    *_, asked = node.take(FetchRequest)
    newest = SnapshotId(9, 1)
    node.answer(asked, FetchResponse(ErrorCode.NONE, leading(2, 1), -1, 0, snapshot_id=newest))
    [asked] = node.take(FetchSnapshotRequest)
    chunk = FetchSnapshotResponse(ErrorCode.NONE, leading(2, 1), newest, 1, 0, b"x")
    node.answer(asked, chunk)
    node.step(SnapshotInstalled(SnapshotFile(newest, 1), QuorumFacts()))
    assert {one.key for one in node.core.voters.voters} == {ReplicaKey(i) for i in (1, 2, 3)}


def test_a_voter_with_another_disk_than_the_named_one_has_no_vote() -> None:
    node = ScriptedCore(2, config=HERE)
    node.follow()
    end = node.core.log.end_offset
    named = ALL.with_voter(replace(voter(2), key=ReplicaKey(2, directory(22))))
    *_, asked = [one for one in node.wanted(Send) if isinstance(one.request, FetchRequest)]
    batch = BatchFacts(end, end + 2, 1, 1, named)
    node.answer(asked, node.records(batch, high_watermark=end + 2))
    assert not node.core.replica.is_voter
    assert not node.core.replica.can_stand


def test_an_added_controller_comes_beside_those_that_were_static() -> None:
    node = leader(voter(1), voter(3))
    upgrade(node)
    node.step(AppendGranted())
    fetch(node, key(1))
    fetch(node, key(4))
    assert said(node, AddVoterRequest(1, voter(4))) == []
