"""The driver of the Raft core on real files: what it makes durable, and before what."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import iter_batches
from metadata_topic.quorum.driver.driver import RaftFailureError
from metadata_topic.quorum.driver.log_work import LINES_FSYNC_MS
from metadata_topic.quorum.driver.outgoing_messages import FETCHES_PER_ITERATION
from metadata_topic.quorum.log.fetched import BATCHES_MAX
from metadata_topic.raft.effects import RespondRecords
from metadata_topic.raft.messages import (
    BatchFacts,
    FetchRequest,
    FetchResponse,
    Response,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.driven_quorum import DrivenNode, DrivenQuorum
from tests.support.worlds.pools import HeldPool

P = ParamSpec("P")
T = TypeVar("T")


def three(root: Path) -> DrivenQuorum:
    quorum = DrivenQuorum(root, [1, 2, 3])
    quorum.start()
    return quorum


def core_of(node: DrivenNode):
    assert node.driver is not None
    return node.driver.core


def test_a_sole_voter_leads_at_once_and_commits_alone(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    quorum.start()
    node = quorum.members[1]
    assert node.leads
    assert node.propose_noop()
    assert node.committed == [1, 2]


def test_what_is_proposed_is_committed_on_all_in_the_same_bytes(tmp_path: Path) -> None:
    quorum = three(tmp_path)
    leader = quorum.elect()
    for _ in range(5):
        assert leader.propose_noop()
        quorum.advance(100)
    quorum.advance(1_000)
    assert [node.committed[-1] for node in quorum.members.values()] == [6, 6, 6]
    assert len({node.log_bytes for node in quorum.members.values()}) == 1


def test_only_the_leader_of_the_epoch_appends_and_only_at_the_end(tmp_path: Path) -> None:
    quorum = three(tmp_path)
    leader = quorum.elect()
    quorum.advance(1_000)
    follower = next(node for node in quorum.members.values() if node is not leader)
    before = follower.log_bytes
    assert not follower.propose_noop()
    assert follower.log_bytes == before
    assert leader.driver is not None
    assert not leader.driver.propose(core_of(leader).log and _late_batch(leader), b"", 1)


def _late_batch(node: DrivenNode):

    end = node.opened.log.end_offset
    return (BatchFacts(end + 1, end + 2, core_of(node).epoch),)


def test_a_killed_leader_is_replaced_and_comes_back_as_a_follower(tmp_path: Path) -> None:
    quorum = three(tmp_path)
    first = quorum.elect()
    first.propose_noop()
    quorum.advance(1_000)
    epoch = core_of(first).epoch
    first.kill()
    second = quorum.elect()
    assert second is not first
    assert core_of(second).epoch > epoch
    second.propose_noop()
    first.start()
    assert first.roles[0].role is Role.RESIGNED, "it led that epoch: it must not lead it again"
    quorum.advance(10_000)
    assert len({node.log_bytes for node in quorum.members.values()}) == 1
    assert len({node.committed[-1] for node in quorum.members.values()}) == 1


def test_what_a_cut_off_leader_appended_is_truncated_when_it_comes_back(tmp_path: Path) -> None:
    quorum = three(tmp_path)
    old = quorum.elect()
    quorum.advance(1_000)
    committed = old.committed[-1]
    others = [i for i in quorum.members if i != old.id]
    quorum.cut = {(a, b) for i in others for a, b in ((i, old.id), (old.id, i))}
    assert old.propose_noop()
    assert old.propose_noop()
    quorum.advance(10_000)
    new = quorum.elect()
    assert new is not old
    assert old.committed[-1] == committed, "nothing is committed without a majority"
    new.propose_noop()
    quorum.cut = set()
    quorum.advance(20_000)
    assert len({node.log_bytes for node in quorum.members.values()}) == 1
    leader = quorum.leader()
    assert leader is not None
    assert core_of(leader).high_watermark == leader.opened.log.end_offset


def test_a_replica_behind_the_log_start_loads_the_snapshot(tmp_path: Path) -> None:
    quorum = three(tmp_path)
    leader = quorum.elect()
    late = next(node for node in quorum.members.values() if node is not leader)
    late.kill()
    for _ in range(3):
        leader.propose_noop()
    quorum.advance(2_000)
    snapshot_id = leader.make_snapshot()
    leader.propose_noop()
    quorum.advance(1_000)
    late.start()
    quorum.advance(10_000)
    assert [one.snapshot.id for one in late.installed] == [snapshot_id]
    assert core_of(late).log.start_offset == snapshot_id.end_offset
    assert late.committed[-1] == core_of(leader).high_watermark == leader.opened.log.end_offset
    late.kill()
    late.start()
    quorum.advance(10_000)
    assert late.installed == [], "it is on its disk"
    assert late.committed[-1] == core_of(leader).high_watermark


def test_a_majority_commits_while_the_leaders_own_flush_is_under_way(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    pools = {i: HeldPool(is_holding=False) for i in quorum.members}
    for i, node in quorum.members.items():
        node.pool = pools[i]
    quorum.start()
    leader = quorum.elect()
    quorum.advance(1_000)
    pools[leader.id].is_holding = True
    assert leader.propose_noop()
    quorum.advance(200)
    assert pools[leader.id].held == 1, "its flush waits"
    assert core_of(leader).log.flushed_end < leader.opened.log.end_offset
    assert leader.committed[-1] == leader.opened.log.end_offset


def test_a_vote_is_answered_only_once_it_is_durable(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    node = quorum.members[1]
    node.pool = pool = HeldPool()
    driver = node.start()
    answers: list[Response] = []
    me = ReplicaKey(1, bytes([1]) * 16)
    vote = VoteRequest(1, ReplicaKey(2, bytes([2]) * 16), me, 0, 0, pre_vote=False)
    driver.receive(vote, answers.append)
    assert answers == []
    driver.receive(FetchRequest(ReplicaKey(3), 5, 0, 0), answers.append)
    assert answers == [], "an answer names the epoch, which is not durable yet"
    pool.release(1)
    assert [type(one) for one in answers] == [FetchResponse], "the epoch is, the vote is not"
    pool.release()
    vote_answer = answers[1]
    assert isinstance(vote_answer, VoteResponse)
    assert vote_answer.granted
    stored = node.opened.state_file.find()
    assert stored is not None
    assert (stored.epoch, stored.voted) == (1, ReplicaKey(2))


def test_of_several_states_that_wait_the_newest_is_written(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    node = quorum.members[1]
    node.pool = pool = HeldPool()
    driver = node.start()
    answers: list[Response] = []
    for epoch in (1, 2, 3):
        vote = VoteRequest(epoch, ReplicaKey(2), ReplicaKey(1), 0, 0, pre_vote=False)
        driver.receive(vote, answers.append)
    pool.release()
    assert [isinstance(one, VoteResponse) and one.granted for one in answers] == [True] * 3
    stored = node.opened.state_file.find()
    assert stored is not None
    assert (stored.epoch, stored.voted) == (3, ReplicaKey(2))


def test_a_vote_does_not_wait_for_a_flush_of_the_log(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    pools = {i: HeldPool(is_holding=False) for i in quorum.members}
    for i, node in quorum.members.items():
        node.pool = pools[i]
    quorum.start()
    leader = quorum.elect()
    pool = pools[leader.id]
    pool.is_holding = True
    assert leader.propose_noop()
    assert pool.held == 1
    candidate = ReplicaKey(leader.id % 3 + 1)
    vote = VoteRequest(9, candidate, ReplicaKey(leader.id), 8, 99, pre_vote=False)
    assert leader.driver is not None
    leader.driver.receive(vote, lambda _: None)
    assert pool.held == 2, "quorum-state is on its way beside the log"


class LateResults(HeldPool):
    """Makes each call at once; what came of it is told when the test says so."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        result = fn(*args, **kwargs)
        return super().submit(lambda: result)


