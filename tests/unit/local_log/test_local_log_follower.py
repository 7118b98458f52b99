"""A follower's log: batches that have their places, truncations, and what is asked next."""

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import write_crc
from kafka_protocol.types import EpochEntry
from local_log.errors import (
    CorruptMessage,
    FallingEpoch,
    KafkaStorageError,
    LogIsTruncated,
    UnexpectedAppendOffset,
)
from local_log.leader_epoch_cache import EpochEnd, LeaderEpochCache, truncation_for
from local_log.log.results import Appended, Ended
from local_log.log.truncation import truncate_fully_and_start_at, truncate_to
from local_log.recovery.acceptance import ACCEPTED
from local_log.segment.reading import filler
from runtime.executors import make_pool
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.local_log import (
    NOW_MS,
    append,
    batch_of,
    filled,
    open_log,
    read_bytes,
    retain,
    with_config,
)


def given(first, count=1, epoch=0, **kwargs):
    return bytes(batch_of(count, base_offset=first, leader_epoch=epoch, **kwargs))


def take(log, batches, *, leader_epoch=9, asked=None):
    asked = log.log_end_offset if asked is None else asked
    return log.append_batches(batches, now_ms=NOW_MS, leader_epoch=leader_epoch, asked_offset=asked)


def chain_of(log):
    return [tuple(entry) for entry in log.epochs.entries()]


# -- what is written ------------------------------------------------------------------------------


def test_whole_batches_are_written_as_they_came(tmp_path):
    log = open_log(tmp_path)
    data = given(0, 3, epoch=2) + given(3, epoch=2) + given(7, 2, epoch=4)  # 4 to 6 were compacted
    assert take(log, data) == Appended(0, 8, len(data), Ended.ALL)
    assert read_bytes(log, 0, 10_000) == data
    assert chain_of(log) == [(2, 0), (4, 7)]
    assert log.log_end_offset == 9


def test_answer_cut_in_its_last_batch_gives_the_batches_before_it(tmp_path):
    whole, last = given(0, 3), given(3, 2)
    for number, kept in enumerate((1, 11, 40, 61, len(last) - 1)):
        log = open_log(tmp_path / str(number))
        assert take(log, whole + last[:kept]) == Appended(0, 2, len(whole), Ended.CUT)
        assert log.log_end_offset == 3
        assert take(log, last[:kept]) == Appended(-1, -1, 0, Ended.CUT)
        assert take(log, last) == Appended(3, 4, len(last), Ended.ALL)


def test_batch_above_the_leaders_epoch_ends_the_append(tmp_path):
    log = open_log(tmp_path)
    data = given(0, epoch=3)
    newer = given(1, epoch=5) + given(2, epoch=5)
    assert take(log, data + newer, leader_epoch=4) == Appended(0, 0, len(data), Ended.NEWER_EPOCH)
    assert chain_of(log) == [(3, 0)]
    assert take(log, newer, leader_epoch=4) == Appended(-1, -1, 0, Ended.NEWER_EPOCH)
    assert take(log, newer, leader_epoch=5).last_offset == 2


def test_nothing_to_write_is_no_error(tmp_path):
    assert take(open_log(tmp_path), b"") == Appended(-1, -1, 0, Ended.ALL)


def _flipped(batch, at):
    changed = bytearray(batch)
    changed[at] ^= 1
    return bytes(changed)


def _of_length(batch, length):
    return batch[:8] + length.to_bytes(4, "big", signed=True) + batch[12:]


@pytest.mark.parametrize(
    "damaged",
    [
        _flipped(given(1), -1),
        _flipped(given(1), 60),
        _flipped(given(1), 16),  # magic
        _of_length(given(1), 3),
        _of_length(given(1), -1),
    ],
)
def test_damaged_batch_is_refused_and_those_before_it_stay(tmp_path, damaged):
    log = open_log(tmp_path)
    with pytest.raises(CorruptMessage, match="offset 1"):
        take(log, given(0) + damaged + given(2))
    assert log.log_end_offset == 1
    assert read_bytes(log, 0, 10_000) == given(0)


def test_batch_that_ends_before_it_begins_is_refused(tmp_path):
    batch = batch_of(2, base_offset=0)
    batch[23:27] = (-2).to_bytes(4, "big", signed=True)
    write_crc(batch, 0, len(batch))
    with pytest.raises(CorruptMessage):
        take(open_log(tmp_path), bytes(batch))


