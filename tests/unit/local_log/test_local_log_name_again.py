"""Work of a deleted log that comes late does nothing to the next log of that name."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kafka_protocol.files import epoch_checkpoint, producer_snapshot
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.errors import LogClosed
from local_log.file_names import EPOCH_CHECKPOINT
from local_log.log import retention
from local_log.log.partition_log import PartitionLog
from local_log.log.producers import PRODUCERS_AT_ONCE_MAX
from local_log.manager.future_dirs import NewBeginning
from local_log.manager.log_dirs import LogManager
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
from tests.support.worlds.local_log import NOW_MS, SMALL, TOPIC_ID, append, open_log, with_config
from tests.support.worlds.pools import HeldPool
from tests.support.worlds.replacement import swapped

ORDERS = TopicPartition("orders", 0)
LARGE = with_config(SMALL, segment_bytes=1 << 20, segment_index_bytes=1 << 16)


def manager(directory: Path, pool: HeldPool | None = None) -> LogManager:
    ports = simulated(clock=ManualClock(NOW_MS), pool=pool)
    made = LogManager([directory], lambda _: LARGE, ports)
    made.load()
    return made


def _retention(log: PartitionLog, pool: HeldPool) -> Callable[[], object]:
    for _ in range(2):
        for _ in range(3):
            append(log)
        log.roll(NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    log.set_config(replace(log.config, retention_bytes=0))
    expiry = retention.expire(log, NOW_MS)
    assert expiry is not None
    assert retention.take_out(log, expiry)
    return partial(retention.rename_leaving, log)


def _snapshot(log: PartitionLog, pool: HeldPool) -> Callable[[], object]:
    for producer_id in range(PRODUCERS_AT_ONCE_MAX + 1):
        append(log, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    pool.is_holding = True
    log.roll(NOW_MS)
    (flush,) = pool.take()
    return flush


def _epoch(log: PartitionLog, pool: HeldPool) -> Callable[[], object]:
    return lambda: log.epoch_file.write_epoch_ahead(99, log.log_end_offset)


@pytest.mark.parametrize("work", [_retention, _snapshot, _epoch])
def test_a_new_log_keeps_its_files(
    tmp_path: Path, work: Callable[[PartitionLog, HeldPool], Callable[[], object]]
) -> None:
    pool = HeldPool(is_holding=False)
    logs = manager(tmp_path, pool)
    late = work(logs.create(*ORDERS, TOPIC_ID), pool)
    logs.delete(ORDERS)
    new = logs.create(*ORDERS, b"2" * 16)
    for _ in range(PRODUCERS_AT_ONCE_MAX + 10):
        append(new)
    files = {path.name: path.stat().st_mtime_ns for path in new.directory.iterdir()}
    with suppress(LogClosed):
        late()
    assert {path.name: path.stat().st_mtime_ns for path in new.directory.iterdir()} == files
    logs.close(clean=False)
    found = manager(tmp_path).get(ORDERS)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (0, PRODUCERS_AT_ONCE_MAX + 10)
    assert not found.producers.states.producers


class NotingDisk(FaultyDisk):
    """Notes what was fsynced by its path."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def fsync_path(self, path: Path) -> None:
        self.synced.append(path.name)
        super().fsync_path(path)


@pytest.mark.parametrize("work", [_retention, _snapshot, _epoch])
def test_a_log_that_was_swapped_in_keeps_its_files(
    tmp_path: Path, work: Callable[[PartitionLog, HeldPool], Callable[[], object]]
) -> None:
    pool = HeldPool(is_holding=False)
    logs = manager(tmp_path, pool)
    late = work(logs.create(*ORDERS, TOPIC_ID), pool)
    new = swapped(logs, NewBeginning(5000, 5000, (), bytes(producer_snapshot.dump([]))))
    append(new, epoch=8)
    files = {path.name: path.stat().st_mtime_ns for path in new.directory.iterdir()}
    with suppress(LogClosed):
        late()
    assert {path.name: path.stat().st_mtime_ns for path in new.directory.iterdir()} == files
    assert all(one.works for one in logs.dirs)


def test_a_chain_written_before_tiering_is_made_durable_when_it_is_taken(
    tmp_path: Path,
) -> None:
    disk = NotingDisk()
    log = open_log(tmp_path, disk=disk)
    append(log)
    log.epoch_file.write_epoch_ahead(7, log.log_end_offset)
    log.set_config(replace(log.config, remote_storage_enable=True))
    disk.synced.clear()
    log.epochs.assign(7, log.log_end_offset)
    assert tmp_path.name in disk.synced, "the new name is durable"
    on_disk = epoch_checkpoint.parse((tmp_path / EPOCH_CHECKPOINT).read_bytes())
    assert on_disk[-1] == EpochEntry(7, 1)
