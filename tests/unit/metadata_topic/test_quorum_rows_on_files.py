"""Rows of KIP-595 and KIP-630 that need real files: restarts, damage on the way, slow disks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.quorum.log.batches import value_batch
from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.messages import (
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Response,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.voters import ReplicaKey
from tests.support.worlds.driven_quorum import DrivenNode, DrivenQuorum
from tests.support.worlds.pools import HeldPool
from tests.support.worlds.replica_quorum import ReplicaQuorum


def three(root: Path) -> tuple[DrivenQuorum, DrivenNode]:
    quorum = DrivenQuorum(root, [1, 2, 3])
    quorum.start()
    leader = quorum.elect()
    quorum.advance(1_000)
    return quorum, leader


def another(quorum: DrivenQuorum, node: DrivenNode) -> DrivenNode:
    return next(one for one in quorum.members.values() if one is not node)


def asked(node: DrivenNode, request: VoteRequest | FetchRequest | FetchSnapshotRequest) -> Response:
    assert node.driver is not None
    answers: list[Response] = []
    node.driver.receive(request, answers.append)
    [answer] = answers
    return answer


def epoch_of(node: DrivenNode) -> int:
    assert node.driver is not None
    return node.driver.core.epoch


def once(
    kind: type[Response], change: Callable[[bytes], bytes]
) -> tuple[Callable[[Response], Response], list[Response]]:
    """Changes the data of the first answer of a kind; the list has what was changed."""
    changed: list[Response] = []

    def pass_on(response: Response) -> Response:
        if changed or not isinstance(response, kind) or not getattr(response, "data", b""):
            return response
        assert isinstance(response, FetchResponse | FetchSnapshotResponse)
        changed.append(response)
        return replace(response, data=change(bytes(response.data)))

    return pass_on, changed


def flip_a_bit(data: bytes) -> bytes:
    place = len(data) * 2 // 3
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


@pytest.mark.parametrize("torn", [False, True])
def test_k595_03_an_epoch_that_the_log_has_seen_is_durable_at_once(
    tmp_path: Path, torn: bool
) -> None:
    """quorum-state is an old copy; the log, or a tail of it that is cut, says more."""
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    quorum.start()
    first = quorum.elect()
    quorum.advance(1_000)
    old = another(quorum, first)
    first.kill()
    quorum.elect()
    quorum.advance(1_000)
    epoch = epoch_of(old)
    assert epoch > 1
    for node in quorum.members.values():
        node.kill()
    old.opened.state_file.write(ElectionState(1), kraft_version=0, voters=old.opened.plan.voters)
    if torn:
        [path] = old.directory.glob("*.log")
        data = path.read_bytes()
        path.write_bytes(
            data + b"torn" + value_batch([b""], base_offset=9, epoch=7, timestamp_ms=1)
        )
        epoch = 7
    for _ in range(2):
        old.start()
        assert epoch_of(old) == epoch
        assert old.opened.state_file.find() == ElectionState(epoch)
        old.kill()


def test_k595_22_a_vote_of_an_epoch_stands_after_a_kill(tmp_path: Path) -> None:
    """Also K595-11: it is durable before it is answered."""
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    node = quorum.members[1]
    node.start()

    def asks(candidate: int) -> bool:
        vote = VoteRequest(5, ReplicaKey(candidate), ReplicaKey(1), 0, 0, pre_vote=False)
        answer = asked(node, vote)
        assert isinstance(answer, VoteResponse)
        return answer.granted

    assert asks(2)
    assert not asks(3)
    node.kill()
    node.start()
    assert not asks(3)
    assert asks(2), "the same answer again"


def test_k595_48_epochs_of_before_a_restart_are_known_after_it(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path)
    ends = {}
    for _ in range(3):
        leader.propose_noop()
        quorum.advance(1_000)
        ends[epoch_of(leader)] = leader.opened.log.end_offset
        for node in quorum.members.values():
            node.kill()
        quorum.start()
        leader = quorum.elect()
        quorum.advance(1_000)
    for epoch, end in ends.items():
        answer = asked(leader, FetchRequest(ReplicaKey(9), epoch_of(leader), end + 1, epoch))
        assert isinstance(answer, FetchResponse)
        assert answer.diverging == EpochEnd(epoch, end)


def test_k595_52_an_idle_quorum_commits_within_one_fetch_without_waiting(
    tmp_path: Path,
) -> None:
    quorum, leader = three(tmp_path)
    quorum.advance(10_000)
    assert leader.propose_noop()
    quorum.advance(6)  # the parked Fetch is answered, written, and the next one says so
    assert leader.committed[-1] == leader.opened.log.end_offset
    quorum.advance(6)
    for node in quorum.members.values():
        assert node.committed[-1] == leader.opened.log.end_offset, "the followers know it as soon"


def test_k595_41_without_any_delivery_of_its_end_the_timeout_elects(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path)
    quorum.cut = {(leader.id, other) for other in quorum.members}
    closed: list[bool] = []
    assert leader.driver is not None
    leader.driver.close(lambda: closed.append(True))
    quorum.advance(5_000)
    assert closed == [True]
    leader.kill()
    assert quorum.elect() is not leader


def test_bad_input_a_batch_damaged_on_the_way_is_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum, leader = three(tmp_path)
    quorum.on_the_way, changed = once(FetchResponse, flip_a_bit)
    assert leader.propose_noop()
    quorum.advance(2_000)
    assert len(changed) == 1
    assert "damaged records from the leader, asked again" in caplog.text
    assert len({node.log_bytes for node in quorum.members.values()}) == 1
    assert [node.failures for node in quorum.members.values()] == [[], [], []]
    assert leader.propose_noop()
    quorum.advance(1_000)
    assert leader.committed[-1] == leader.opened.log.end_offset, "it still commits"


@pytest.mark.parametrize(
    "change", [flip_a_bit, lambda data: data[:-1]], ids=["a flipped bit", "a byte short"]
)
def test_bad_input_a_damaged_snapshot_gets_no_name_and_is_fetched_again(
    tmp_path: Path, change: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """N109."""
    quorum, leader = three(tmp_path)
    late = another(quorum, leader)
    late.kill()
    leader.propose_noop()
    quorum.advance(2_000)
    snapshot_id = leader.make_snapshot()
    names: list[SnapshotId] = []
    pass_on, changed = once(FetchSnapshotResponse, change)

    def look(response: Response) -> Response:
        if isinstance(response, FetchSnapshotResponse):
            names.extend(one for one in late.opened.files.ids() if one.end_offset)
        return pass_on(response)

    quorum.on_the_way = look
    late.start()
    quorum.advance(10_000)
    assert len(changed) == 1
    assert names == [], "no file had its name before it was whole"
    assert [one.snapshot.id for one in late.installed] == [snapshot_id]
    assert late.committed[-1] == leader.opened.log.end_offset
    assert late.failures == []
    assert list(late.directory.glob("*.part")) == []
    if change is flip_a_bit:
        assert "is damaged, fetched again" in caplog.text


def test_k630_25_a_snapshot_file_that_is_gone_is_not_found(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path)
    leader.propose_noop()
    quorum.advance(1_000)
    snapshot_id = leader.make_snapshot()
    leader.opened.files.delete(snapshot_id)  # between the core's decision and the read
    answer = asked(
        leader, FetchSnapshotRequest(ReplicaKey(9), epoch_of(leader), snapshot_id, 0, 100)
    )
    assert isinstance(answer, FetchSnapshotResponse)
    assert (answer.error, answer.data) == (ErrorCode.SNAPSHOT_NOT_FOUND, b"")


@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
def test_k630_11_changes_are_committed_while_a_snapshot_is_being_written(
    tmp_path: Path, is_leader: bool
) -> None:
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3])
    pools = {node.id: HeldPool(is_holding=False) for node in quorum.replicas}
    for node in quorum.replicas:
        node.background = pools[node.id]
    quorum.start()
    leader = quorum.elect_active()
    quorum.create(leader, "before")
    quorum.advance(1_000)
    writer = leader if is_leader else next(one for one in quorum.replicas if one is not leader)
    pools[writer.id].is_holding = True
    made: list[SnapshotId | None] = []
    writer.replica.snapshot(made.append)
    quorum.advance(100)
    assert pools[writer.id].held == 1, "its disk takes its time"
    quorum.create(leader, "meanwhile")
    quorum.advance(10_000)
    assert made == []
    assert quorum.elect_active() is leader, "nobody stood because of it"
    assert {frozenset(node.names) for node in quorum.replicas} == {
        frozenset({"before", "meanwhile"})
    }
    pools[writer.id].is_holding = False
    pools[writer.id].release()
    quorum.advance(100)
    [snapshot_id] = made
    assert snapshot_id is not None
    assert snapshot_id.end_offset < writer.opened.log.end_offset