@pytest.mark.parametrize("second", [0, 1, 2])
def test_offsets_that_do_not_ascend_are_refused(tmp_path, second):
    log = open_log(tmp_path)
    with pytest.raises(UnexpectedAppendOffset) as refused:
        take(log, given(0, 3) + given(second))
    assert (refused.value.first_offset, log.log_end_offset) == (second, 3)


@pytest.mark.parametrize("asked", [2, 4])
def test_answer_to_a_question_about_another_end_is_refused(tmp_path, asked):
    log = filled(tmp_path, 2)
    assert log.log_end_offset == 3
    with pytest.raises(UnexpectedAppendOffset):
        take(log, given(max(asked, 3)), asked=asked)
    assert log.log_end_offset == 3


def test_epoch_that_falls_is_refused(tmp_path):
    log = open_log(tmp_path)
    with pytest.raises(FallingEpoch) as refused:
        take(log, given(0, epoch=4) + given(1, epoch=3))
    assert (refused.value.first_offset, refused.value.epoch, refused.value.latest) == (1, 3, 4)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert chain_of(log) == [(4, 0)]


def test_filler_for_lost_offsets_has_no_epoch_and_is_taken(tmp_path):
    log = open_log(tmp_path)
    data = given(0, 3, epoch=4) + filler(3, 900) + given(900, epoch=5)
    assert take(log, data) == Appended(0, 900, len(data), Ended.ALL)
    assert read_bytes(log, 0, 10_000) == data
    assert chain_of(log) == [(4, 0), (5, 900)]


def test_log_cut_within_its_first_batch_has_a_high_watermark_of_0(tmp_path):
    log = open_log(tmp_path, config=with_config(segment_bytes=500))
    for first in range(0, 12, 4):
        take(log, given(first, 4))
    assert log.segments.bases == [0, 4, 8]
    log.flush()
    log.update_high_watermark(12)
    truncate_to(log, 2)
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (0, 0, 0)


# -- offsets that a leader's cleaner took ---------------------------------------------------------


def _with_gap(directory, policy, **changes):
    config = with_config(cleanup_policy=frozenset({policy}), segment_bytes=100_000)
    log = open_log(directory, config=config, **changes)
    take(log, given(0, 40, epoch=4) + given(52, 4, epoch=4) + given(56, 4, epoch=4))
    return log


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_log_that_is_cut_behind_a_gap_ends_there_for_good(tmp_path, policy, is_clean):
    """Ended at the last batch, it would be refused as too short, or give offsets twice."""
    log = _with_gap(tmp_path, policy)
    log.flush()
    truncate_to(log, 52)
    assert log.log_end_offset == 52
    assert log.recovery_point <= 40, "a power cut may leave it without the name of its end"
    log.flush()
    log.close(clean=is_clean)
    again = open_log(tmp_path, config=log.config, recovery_point=52, clean=is_clean)
    assert (again.log_end_offset, read_bytes(again, 0, 10_000)) == (52, given(0, 40, epoch=4))
    newer = given(52, epoch=5)
    take(again, newer)
    assert read_bytes(again, 45, 10_000) == newer


def test_log_that_begins_with_a_gap_ends_behind_it_once_it_is_cut(tmp_path):
    log = open_log(tmp_path)
    take(log, given(52, 4))
    truncate_to(log, 52)
    log.flush()
    log.close(clean=False)
    again = open_log(tmp_path, recovery_point=52, clean=False)
    assert (again.log_start_offset, again.log_end_offset) == (0, 52)
    assert read_bytes(again, 0, 10_000) == b""
    take(again, given(52, epoch=5))
    assert read_bytes(again, 0, 10_000) == given(52, epoch=5)


@pytest.mark.parametrize("is_clean", [False, True])
def test_gap_of_the_leaders_is_no_damage_whatever_the_topic_says_now(tmp_path, is_clean):
    """It compacted once. A killed process counts as one that lost nothing."""
    log = _with_gap(tmp_path, "delete")
    log.close(clean=is_clean)
    again = open_log(tmp_path, config=log.config, recovery_point=log.recovery_point, clean=is_clean)
    assert again.log_end_offset == 60


def test_batch_behind_a_gap_is_not_written_before_the_gap_is_noted(tmp_path):
    """Else a power cut between them leaves a gap that the next start takes for damage."""
    disk = FaultyDisk()
    log = open_log(tmp_path, disk=disk)
    take(log, given(0, 4))
    disk.fail(["rename"], path_part=ACCEPTED)
    with pytest.raises(KafkaStorageError):
        take(log, given(8))
    assert log.log_end_offset == 4
    assert log.segments.active.size_bytes == len(given(0, 4))