def test_what_is_appended_while_a_flush_is_under_way_is_not_flushed_by_it(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    node = quorum.members[1]
    node.pool = pool = LateResults(is_holding=False)
    quorum.start()
    pool.is_holding = True
    assert node.propose_noop()
    first_end = node.opened.log.end_offset
    assert node.propose_noop()
    pool.release(1)
    assert node.committed[-1] == first_end
    pool.release()
    assert node.committed[-1] == first_end + 1


def test_a_disk_that_fails_ends_the_replica_once_and_answers_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    node = quorum.members[1]
    node.disk = disk = FaultyDisk()
    driver = node.start()
    disk.fail(["rename", "fsync"], path_part="quorum-state")
    answers: list[Response] = []
    vote = VoteRequest(1, ReplicaKey(2), ReplicaKey(1), 0, 0, pre_vote=False)
    driver.receive(vote, answers.append)
    driver.receive(vote, answers.append)
    assert answers == []
    assert len(node.failures) == 1
    assert isinstance(driver.failure, OSError)
    assert "defect" not in caplog.text


class DeafNode(DrivenNode):
    """What stands on this replica fails when it hears that something is committed."""

    def on_high_watermark(self, offset: int) -> None:
        raise ValueError(f"no use for {offset}")


def test_a_replica_ends_with_what_stands_on_it(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    node = DeafNode(quorum, 1, quorum.members[1].directory)
    driver = node.start()
    quorum.advance(1_000)
    assert str(driver.failure) == "no use for 1"
    assert node.failures == [driver.failure]
    assert not node.propose_noop()


def test_a_leader_that_closes_hands_over_first(tmp_path: Path) -> None:
    quorum = three(tmp_path)
    leader = quorum.elect()
    quorum.advance(1_000)
    closed: list[bool] = []
    assert leader.driver is not None
    leader.driver.close(lambda: closed.append(True))
    assert closed == []
    quorum.advance(100)
    assert closed == [True]
    leader.kill()
    successor = quorum.elect(within_ms=1_000)
    assert successor is not leader


def test_a_disk_that_fails_while_a_leader_hands_over_ends_it_at_once(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    disks = {i: FaultyDisk() for i in quorum.members}
    pools = {i: HeldPool(is_holding=False) for i in quorum.members}
    for i, node in quorum.members.items():
        node.disk, node.pool = disks[i], pools[i]
    quorum.start()
    leader = quorum.elect()
    quorum.advance(1_000)
    pool = pools[leader.id]
    pool.is_holding = True
    assert leader.propose_noop()
    closed: list[bool] = []
    assert leader.driver is not None
    leader.driver.close(lambda: closed.append(True))
    disks[leader.id].fail(["fsync"])
    pool.release()
    quorum.advance(0)
    assert (closed, len(leader.failures)) == ([True], 1)
    quorum.advance(60_000)
    assert closed == [True]


def test_the_end_waits_for_a_flush_of_the_log_under_way(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    node = quorum.members[1]
    node.pool = pool = HeldPool(is_holding=False)
    quorum.start()
    pool.is_holding = True
    assert node.propose_noop()
    closes_only_after(pool, node, quorum)


def test_the_end_waits_for_a_vote_under_way(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    node = quorum.members[1]
    node.pool = pool = HeldPool()
    driver = node.start()
    driver.receive(
        VoteRequest(1, ReplicaKey(2), ReplicaKey(1), 0, 0, pre_vote=False), lambda _: None
    )
    closes_only_after(pool, node, quorum)


def test_the_end_waits_for_the_note_of_what_was_flushed(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    node = quorum.members[1]
    node.background = pool = HeldPool()
    quorum.start()
    assert node.propose_noop()
    assert node.propose_noop()
    quorum.advance(LINES_FSYNC_MS)
    closes_only_after(pool, node, quorum)


def closes_only_after(pool: HeldPool, node: DrivenNode, quorum: DrivenQuorum) -> None:
    """Who is told of the end lets go of the files: nobody may still write or fsync them."""
    assert pool.held == 1
    closed: list[bool] = []
    assert node.driver is not None
    node.driver.close(lambda: closed.append(True))
    quorum.advance(1_000)
    assert closed == []
    pool.release()
    quorum.advance(0)
    assert closed == [True]


def test_truncation_below_what_is_committed_ends_the_replica(tmp_path: Path) -> None:
    quorum = three(tmp_path)
    leader = quorum.elect()
    quorum.advance(1_000)
    follower = next(node for node in quorum.members.values() if node is not leader)
    others = [node for node in quorum.members.values() if node is not follower]
    for node in others:
        node.kill()
        for file in sorted(node.directory.iterdir()):
            file.unlink()
    quorum.advance(100)
    for node in others:
        node.start()
    follower_core = core_of(follower)
    assert follower_core.high_watermark > 0
    quorum.advance(60_000)
    # Two empty disks are a majority that forgot: the third must not forget, too.
    assert follower_core.log.end_offset > 0
    if follower.failures:
        assert isinstance(follower.failures[0], RaftFailureError)
    else:
        assert follower.leads, "only its log is complete"


def test_a_fetch_elsewhere_names_the_leader(tmp_path: Path) -> None:
    quorum = three(tmp_path)
    leader = quorum.elect()
    quorum.advance(1_000)
    follower = next(node for node in quorum.members.values() if node is not leader)
    answers: list[Response] = []
    assert follower.driver is not None
    epoch = core_of(follower).epoch
    follower.driver.receive(FetchRequest(ReplicaKey(9), epoch, 0, 0), answers.append)
    assert answers[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answers[0].standing.leader_id == leader.id


def test_records_are_not_sent_under_an_epoch_that_is_over(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    quorum.start()
    node = quorum.members[1]
    node.propose_noop()
    epoch = core_of(node).epoch
    assert records_sent(node, epoch).data == node.log_bytes
    late = records_sent(node, epoch - 1)
    assert (late.error, late.data) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


def test_records_are_not_sent_that_were_read_while_the_lead_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    quorum.start()
    node = quorum.members[1]
    node.propose_noop()
    assert node.driver is not None
    leads = iter([True, False])  # asked before the read, and after it
    monkeypatch.setattr(node.driver._answers, "_leads", lambda _epoch: next(leads))
    late = records_sent(node, core_of(node).epoch)
    assert (late.error, late.data) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


def test_nothing_is_read_for_others_while_the_log_is_cut(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    quorum.start()
    node = quorum.members[1]
    node.propose_noop()
    epoch, gate = core_of(node).epoch, node.opened.log.gate
    gate.shut(lambda: None)
    answer = records_sent(node, epoch)
    assert (answer.error, answer.data) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    gate.open()
    assert records_sent(node, epoch).data == node.log_bytes


def records_sent(node: DrivenNode, epoch: int) -> FetchResponse:
    """What a Fetch is answered with that the core let pass in `epoch`."""
    assert node.driver is not None
    answers: list[Response] = []
    waiting, end = node.driver._answers, node.opened.log.end_offset
    token = waiting.expect(answers.append)
    waiting.respond_records(
        RespondRecords(token, Standing(epoch, node.id), end, 0, 0, end, 1 << 20, 0)
    )
    [answer] = answers
    assert isinstance(answer, FetchResponse)
    return answer


def test_a_follower_far_behind_takes_many_small_batches_in_parts(
    tmp_path: Path,
) -> None:
    quorum = three(tmp_path)
    leader = quorum.elect()
    quorum.advance(1_000)
    late = next(node for node in quorum.members.values() if node is not leader)
    late.kill()
    for _ in range(BATCHES_MAX + 10):
        assert leader.propose_noop()
    end = leader.opened.log.end_offset
    answer = leader.opened.log.read(1, 8 << 20)
    assert len(list(iter_batches(answer))) == BATCHES_MAX
    late.start()
    quorum.advance(10_000)
    assert late.opened.log.end_offset == end
    assert late.log_bytes == leader.log_bytes


def _park(node: DrivenNode, count: int) -> list[Response]:
    """Let so many observers wait for the next commit; what they will hear."""
    core, answers = core_of(node), list[Response]()
    assert node.driver is not None
    for number in range(count):
        request = FetchRequest(
            replica=ReplicaKey(1_000 + number, number.to_bytes(16)),
            epoch=core.epoch,
            offset=core.log.end_offset,
            last_fetched_epoch=core.epoch,
            high_watermark=core.high_watermark,
            max_wait_ms=500,
            max_bytes=1_000,
        )
        node.driver.receive(request, answers.append)
    assert core.parked_count == count
    assert answers == []
    return answers


def test_very_many_parked_fetches_are_answered_in_turns(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    quorum.start()
    node = quorum.members[1]
    many = 2 * FETCHES_PER_ITERATION + 10
    answers = _park(node, many)
    assert node.propose_noop()
    assert len(answers) == FETCHES_PER_ITERATION, "others have a turn in between"
    assert core_of(node).parked_count == 0
    quorum.advance(0)
    assert len(answers) == many
    assert all(isinstance(one, FetchResponse) and one.data for one in answers)


def test_a_leader_that_ends_answers_all_that_are_parked(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1])
    quorum.start()
    node = quorum.members[1]
    many = 2 * FETCHES_PER_ITERATION + 10
    answers = _park(node, many)
    closed: list[bool] = []
    assert node.driver is not None
    node.driver.close(lambda: closed.append(True))
    quorum.advance(0)
    assert closed == [True]
    assert [one.error for one in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * many


def test_records_read_while_the_lead_was_lost_are_not_sent(tmp_path: Path) -> None:
    """They left memory, so a thread read them; meanwhile the log may have been cut."""
    quorum = DrivenQuorum(tmp_path, [1])
    node = quorum.members[1]
    node.reads = pool = HeldPool(is_holding=False)
    quorum.start()
    assert node.driver is not None
    node.propose_noop()
    node.opened.log.read_resident = lambda *_: None  # type: ignore[method-assign]
    epoch, end = node.driver.core.epoch, node.opened.log.end_offset
    pool.is_holding = True
    answers: list[Response] = []
    token = node.driver._answers.expect(answers.append)
    node.driver._answers.respond_records(
        RespondRecords(token, Standing(epoch, node.id), end, 0, 0, end, 1 << 20, 0)
    )
    assert (pool.held, answers) == (1, [])
    node.driver.resign("a test")  # it leads again at once, in the next epoch
    assert node.driver.core.epoch > epoch
    pool.release()
    quorum.advance(10)
    [answer] = answers
    assert isinstance(answer, FetchResponse)
    assert (answer.error, answer.data) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
