"""A log on a disk that forgets names and content that were not fsynced."""

from pathlib import Path

import pytest

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.control import ControlType, end_transaction_batch
from kafka_protocol.types import EpochEntry
from local_log.file_names import EPOCH_CHECKPOINT
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_to
from tests.support.sim.power_cut_disk import PowerCutDisk
from tests.support.sim.rng import SeededRng
from tests.support.worlds.local_log import NOW_MS, append, filled, open_log, with_config

SEEDS = range(20)


def offsets_of(log: PartitionLog) -> list[int]:
    return [
        offset
        for segment in log.segments.all
        for _, header in segment.batches(0)
        for offset in range(header.base_offset, header.next_offset)
    ]


def test_an_index_lost_below_the_recovery_point_is_made_again(tmp_path: Path) -> None:
    """Deletion renames a segment's files one by one; a cut may keep one rename and lose another."""
    log = filled(tmp_path)
    log.flush()
    point = log.recovery_point
    log.close(clean=False)
    log.segments.all[0].path(".index").unlink()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()  # so that the producers are read from the first segment on
    log = open_log(tmp_path, clean=False, recovery_point=point)
    assert log.log_start_offset == 0
    assert log.log_end_offset == point


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("knows_the_point", [False, True])
def test_flushed_records_survive_a_power_cut_whatever_was_rolled(
    tmp_path: Path, seed: int, knows_the_point: bool
) -> None:
    rng = SeededRng(seed)
    disk = PowerCutDisk(tmp_path, rng)
    log = open_log(tmp_path, disk=disk)
    flushed = 0
    for number in range(60):
        append(log, 1 + number % 3, epoch=number // 25)
        if rng.random() < 0.1:
            log.flush()
            flushed = log.log_end_offset
    assert len(log.segments.all) > 3
    if seed % 3 == 0:
        log.flush()
        flushed = log.log_end_offset
    disk.cut()
    again = open_log(tmp_path, clean=False, recovery_point=flushed if knows_the_point else 0)
    found = offsets_of(again)
    assert found == list(range(len(found)))
    assert len(found) >= flushed
    assert again.log_end_offset == len(found)
    chain = [(entry.epoch, entry.start_offset) for entry in again.epochs.entries()]
    written = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries()]
    assert chain == [entry for entry in written if entry[1] < again.log_end_offset]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_recovery_cut_off_does_not_come_back(tmp_path: Path, seed: int) -> None:
    """Behind new records of the same size, the old ones would be taken for the log's own."""
    log = filled(tmp_path)
    log.flush()
    log.close(clean=False)
    path = log.segments.all[-1].path(".log")
    data = bytearray(path.read_bytes())
    batches = [position for position, _ in iter_batches(bytes(data))]
    assert len(batches) > 2
    data[batches[1] + 70] ^= 1  # in the records of the second batch; those behind it are whole
    path.write_bytes(data)
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    recovered = open_log(tmp_path, disk=disk, clean=False)
    end = recovered.log_end_offset
    disk.cut()
    assert path.read_bytes() == data[: batches[1]]
    assert open_log(tmp_path, clean=False).log_end_offset == end


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flushed", [False, True])
def test_a_clean_stop_survives_a_power_cut(tmp_path: Path, seed: int, flushed: bool) -> None:
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    log = open_log(tmp_path, disk=disk)
    sequence = count = 0
    for number in range(60):
        count = 1 + number % 3
        append(log, count, producer_id=5, producer_epoch=0, base_sequence=sequence)
        sequence += count
    if flushed:
        log.flush()
    log.close()
    disk.cut()
    again = open_log(tmp_path)
    assert offsets_of(again) == list(range(sequence))
    last = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence - count}
    assert append(again, count, **last).is_duplicate


@pytest.mark.parametrize("seed", SEEDS)
def test_aborted_transactions_below_the_recovery_point_survive(tmp_path: Path, seed: int) -> None:
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    log = open_log(tmp_path, disk=disk)
    for number in range(6):  # two in a segment: that one of them is missing would not be told
        first = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number}
        append(log, 1, is_transactional=True, **first)
        abort = end_transaction_batch(
            ControlType.ABORT,
            base_offset=0,
            leader_epoch=0,
            timestamp_ms=NOW_MS,
            producer_id=5,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        log.append_as_leader(abort, leader_epoch=0, now_ms=NOW_MS, from_client=False)
        if number % 2:
            log.roll(NOW_MS)
    log.flush()
    end = log.log_end_offset
    expected = log.aborted_transactions(0, end)
    assert len(expected) == 6
    disk.cut()
    again = open_log(tmp_path, clean=False, recovery_point=end)
    assert again.aborted_transactions(0, end) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flush_writes_the_chain_before_it_counts_a_new_epoch(tmp_path: Path, seed: int) -> None:
    rng = SeededRng(seed)
    disk = PowerCutDisk(tmp_path, rng)
    log = open_log(tmp_path, disk=disk)
    flushed: list[EpochEntry] = []
    for epoch in range(12):
        log.epochs.assign(epoch, log.log_end_offset)  # every second one leads in vain
        if epoch % 2:
            append(log, epoch=epoch)
        if rng.random() < 0.3:
            log.flush()
            flushed = log.epochs.entries()
    disk.cut()
    on_disk = epoch_checkpoint.parse((tmp_path / EPOCH_CHECKPOINT).read_bytes() or b"0\n0\n")
    assert on_disk == flushed


def test_a_new_epoch_touches_no_file_where_nothing_remote_hangs_on_it(tmp_path: Path) -> None:
    log, written = filled(tmp_path), []
    log.disk.atomic_write = lambda path, data, **_: written.append(path.name)
    log.epochs.assign(7, log.log_end_offset)
    truncate_to(log, log.log_end_offset)
    log.epochs.assign(8, log.log_end_offset)
    append(log, epoch=8)
    assert written == []
    log.set_config(with_config(remote_storage_enable=True))
    log.epochs.assign(9, log.log_end_offset)
    assert written == [EPOCH_CHECKPOINT]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_flushed_after_a_truncation_survives(tmp_path: Path, seed: int) -> None:
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    log = open_log(tmp_path, disk=disk)
    for _ in range(60):
        append(log, 1)
    log.flush()
    truncate_to(log, 31)
    for _ in range(7):
        append(log, 1, epoch=1)
    log.flush()
    assert log.recovery_point == log.log_end_offset == 38
    disk.cut()
    again = open_log(tmp_path, clean=False, recovery_point=38)
    assert again.log_end_offset >= 38
    headers = [header for segment in again.segments.all for _, header in segment.batches(0)]
    epochs = [header.partition_leader_epoch for header in headers if header.base_offset < 38]
    assert epochs == [0] * 31 + [1] * 7