# -- the chain ------------------------------------------------------------------------------------


def _led_in_vain(directory, **kwargs):
    """It led epoch 3 from 0 to 100, then epoch 5, in which it wrote nothing."""
    log = open_log(directory, **kwargs)
    take(log, given(0, 100, epoch=3))
    log.epochs.assign(5, 100)
    assert chain_of(log) == [(3, 0), (5, 100)]
    return log


@pytest.mark.parametrize("offset", [100, 101, 2**40])
def test_truncation_at_the_end_cuts_an_epoch_without_a_record(tmp_path, offset):
    log = _led_in_vain(tmp_path)
    truncate_to(log, offset)
    assert chain_of(log) == [(3, 0)]
    assert log.log_end_offset == 100
    take(log, given(100, epoch=4))
    assert chain_of(log) == [(3, 0), (4, 100)]


def test_fetched_batch_may_not_come_behind_an_epoch_without_a_record(tmp_path):
    log = _led_in_vain(tmp_path)
    for epoch in (4, 5, 6):
        with pytest.raises(AssertionError):
            take(log, given(100, epoch=epoch))
    assert chain_of(log) == [(3, 0), (5, 100)]


def test_epoch_to_ask_with_is_that_of_the_last_record(tmp_path):
    log = open_log(tmp_path)
    assert log.last_fetched_epoch == -1
    log.epochs.assign(2, 0)
    assert log.last_fetched_epoch == -1
    truncate_to(log, 0)
    take(log, given(0, 2, epoch=3) + given(2, epoch=4))
    log.epochs.assign(7, 3)
    assert log.last_fetched_epoch == 4
    truncate_to(log, 2)
    assert log.last_fetched_epoch == 3
    truncate_fully_and_start_at(log, 50)
    assert (log.last_fetched_epoch, chain_of(log)) == (-1, [])


@pytest.mark.parametrize("tiered", [False, True])
def test_the_epoch_of_the_last_committed_record_stays_when_that_is_deleted(tmp_path, tiered):
    """By it alone a follower finds that its leader's log is of another lineage."""
    config = with_config(remote_storage_enable=tiered)
    log = open_log(tmp_path, config=config)
    take(log, given(0, 2, epoch=3) + given(2, epoch=4))
    log.update_high_watermark(3)
    log.raise_log_start(3)
    log.clip_chain(3)
    assert (log.last_fetched_epoch, chain_of(log)) == (4, [(4, 2)])
    log.epochs.assign(7, 3)  # led, without a record
    log.clip_chain(3)
    assert chain_of(log) == [(4, 2), (7, 3)]
    log.close()
    again = open_log(tmp_path, config=config, log_start=3, high_watermark=3)
    assert (again.last_fetched_epoch, chain_of(again)) == (4, [(4, 2)])
    take(again, given(3, epoch=8))
    again.clip_chain(3)
    assert chain_of(again) == [(4, 2), (8, 3)], "it is not committed"
    again.update_high_watermark(4)
    again.clip_chain(3)
    assert chain_of(again) == [(8, 3)]


@pytest.mark.parametrize(("tiered", "kept"), [(True, [(3, 1), (5, 2)]), (False, [(5, 3)])])
def test_earlier_epochs_stay_in_the_chain_until_the_log_is_validated(tmp_path, tiered, kept):
    log = open_log(tmp_path, config=with_config(remote_storage_enable=tiered))
    take(log, given(0, 2, epoch=3))
    log.unvalidated_end = 2
    take(log, given(2, 2, epoch=5))
    log.update_high_watermark(4)
    log.raise_log_start(4)
    log.clip_chain(4)
    assert chain_of(log) == kept
    log.unvalidated_end = -1
    log.clip_chain(4)
    assert chain_of(log) == [(5, 3)]


OURS = LeaderEpochCache([EpochEntry(2, 10), EpochEntry(4, 30), EpochEntry(7, 60)])


