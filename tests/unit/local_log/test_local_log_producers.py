"""Idempotent producers, transactions, and the snapshots of both."""

import errno
import gc
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.files import producer_snapshot
from kafka_protocol.records.control import ControlType, end_transaction_batch
from local_log.log import retention, tier_segments
from local_log.log.partition_log import PartitionLog
from local_log.log.producers import PRODUCERS_AT_ONCE_MAX
from local_log.log.truncation import truncate_to
from local_log.producers.state import SILENT_MS, BatchMeta
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.power_cut_disk import PowerCutDisk
from tests.support.sim.rng import SeededRng
from tests.support.worlds.local_log import NOW_MS, SMALL, append, batch_of, open_log, with_config


def _send(log, sequence, count=1, *, pid=7, epoch=0, **kwargs):
    batch = batch_of(count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **kwargs)
    return log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)


def _code(log, *args, **kwargs):
    with pytest.raises(KafkaError) as refused:
        _send(log, *args, **kwargs)
    return refused.value.code


def _end(log, pid, epoch, *, commit):
    batch = end_transaction_batch(
        ControlType.COMMIT if commit else ControlType.ABORT,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=NOW_MS,
        producer_id=pid,
        producer_epoch=epoch,
        coordinator_epoch=0,
    )
    return log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, from_client=False)


