"""Without descriptors or memory a question fails, the log and its directory continue.

What an append left behind where it failed is as if it had never been.
"""

import errno
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.files import offset_index, time_index
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from local_log.log import lookups
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dir import LOG_STARTS
from local_log.manager.log_dirs import LogManager
from runtime.disk import Buffer, Disk
from runtime.disk_errors import is_exhausted
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
from tests.support.worlds.local_log import (
    NOW_MS,
    SMALL,
    TOPIC_ID,
    append,
    open_log,
    with_config,
)

OPENING = ("open_append", "open_read", "open_write", "atomic_write", "fsync_path")
WRITING = ("append", "write_at", "truncate", "fsync", "read_at", "rename")
CONFIG = replace(SMALL, segment_bytes=700, index_interval_bytes=100)
ORDERS = TopicPartition("orders", 0)


class ExhaustedDisk(FaultyDisk):
    """Fails also where a `FaultyDisk` replaces files without a word."""

    def atomic_write(self, path: Path, data: Buffer, *, durable: bool = True) -> None:
        self._check("atomic_write", path)
        super().atomic_write(path, data, durable=durable)

    def fsync_path(self, path: Path) -> None:
        self._check("fsync_path", path)
        super().fsync_path(path)


def is_sound(directory: Path) -> list[int]:
    """Base offsets of all batches of the files; they and their indexes fit each other."""
    found: list[int] = []
    paths = sorted(directory.glob("*.log"))
    bases = [int(path.stem) for path in paths]
    for number, path in enumerate(paths):
        data, base = path.read_bytes(), int(path.stem)
        batches = list(iter_batches(data))
        assert sum(header.size_bytes for _, header in batches) == len(data), f"torn: {path}"
        places = {(position, header.last_offset) for position, header in batches}
        stamps = {(header.last_offset, header.max_timestamp) for _, header in batches}
        for _, header in batches:
            assert header.base_offset >= base
            assert number + 1 == len(bases) or header.last_offset < bases[number + 1]
        index = path.with_suffix(".index").read_bytes()
        for at in range(0, len(index), offset_index.ENTRY_SIZE):
            entry = offset_index.read_entry(index, base, at // offset_index.ENTRY_SIZE)
            if any(index[at : at + offset_index.ENTRY_SIZE]):
                assert (entry.position, entry.offset) in places
        times = path.with_suffix(".timeindex").read_bytes()
        for at in range(0, len(times), time_index.ENTRY_SIZE):
            if any(times[at : at + time_index.ENTRY_SIZE]):
                stamp = time_index.read_entry(times, base, at // time_index.ENTRY_SIZE)
                assert (stamp.offset, stamp.timestamp) in stamps
        found += [header.base_offset for _, header in batches]
    return found


def append_some(log: PartitionLog, count: int, *, at: int) -> int:
    """Append in changing epochs and sizes; how many were taken."""
    taken = 0
    for number in range(at, at + count):
        try:
            append(log, 1, epoch=number // 7, at_ms=NOW_MS + number, size=20 + 37 * (number % 4))
        except KafkaStorageError:
            continue
        taken += 1
    return taken


def reopened(directory: Path, copy: Path) -> PartitionLog:
    """The log as a kill right now would leave it."""
    shutil.copytree(directory, copy)
    return open_log(copy, config=CONFIG, clean=False)


@pytest.mark.parametrize("operation", [*OPENING, *WRITING])
@pytest.mark.parametrize(
    "number", [errno.EMFILE, pytest.param(errno.ENOMEM, marks=pytest.mark.long(seconds=1))]
)
def test_a_failed_append_leaves_the_log_as_it_was(
    tmp_path: Path, operation: str, number: int
) -> None:
    failed = 0
    for after in range(40):
        disk, directory = ExhaustedDisk(), tmp_path / f"{after}" / "orders-0"
        log = open_log(directory, config=CONFIG, disk=disk)
        taken = append_some(log, 12, at=0)
        disk.fail([operation], error=number, after=after)
        taken += append_some(log, 12, at=12)
        disk.heal()
        if operation in OPENING or (number == errno.EMFILE and operation == "append"):
            assert not log.is_offline, after
        if log.is_offline:
            continue
        failed += taken < 24
        taken += append_some(log, 12, at=24)
        assert log.log_end_offset == taken
        assert is_sound(directory) == list(range(taken))
        assert log.size_bytes == sum(path.stat().st_size for path in directory.glob("*.log"))
        again = reopened(directory, tmp_path / f"{after}" / "killed" / "orders-0")
        assert again.log_end_offset == taken
        assert again.epochs.entries() == log.epochs.entries()
    assert failed or operation in {"open_read", "fsync_path", "fsync", "read_at"}


def test_a_chain_that_cannot_be_written_is_not_believed(tmp_path: Path) -> None:
    disk = ExhaustedDisk()
    config = with_config(remote_storage_enable=True)
    log = open_log(tmp_path / "orders-0", disk=disk, config=config)
    append(log, epoch=1)
    disk.fail(["atomic_write"], error=errno.EMFILE, path_part="leader-epoch-checkpoint")
    with pytest.raises(KafkaStorageError):
        append(log, epoch=2)
    assert log.epochs.latest_epoch == 1
    disk.heal()
    append(log, epoch=2)
    assert log.epochs.entries() == reopened(tmp_path / "orders-0", tmp_path / "b").epochs.entries()


def test_torn_bytes_that_cannot_be_cut_take_the_log_offline(tmp_path: Path) -> None:
    disk = ExhaustedDisk()
    log = open_log(tmp_path / "orders-0", disk=disk)
    append(log)
    disk.fail(["append", "truncate"], error=errno.EMFILE)
    with pytest.raises(KafkaStorageError):
        append(log)
    assert log.is_offline
    disk.heal()
    assert reopened(tmp_path / "orders-0", tmp_path / "b").log_end_offset == 1


def test_a_broken_disk_still_takes_the_log_offline(tmp_path: Path) -> None:
    disk = ExhaustedDisk()
    log = open_log(tmp_path / "orders-0", disk=disk)
    disk.fail(["append"], error=errno.EIO)
    with pytest.raises(KafkaStorageError):
        append(log)
    assert log.is_offline


def test_reads_and_flushes_fail_and_work_again(tmp_path: Path) -> None:
    disk = ExhaustedDisk()
    log = open_log(tmp_path / "orders-0", config=CONFIG, disk=disk)
    append_some(log, 20, at=0)
    for segment in log.segments.all[:-1]:
        segment.release()
    disk.fail([*OPENING], error=errno.EMFILE)
    for question in (
        lambda: log.read(0, 1_000),
        log.flush,
        lambda: lookups.offset_for_timestamp(log, 5),
    ):
        with pytest.raises(KafkaStorageError, match="cannot be used now"):
            question()
    assert not log.is_offline
    assert log.recovery_point == 0
    disk.heal()
    assert log.read(0, 1_000).size_bytes
    log.flush()
    assert log.recovery_point == 20


def test_an_fsync_without_memory_may_have_lost_bytes(tmp_path: Path) -> None:
    disk = ExhaustedDisk()
    log = open_log(tmp_path / "orders-0", disk=disk)
    append(log)
    disk.fail(["fsync"], error=errno.ENOMEM)
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.is_offline


def manager_of(root: Path, disk: Disk, **settings: object) -> LogManager:
    manager = LogManager(
        [root],
        lambda _: replace(CONFIG, **settings),  # type: ignore[arg-type]
        simulated(clock=ManualClock(NOW_MS), disk=disk),
    )
    manager.lock()
    manager.load()
    return manager


def test_without_descriptors_no_checkpoint_is_written_and_no_disk_fails(
    tmp_path: Path,
) -> None:
    disk = ExhaustedDisk()
    manager = manager_of(tmp_path, disk)
    manager.create(*ORDERS, TOPIC_ID)
    disk.fail(["atomic_write", "open_append"], error=errno.EMFILE)
    assert "cannot be written now" in str(manager.keep_log_starts([ORDERS])[ORDERS])
    with pytest.raises(KafkaStorageError):
        manager.create("other", 0, b"o" * 16)
    assert manager.online_dirs()
    disk.heal()
    assert manager.keep_log_starts([ORDERS]) == {}
    assert manager.create("other", 0, b"o" * 16).log_end_offset == 0
    manager.close()


def test_retention_drops_nothing_whose_log_start_cannot_be_listed(tmp_path: Path) -> None:
    disk = ExhaustedDisk()
    manager = manager_of(
        tmp_path, disk, remote_storage_enable=True, local_retention_bytes=1, retention_bytes=-1
    )
    log = manager.create(*ORDERS, TOPIC_ID)
    append_some(log, 30, at=0)
    log.update_high_watermark(log.log_end_offset)
    assert log.set_copied_through(20, log.epochs.epoch_for(20) or 0)
    disk.fail(["atomic_write"], error=errno.EMFILE, path_part=LOG_STARTS)
    assert manager.run_retention(NOW_MS) == []
    assert manager.online_dirs()
    disk.heal()
    assert manager.run_retention(NOW_MS)
    manager.close()


def test_a_directory_that_could_not_be_loaded_whole_is_offline(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, Disk())
    append_some(manager.create(*ORDERS, TOPIC_ID), 3, at=0)
    manager.close()
    disk = ExhaustedDisk()
    disk.fail(["open_append"], error=errno.EMFILE)
    manager = manager_of(tmp_path, disk)
    assert not manager.online_dirs(), "a log that was not opened must not be made again"
    manager.close()


def test_what_is_exhaustion() -> None:
    for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR):
        assert is_exhausted(OSError(number, ""))
    for number in (errno.EIO, errno.ENOSPC, errno.EROFS, errno.ENOENT, errno.EACCES):
        assert not is_exhausted(OSError(number, ""))