@pytest.mark.parametrize(
    ("theirs", "end"),
    [
        ((7, 70), 70),  # the leader's epoch 7 is shorter
        ((7, 90), 80),  # cannot be, and cuts nothing
        ((4, 40), 40),
        ((4, 75), 60),
        ((5, 55), 55),  # an epoch that is not here: neither end is common
        ((5, 65), 60),
        ((3, 25), 25),
        ((3, 45), 30),
        ((1, 5), 5),  # below everything here
        ((1, 15), 10),
    ],
)
def test_log_is_cut_where_both_may_agree(theirs, end):
    assert truncation_for(OURS, EpochEnd(*theirs), log_end=80) == end


def test_log_without_a_chain_is_cut_at_the_leaders_end():
    empty = LeaderEpochCache()
    assert truncation_for(empty, EpochEnd(3, 40), log_end=80) == 40
    assert truncation_for(empty, EpochEnd(3, 90), log_end=80) == 80


# -- the log start --------------------------------------------------------------------------------


def test_log_that_begins_anew_above_its_end_forgets_epochs_and_producers(tmp_path):
    log = open_log(tmp_path)
    for sequence in range(60):
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        append(log, epoch=sequence // 20, is_transactional=sequence > 50, **producer)
    moved = []
    log._hooks.before_truncation = moved.append
    log._hooks.log_start_moved = lambda: moved.append(("start", log.log_start_offset))
    truncate_fully_and_start_at(log, 500)
    assert moved == [0, ("start", 500)]
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (500,) * 3
    assert (log.high_watermark, log.last_stable_offset, log.recovery_point) == (500, 500, 0)
    assert chain_of(log) == []
    assert not log.producers.states.producers
    take(log, given(500, 2, epoch=8))
    assert chain_of(log) == [(8, 500)]
    log.close()
    again = open_log(tmp_path, log_start=500)
    assert (again.log_start_offset, again.log_end_offset, chain_of(again)) == (500, 502, [(8, 500)])


def test_high_watermark_is_not_above_the_end_after_a_truncation(tmp_path):
    log = filled(tmp_path)
    assert log.high_watermark == log.log_end_offset
    truncate_to(log, 20)
    assert log.high_watermark == log.log_end_offset <= 20


# -- leased
# -----------------------------------------------------------------------------------------


def test_log_that_is_cut_on_a_pool_thread_is_not_read(tmp_path):
    log = filled(tmp_path)
    log.lease.grant(truncates=True)
    with pytest.raises(LogIsTruncated) as refused:
        log.read(0, 100)
    assert refused.value.code == ErrorCode.REPLICA_NOT_AVAILABLE
    with pytest.raises(LogIsTruncated):
        log.aborted_transactions(0, 10)
    log.lease.take_back()
    assert log.read(0, 1000).size_bytes


def test_log_that_is_lent_for_an_append_is_read(tmp_path):
    log = filled(tmp_path)
    log.lease.grant(truncates=False)
    assert log.read(0, 1000).size_bytes


def test_waiting_fetches_look_again_when_a_truncated_log_is_back(tmp_path):
    log, looked = filled(tmp_path), []
    log.changed = lambda: looked.append(log.log_end_offset)
    pool = make_pool("cut", 1)
    log.lease.grant(truncates=True)
    pool.submit(truncate_to, log, 20).result(timeout=30)
    assert looked == []
    log.lease.take_back()
    assert looked == [log.log_end_offset]
    pool.shutdown()


def test_log_is_lent_once_at_a_time_and_not_closed(tmp_path):
    log = filled(tmp_path)
    log.lease.grant(truncates=False)
    with pytest.raises(AssertionError):
        log.lease.grant(truncates=True)
    with pytest.raises(AssertionError):
        log.close()
    log.lease.take_back()
    with pytest.raises(AssertionError):
        log.lease.take_back()
    log.close()


def test_those_that_wait_for_a_log_get_it_one_after_the_other(tmp_path):
    lease, got = open_log(tmp_path).lease, []
    lease.when_here(lambda: got.append("at once"))
    lease.grant(truncates=False)
    lease.when_here(lambda: (got.append("lends"), lease.grant(truncates=True)))
    lease.when_here(lambda: got.append("behind it"))
    assert got == ["at once"]
    lease.take_back()
    assert (got, lease.is_leased) == (["at once", "lends"], True)
    lease.take_back()
    assert got == ["at once", "lends", "behind it"]


def test_nothing_that_the_loop_does_by_itself_touches_a_lent_log(tmp_path):
    log = filled(tmp_path)
    log.lease.grant(truncates=False)
    assert not log.roll_if_due(NOW_MS + 10**12)
    with pytest.raises(AssertionError):
        retain(log, NOW_MS + 10**12)
