"""A tier whose partition is unhealthy.

What health says, and that it continues by itself afterwards.
"""

from pathlib import Path

import pytest

from broker.replica.validation import Validation
from kafka_protocol.errors import ErrorCode
from rlm.link.messages import Loss, OffsetForTimestamp, TimestampAnswer
from rlm.read.read_path import READS_FAIL_MS
from rlm.workers import EXPIRATION_POOL, VALIDATION_POOL
from rlmm.api import PartitionDeleteState
from rlmm.lifecycle import Verdict
from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.testing import Operation
from tests.support.tier.log_in_memory import PARTITION
from tests.support.tier.pair import NAMES, Pair, bytes_of, error_of


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Three segments of 20 records are copied, all but the newest are only remote."""
    pair = Pair(tmp_path)
    pair.log.fill(3, records=20)
    pair.assign()
    pair.log.expire_local(keep=2)
    assert pair.log.local_start == 40
    return pair


def restart(pair: Pair) -> None:
    pair.log.new_epoch()
    pair.assign()


def test_a_lost_chain_is_unhealthy_and_copying_continues_after_the_remedy(
    pair: Pair,
) -> None:
    for path in pair.store.rglob("*.indexes"):
        path.unlink()
    plugin = LocalFsRemoteStorageManager()
    plugin.configure({"dir": str(pair.store)})
    pair.storage.replace_inner(plugin)  # one that remembers nothing of what it copied
    pair.log.lose_chain()
    restart(pair)
    pair.log.fill(1, records=20)
    (reason,) = pair.reasons()
    assert reason.startswith("chain lost")
    assert "DeleteRecords to 40" in reason
    assert (pair.log.verdict, pair.log.copied) == (Loss.CHAIN, -1)
    written = len(pair.metadata.log)
    for _ in range(3):
        pair.scheduler.advance(60_000)
        pair.pump()
    assert len(pair.metadata.log) == written, "it is validated again under the same barrier"
    pair.log.delete_records(40)
    pair.scheduler.advance(60_000)
    pair.pump()
    assert pair.reasons() == []
    assert (pair.log.verdict, pair.log.copied) == (Validation.SOUND, 79)


def test_a_store_that_fails_while_the_chain_is_lost_is_asked_again(pair: Pair) -> None:
    pair.log.lose_chain()
    pair.storage.fail_next(Operation.FETCH_INDEX, RetriableRemoteStorageError("down"))
    restart(pair)
    assert pair.log.chain_problem, "not restored yet"
    pair.scheduler.advance(60_000)
    pair.pump()
    assert pair.reasons() == []
    assert pair.log.chain_problem == ""
    assert pair.log.log_start == 0


def test_reads_and_time_lookups_wait_until_the_log_is_validated(
    pair: Pair,
) -> None:
    """The chain that the broker has may be an old one, which only the validation tells."""
    pair.workers.held.add(VALIDATION_POOL)
    restart(pair)
    assert error_of(pair.read(0)) == ErrorCode.REPLICA_NOT_AVAILABLE
    question = OffsetForTimestamp(
        *NAMES,
        pair.log.leader_epoch,
        timestamp_ms=0,
        log_start_offset=0,
        chain=[(1, 0)],
        wait_ms=100,
    )
    answer = pair.ask(question, 200).message
    assert isinstance(answer, TimestampAnswer)
    assert answer.error == ErrorCode.REQUEST_TIMED_OUT
    pair.workers.held.clear()
    pair.pump()
    assert bytes_of(pair.read(0))


def test_a_log_is_validated_also_while_deletions_hold_all_threads(pair: Pair) -> None:
    pair.workers.held.add(EXPIRATION_POOL)
    restart(pair)
    assert pair.log.verdict is Validation.SOUND
    assert bytes_of(pair.read(0))
    end = len(pair.metadata.log) - 1
    pair.metadata.lose(end)
    pair.pump()
    assert len(pair.metadata.log) > end, "withdrawn, owned and validated again"
    assert pair.log.verdict is Validation.SOUND


def test_a_leader_epoch_below_the_last_one_is_unhealthy_and_named(pair: Pair) -> None:
    pair.log.new_epoch(7)
    pair.assign()
    pair.log.leader_epoch = 3
    pair.assign()
    (reason,) = pair.reasons()
    assert reason.startswith("leader epoch too low: it is 3, and 7 was used before")


def test_a_partition_that_is_marked_as_removed_is_unhealthy_by_that_name(pair: Pair) -> None:
    pair.metadata.put_partition_delete(PARTITION, PartitionDeleteState.DELETE_PARTITION_MARKED)
    restart(pair)
    (reason,) = pair.reasons()
    assert reason.startswith("this topic id is marked as removed, and the topic exists")
    assert "delete the topic once more" in reason
    assert pair.log.epoch_requests == []


def accepted(pair: Pair) -> int:
    return sum(1 for _, verdict in pair.metadata.log if verdict is Verdict.ACCEPTED)


def lower_epoch(pair: Pair, *, is_on_chain: bool) -> None:
    """Assigned under leader epoch 3; 7 was used, as records or only the chain say."""
    pair.log.new_epoch(7)
    if not is_on_chain:
        pair.assign()
        pair.log.chain.pop()
    pair.log.leader_epoch = 3
    pair.assign()


@pytest.mark.parametrize("is_on_chain", [True, False], ids=["chain", "records"])
def test_a_higher_leader_epoch_is_asked_for_and_makes_the_tier_healthy(
    pair: Pair, is_on_chain: bool
) -> None:
    lower_epoch(pair, is_on_chain=is_on_chain)
    written, deletions = accepted(pair), pair.calls(Operation.DELETE)
    pair.scheduler.advance(60_000)
    pair.pump()
    asked = pair.log.epoch_requests
    assert {(request.leader_epoch, request.used) for request in asked} == {(3, 7)}
    assert (pair.log.verdict, pair.log.copied) == (Loss.LEADER_EPOCH, -1)
    assert (accepted(pair), pair.calls(Operation.DELETE)) == (written, deletions)
    count = len(asked)
    pair.log.new_epoch(8)
    pair.assign()
    assert pair.reasons() == []
    assert (pair.log.verdict, pair.log.copied) == (Validation.SOUND, 59)
    pair.scheduler.advance(60_000)
    pair.pump()
    assert len(asked) == count


@pytest.mark.parametrize("is_on_chain", [True, False], ids=["chain", "records"])
def test_a_higher_leader_epoch_that_nobody_gives_is_said(pair: Pair, is_on_chain: bool) -> None:
    pair.log.epoch_in_vain = "the controller refuses a higher one: damage"
    lower_epoch(pair, is_on_chain=is_on_chain)
    (reason,) = pair.reasons()
    assert "refuses a higher one: damage. Remedy" in reason


def test_a_broker_that_does_not_answer_is_asked_again_for_a_higher_epoch(
    pair: Pair,
) -> None:
    lower_epoch(pair, is_on_chain=False)
    count = len(pair.log.epoch_requests)
    pair.log.leader_epoch = 4  # it refuses what is asked under another one
    pair.scheduler.advance(60_000)
    pair.pump()
    assert len(pair.log.epoch_requests) == count
    pair.log.leader_epoch = 3
    pair.scheduler.advance(60_000)
    pair.pump()
    assert len(pair.log.epoch_requests) > count


def test_a_lineage_before_an_unclean_election_proves_no_lost_log_end(pair: Pair) -> None:
    """With the messages of broker and tier: the election's epoch comes with `Assign`."""
    pair.log.cut_to(40)
    pair.log.new_epoch()
    pair.assign()
    (reason,) = pair.reasons()
    assert reason.startswith("log end lost")
    pair.log.new_epoch()
    pair.assign(unclean_epoch=pair.log.leader_epoch)
    assert pair.reasons() == []
    assert pair.log.verdict is Validation.SOUND
    before = len(pair.metadata.log)
    unclean = pair.log.leader_epoch
    pair.log.fill(1, records=20)
    restart(pair)
    pair.scheduler.advance(60_000)
    pair.pump()
    assert pair.reasons() == [], "every later owner knows it by the records"
    carried = {event.stamp.unclean_epoch for event, _ in pair.metadata.log[before:]}
    assert carried == {unclean}