def test_bad_input_N048_gap_in_sequence_is_refused(tmp_path):
    log = open_log(tmp_path)
    _send(log, 0, 3)
    assert _code(log, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _code(log, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # overlaps, is no repeat
    assert _send(log, 3).first_offset == 3


def test_bad_input_N049_each_of_the_last_five_batches_may_be_repeated(tmp_path):
    log = open_log(tmp_path)
    for i in range(7):
        _send(log, 2 * i, 2)
    for i in range(2, 7):
        info = _send(log, 2 * i, 2)
        assert (info.first_offset, info.last_offset, info.is_duplicate) == (2 * i, 2 * i + 1, True)
    assert _code(log, 2, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # the sixth is forgotten
    assert log.log_end_offset == 14


def test_bad_input_N050_older_epoch_is_refused(tmp_path):
    log = open_log(tmp_path)
    _send(log, 0, epoch=3)
    assert _code(log, 1, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_bad_input_N051_unknown_producer_begins_anywhere_known_one_at_zero(tmp_path):
    log = open_log(tmp_path)
    append(log)
    assert _send(log, 7).first_offset == 1
    assert _code(log, 7, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _send(log, 0, epoch=1).first_offset == 2


@pytest.mark.parametrize("epoch", [0, 3])
def test_first_sequence_of_a_log_that_never_held_a_record_is_zero(tmp_path, epoch):
    log = open_log(tmp_path)
    assert _code(log, 5, 5, epoch=epoch) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 0
    assert not log.producers.states.producers, "the batch before it must still be taken"
    assert _send(log, 0, 5, epoch=epoch).first_offset == 0
    assert _send(log, 5, 5, epoch=epoch).first_offset == 5


@pytest.mark.parametrize("restarted", [False, True])
def test_any_sequence_may_be_the_first_of_an_emptied_log(tmp_path, restarted):
    log = open_log(tmp_path)
    append(log, 3)
    log.update_high_watermark(log.log_end_offset)
    log.raise_log_start(3)
    if restarted:
        log.close()
        log = open_log(tmp_path, log_start=3, high_watermark=3)
    assert _send(log, 5).first_offset == 3


def test_sequence_wraps_to_zero(tmp_path):
    log = open_log(tmp_path)
    append(log)
    _send(log, 2**31 - 2, 2)
    assert _send(log, 0).first_offset == 3
    _send(log, 1, 3)
    assert _send(log, 2**31 - 2, 2).is_duplicate


def test_repeat_that_wraps_is_known_again(tmp_path):
    log = open_log(tmp_path)
    append(log)
    _send(log, 2**31 - 1, 3)  # sequences max, 0, 1
    assert _send(log, 2**31 - 1, 3).is_duplicate
    assert _send(log, 2).first_offset == 4


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_after_a_restart(clean, tmp_path):
    log = open_log(tmp_path)
    for i in range(30):
        _send(log, i)
    log.close(clean)
    log = open_log(tmp_path, clean=clean)
    assert [_send(log, sequence).first_offset for sequence in range(25, 30)] == [*range(25, 30)]
    assert log.log_end_offset == 30
    assert _code(log, 24) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _code(log, 31) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _send(log, 30).first_offset == 30


def test_damaged_snapshot_is_replaced_by_reading_the_log(tmp_path):
    log = open_log(tmp_path)
    for i in range(30):
        _send(log, i)
    log.close()
    newest = tmp_path / f"{30:020d}.snapshot"
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x77")
    log = open_log(tmp_path)
    assert _send(log, 29).is_duplicate


def test_clean_stop_writes_a_snapshot_at_the_log_end(tmp_path):
    log = open_log(tmp_path)
    _send(log, 0, 4)
    log.close()
    (entry,) = producer_snapshot.parse((tmp_path / f"{4:020d}.snapshot").read_bytes())
    assert (entry.producer_id, entry.last_sequence, entry.last_offset) == (7, 3, 3)


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_brings_no_snapshot_of_what_was_cut_off_back(tmp_path, seed):
    """Else what the client sends again is taken for a repeat, and is nowhere."""
    (tmp_path / "x").mkdir()
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    disk.begin()
    log = open_log(tmp_path / "x", disk=disk)
    for sequence in range(5):
        _send(log, sequence)
    log.close()
    log = open_log(tmp_path / "x", disk=disk)
    truncate_to(log, 2)
    for sequence in range(6):
        _send(log, sequence, pid=99)
    log.flush()
    recovery_point = log.recovery_point
    disk.cut()
    log.close(clean=False)
    log = open_log(tmp_path / "x", clean=False, recovery_point=recovery_point)
    assert not any(_send(log, sequence).is_duplicate for sequence in range(2, 5))


@pytest.mark.parametrize("seed", range(10))
def test_producers_of_dropped_segments_survive_a_power_cut(tmp_path, seed):
    """Otherwise a batch that is sent again after the start is appended a second time."""
    (tmp_path / "x").mkdir()
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    config = with_config(SMALL, remote_storage_enable=True, local_retention_ms=1_000)
    log = open_log(tmp_path / "x", disk=disk, config=config)
    _send(log, 0)
    while len(log.segments.all) < 4:
        append(log, 10)
    log.update_high_watermark(log.log_end_offset)
    log.set_copied_through(log.segments.active.base_offset - 1, 0)
    log.flush()
    expiry = retention.expire(log, NOW_MS + 3_600_000)
    retention.keep_producers(log, expiry)
    assert retention.take_out(log, expiry)
    retention.rename_leaving(log)
    known = {"log_start": log.log_start_offset, "recovery_point": log.recovery_point}
    assert known["log_start"] == 0 < log.local_log_start_offset
    disk.cut()
    log.close(clean=False)
    log = open_log(tmp_path / "x", config=config, clean=False, **known)
    assert log.local_log_start_offset > 0
    assert _send(log, 0).is_duplicate


def test_a_snapshot_has_one_batch_of_a_producer_that_was_silent(tmp_path):
    log = open_log(tmp_path)
    for sequence in range(7):
        _send(log, sequence)
    _send(log, 0, pid=8)
    _send(log, 1, pid=8)
    log.producers.states.expire(NOW_MS, 2 * SILENT_MS)
    log.producers.states.expire(NOW_MS + SILENT_MS - 1, 2 * SILENT_MS)
    assert len(log.producers.states.dump()) == 7
    _send(log, 2, pid=8)
    log.producers.states.expire(NOW_MS + SILENT_MS, 2 * SILENT_MS)
    log.close()
    entries = producer_snapshot.parse((tmp_path / f"{10:020d}.snapshot").read_bytes())
    found = [(one.producer_id, one.last_sequence) for one in entries]
    assert found == [(7, 6), (8, 0), (8, 1), (8, 2)]


def test_kafka_reads_the_last_entry_of_a_producer_which_says_all_of_it(tmp_path):
    """Its newest batch, its open transaction, and no older time than an entry before it."""
    log = open_log(tmp_path)
    for sequence in range(3):
        _send(log, sequence, is_transactional=True, at_ms=NOW_MS - sequence)
    log.close()
    entries = producer_snapshot.parse((tmp_path / f"{3:020d}.snapshot").read_bytes())
    firsts = [(one.last_offset, one.current_txn_first_offset) for one in entries]
    assert firsts == [(0, -1), (1, -1), (2, 0)]
    assert [one.timestamp for one in entries] == [NOW_MS - 2] * 3


def test_strange_snapshots_are_removed_at_the_next_start(tmp_path):
    log = open_log(tmp_path)
    _send(log, 0, 4)
    log.close()
    log = open_log(tmp_path)
    append(log)
    log.close()
    assert sorted(p.name for p in tmp_path.glob("*.snapshot")) == [
        f"{4:020d}.snapshot",
        f"{5:020d}.snapshot",
    ]
    open_log(tmp_path)
    assert [p.name for p in tmp_path.glob("*.snapshot")] == [f"{5:020d}.snapshot"]


def test_silent_producers_are_forgotten_but_not_open_transactions(tmp_path):
    log = open_log(tmp_path)
    _send(log, 0, pid=1)
    _send(log, 0, pid=2, is_transactional=True)
    _send(log, 0, pid=3)
    assert log.producers.states.expire(NOW_MS, 1000) == 0
    _send(log, 1, pid=3)
    assert log.producers.states.expire(NOW_MS + 1000, 1000) == 1
    assert sorted(log.producers.states.producers) == [2, 3]


def test_a_producer_of_old_records_is_kept_while_writing_and_after_restart(tmp_path):
    long_ago = NOW_MS - 30 * 86_400_000
    log = open_log(tmp_path)
    _send(log, 0, pid=1, at_ms=long_ago)
    assert log.producers.states.expire(NOW_MS, 86_400_000) == 0
    log = open_log(tmp_path, clean=False)
    assert log.producers.states.expire(NOW_MS, 86_400_000) == 0
    assert _send(log, 0, pid=1, at_ms=long_ago).is_duplicate


def test_last_stable_offset_waits_for_transactions_and_their_replication(tmp_path):
    log = open_log(tmp_path)
    append(log, 2)
    _send(log, 0, 2, pid=1, is_transactional=True)  # 2, 3
    _send(log, 0, 1, pid=2, is_transactional=True)  # 4
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2
    _end(log, 1, 0, commit=False)  # 5
    assert log.last_stable_offset == 2  # the marker is not replicated yet
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 4
    _end(log, 2, 0, commit=True)  # 6
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 7
    assert log.aborted_transactions(0, 7) == [(1, 2)]
    assert log.aborted_transactions(6, 7) == []
    log.close(clean=False)
    again = open_log(tmp_path, clean=False, high_watermark=7)
    assert again.aborted_transactions(0, 7) == [(1, 2)]
    assert again.last_stable_offset == 7


def test_transaction_index_entry_says_where_the_stable_end_was(tmp_path):
    log = open_log(tmp_path)
    _send(log, 0, 2, pid=1, is_transactional=True)
    _send(log, 0, 1, pid=2, is_transactional=True)
    _end(log, 2, 0, commit=False)
    _end(log, 1, 0, commit=False)
    entries = list(log.segments.all[0].aborted())
    assert [
        (e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset) for e in entries
    ] == [
        (2, 2, 3, 0),
        (1, 0, 4, 5),
    ]


def test_an_aborted_transaction_is_named_for_every_segment_it_reaches_over(tmp_path):
    log = open_log(tmp_path)
    _send(log, 0, 2, pid=1, is_transactional=True)  # 0, 1 in the first segment
    while len(log.segments.all) < 3:
        append(log, 3)
    _end(log, 1, 0, commit=False)
    append(log, 1)
    end = log.log_end_offset
    log.update_high_watermark(end)
    assert [bool(list(segment.aborted())) for segment in log.segments.all] == [False, False, True]
    borders = [*log.segments.bases, end]
    for start, stop in pairwise(borders):
        assert log.aborted_transactions(start, stop) == [(1, 0)]
    assert log.aborted_transactions(0, 1) == [(1, 0)]
    assert log.aborted_transactions(end - 1, end) == []


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_in_a_snapshot_are_restored_in_offset_order(tmp_path, clean):
    log = open_log(tmp_path)
    _send(log, 0, pid=1)  # 0: so that producer 1 comes first in the snapshot
    _send(log, 0, pid=2, is_transactional=True)  # 1
    _send(log, 1, pid=1, is_transactional=True)  # 2
    _send(log, 0, pid=3, is_transactional=True)  # 3
    log.roll(NOW_MS)
    log.close(clean=clean)
    log = open_log(tmp_path, clean=clean, high_watermark=4)
    assert log.last_stable_offset == 1
    _end(log, 3, 0, commit=False)
    (aborted,) = log.segments.all[-1].aborted()
    assert aborted.last_stable_offset == 1, "the first that is still open, not any"


def test_the_highest_producer_id_is_kept_beside_ids_that_are_none_of_ours(tmp_path):
    log = open_log(tmp_path)
    assert log.producers.states.highest_id == -1
    for pid in (7, 2**62 + 1, 9, 8):
        _send(log, 0, pid=pid)
    assert log.producers.states.highest_id == 9
    _end(log, 11, 0, commit=True)
    assert log.producers.states.highest_id == 11
    log.close()
    again = open_log(tmp_path)
    assert again.producers.states.highest_id == 11
    again.producers.states.expire(NOW_MS, 0)
    assert again.producers.states.expire(NOW_MS, 0) == 5
    assert again.producers.states.highest_id == 11, "a client may still hold it"


def test_of_a_producer_the_garbage_collector_looks_at_one_object(tmp_path):
    """Its full passes hold the event loop, and a log may have 100,000 producers."""
    log = open_log(tmp_path)
    for sequence in range(7):
        _send(log, sequence)
    state = log.producers.states.producers[7]
    assert [BatchMeta._make(one).first_sequence for one in state.batches] == [2, 3, 4, 5, 6]
    gc.collect()
    gc.collect()  # a tuple of tuples is excluded after these
    assert not any(gc.is_tracked(one) for one in [state.batches, *state.batches])
    log.close()


MANY = PRODUCERS_AT_ONCE_MAX + 100
LARGE = with_config(SMALL, segment_bytes=1 << 20, segment_index_bytes=1 << 16)


def _sent(log: PartitionLog, producer_id: int, sequence: int, epoch: int = 0) -> bool:
    return _send(log, sequence, pid=producer_id, epoch=epoch).is_duplicate


def _many(directory: Path) -> PartitionLog:
    log = open_log(directory, config=LARGE)
    for producer_id in range(MANY):
        _sent(log, producer_id, 0)
    return log


def _file(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}.snapshot"


def test_what_comes_after_the_roll_is_not_in_its_snapshot(tmp_path: Path) -> None:
    log = _many(tmp_path)
    expected = log.producers.states.dump()
    log.roll(NOW_MS)
    assert not _file(tmp_path, MANY).exists()
    _sent(log, 7, 1)
    _sent(log, 8, 0, epoch=1)
    _sent(log, MANY + 1, 0)
    log.producers.states.expire(NOW_MS, 0)
    log.producers.states.expire(NOW_MS, 0)
    log.flush()
    assert producer_snapshot.parse(_file(tmp_path, MANY).read_bytes()) == expected


def test_a_snapshot_that_could_not_be_written_does_not_spoil_the_stop(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, config=LARGE, disk=disk)
    for producer_id in range(MANY):
        _sent(log, producer_id, 0)
    disk.fail(["write_at"], path_part=".snapshot", error=errno.ENOSPC)
    log.roll(NOW_MS)
    log.flush()
    disk.heal()
    expected = log.producers.states.dump()
    log.close()
    assert not log.is_offline
    assert producer_snapshot.parse(_file(tmp_path, MANY).read_bytes()) == expected


def test_few_producers_are_written_by_the_roll(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LARGE)
    _sent(log, 7, 0)
    log.roll(NOW_MS)
    assert _file(tmp_path, 1).exists()


@pytest.mark.parametrize("flushed", [True, False])
def test_a_kill_before_the_snapshot_forgets_no_producer(tmp_path: Path, flushed: bool) -> None:
    log = _many(tmp_path)
    log.roll(NOW_MS)
    _sent(log, 7, 1)
    if flushed:
        log.flush()
    log.close(clean=False)
    again = open_log(tmp_path, config=LARGE, clean=False)
    assert _sent(again, 7, 0)
    assert _sent(again, 7, 1)
    assert all(_sent(again, producer_id, 0) for producer_id in range(MANY))
    assert not _sent(again, 7, 2)


def test_a_clean_stop_leaves_the_snapshot_of_its_end(tmp_path: Path) -> None:
    log = _many(tmp_path)
    log.roll(NOW_MS)
    log.close()
    assert len(producer_snapshot.parse(_file(tmp_path, MANY).read_bytes())) == MANY


def test_a_truncation_takes_a_snapshot_that_is_not_written_yet(tmp_path: Path) -> None:
    log = _many(tmp_path)
    log.roll(NOW_MS)
    truncate_to(log, 100)
    for producer_id in range(MANY):
        _sent(log, 5000 + producer_id, 0)
    log.flush()
    assert not _file(tmp_path, MANY).exists()
    log.close(clean=False)
    again = open_log(tmp_path, config=LARGE, clean=False)
    assert set(again.producers.states.producers) == {*range(100), *range(5000, 5000 + MANY)}


def test_a_copy_of_the_closed_segment_has_its_snapshot(tmp_path: Path) -> None:
    log = _many(tmp_path)
    expected = log.producers.states.dump()
    log.roll(NOW_MS)
    _sent(log, 7, 1)
    tier_segments.open_segment(log, 0)
    assert producer_snapshot.parse(_file(tmp_path, MANY).read_bytes()) == expected
