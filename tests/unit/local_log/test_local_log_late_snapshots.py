"""The producer snapshot of a roll with very many producers is written with the next flush."""

import errno
from pathlib import Path

import pytest

from kafka_protocol.files import producer_snapshot
from local_log.log import tier_segments
from local_log.log.partition_log import PartitionLog
from local_log.log.producers import PRODUCERS_AT_ONCE_MAX
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.local_log import NOW_MS, SMALL, batch_of, open_log, with_config

MANY = PRODUCERS_AT_ONCE_MAX + 50
LARGE = with_config(SMALL, segment_bytes=1 << 20, segment_index_bytes=1 << 16)


def _send(log: PartitionLog, producer_id: int, sequence: int, epoch: int = 0) -> bool:
    batch = batch_of(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS).is_duplicate


def _many(directory: Path) -> PartitionLog:
    log = open_log(directory, config=LARGE)
    for producer_id in range(MANY):
        _send(log, producer_id, 0)
    return log


def _file(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}.snapshot"


def test_what_comes_after_the_roll_is_not_in_its_snapshot(tmp_path: Path) -> None:
    log = _many(tmp_path)
    expected = log.producers.states.dump()
    log.roll(NOW_MS)
    assert not _file(tmp_path, MANY).exists()
    _send(log, 7, 1)
    _send(log, 8, 0, epoch=1)
    _send(log, MANY + 1, 0)
    log.producers.states.expire(NOW_MS, 0)
    log.producers.states.expire(NOW_MS, 0)
    log.flush()
    assert producer_snapshot.parse(_file(tmp_path, MANY).read_bytes()) == expected


def test_a_snapshot_that_could_not_be_written_does_not_spoil_the_stop(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, config=LARGE, disk=disk)
    for producer_id in range(MANY):
        _send(log, producer_id, 0)
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
    _send(log, 7, 0)
    log.roll(NOW_MS)
    assert _file(tmp_path, 1).exists()


@pytest.mark.parametrize("flushed", [True, False])
def test_a_kill_before_the_snapshot_forgets_no_producer(tmp_path: Path, flushed: bool) -> None:
    log = _many(tmp_path)
    log.roll(NOW_MS)
    _send(log, 7, 1)
    if flushed:
        log.flush()
    log.close(clean=False)
    again = open_log(tmp_path, config=LARGE, clean=False)
    assert _send(again, 7, 0)
    assert _send(again, 7, 1)
    assert all(_send(again, producer_id, 0) for producer_id in range(MANY))
    assert not _send(again, 7, 2)


def test_a_clean_stop_leaves_the_snapshot_of_its_end(tmp_path: Path) -> None:
    log = _many(tmp_path)
    log.roll(NOW_MS)
    log.close()
    assert len(producer_snapshot.parse(_file(tmp_path, MANY).read_bytes())) == MANY


def test_a_truncation_takes_a_snapshot_that_is_not_written_yet(tmp_path: Path) -> None:
    log = _many(tmp_path)
    log.roll(NOW_MS)
    log.truncate_to(100)
    for producer_id in range(MANY):
        _send(log, 5000 + producer_id, 0)
    log.flush()
    assert not _file(tmp_path, MANY).exists()
    log.close(clean=False)
    again = open_log(tmp_path, config=LARGE, clean=False)
    assert set(again.producers.states.producers) == {*range(100), *range(5000, 5000 + MANY)}


def test_a_copy_of_the_closed_segment_has_its_snapshot(tmp_path: Path) -> None:
    log = _many(tmp_path)
    expected = log.producers.states.dump()
    log.roll(NOW_MS)
    _send(log, 7, 1)
    tier_segments.open_segment(log, 0)
    assert producer_snapshot.parse(_file(tmp_path, MANY).read_bytes()) == expected


def test_a_flush_that_is_due_is_asked_for_once(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=with_config(SMALL, flush_ms=1000))
    _send(log, 7, 0)
    assert not log.flush_if_due(NOW_MS + 999)
    assert log.flush_if_due(NOW_MS + 1000)
    assert not log.flush_if_due(NOW_MS + 2000), "the first may still wait for its disk"
    log.flush()
    assert not log.flush_if_due(NOW_MS + 3000)
    _send(log, 7, 1)
    assert log.flush_if_due(NOW_MS + 1000)