class OfSomebodyElse(LocalFsRemoteStorageManager):
    """A plugin with a bug in each call."""

    def _bug(self, *_: object) -> None:
        {}["no such name"]

    copy_log_segment_data = _bug  # type: ignore[assignment]
    fetch_log_segment = _bug  # type: ignore[assignment]


BUG_LINE = OfSomebodyElse._bug.__code__.co_firstlineno + 1


def test_an_error_that_no_interface_has_is_named_with_class_and_place(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    plugin = OfSomebodyElse()
    plugin.configure({"dir": str(pair.store)})
    pair.storage.replace_inner(plugin)
    pair.log.fill(1, records=20)
    pair.assign()
    (reason,) = pair.reasons()
    assert reason.startswith(f"copy: KeyError: 'no such name' ({__file__}:{BUG_LINE}). Remedy")


def test_reads_that_fail_are_named_until_one_works(pair: Pair) -> None:
    pair.storage.down = True
    for _ in range(2):
        assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    reason = next(each for each in pair.reasons() if each.startswith("reads of the store fail"))
    assert "down" in reason
    pair.storage.down = False
    pair.scheduler.advance(10_000)
    assert bytes_of(pair.read(0))
    assert pair.reasons() == []


def test_reads_that_failed_a_minute_ago_are_no_news(pair: Pair) -> None:
    pair.storage.fail_next(Operation.FETCH, RetriableRemoteStorageError("once"), 100)
    assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(pair.reasons()) == 1
    pair.scheduler.advance(READS_FAIL_MS)
    assert pair.reasons() == []


def test_a_read_that_fails_by_a_bug_of_the_plugin_is_named(pair: Pair) -> None:
    plugin = OfSomebodyElse()
    plugin.configure({"dir": str(pair.store)})
    pair.storage.replace_inner(plugin)
    assert error_of(pair.read(0)) != ErrorCode.NONE
    assert any(f"KeyError: 'no such name' ({__file__}" in each for each in pair.reasons())
