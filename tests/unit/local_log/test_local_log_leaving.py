"""Expired segments leave the log in memory; their files change names on a pool thread."""

import errno
import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue

import pytest

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.log import retention
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_fully_and_start_at
from local_log.manager.log_dirs import LogManager
from local_log.manager.retention_pass import CHANGE_WORK, RetentionPass
from runtime.disk import Buffer, Disk, OpenFile
from runtime.executors import InlinePool, Pool, make_pool
from runtime.work import STEP_WORK
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.local_log import (
    NOW_MS,
    SMALL,
    TOPIC_ID,
    append,
    filled,
    open_log,
    retain,
    with_config,
)
from tests.support.worlds.pools import HeldPool

LATER_MS = NOW_MS + 10_000
EXPIRES = with_config(SMALL, retention_ms=1000)


class Touched(Disk):
    """Notes which files are read or renamed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def open_read(self, path: Path) -> OpenFile:
        self.names.append(path.name)
        return super().open_read(path)

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        self.names.append(Path(file.path).name)
        return super().read_at(file, position, size)

    def size(self, path: Path) -> int:
        self.names.append(path.name)
        return super().size(path)

    def modified_ms(self, path: Path) -> int:
        self.names.append(path.name)
        return super().modified_ms(path)

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        self.names.append(source.name)
        super().rename(source, target, durable=durable)


def _reopened(directory: Path, disk: Disk, **kwargs: object) -> PartitionLog:
    filled(directory, config=EXPIRES).close()
    log = open_log(directory, disk=disk, config=EXPIRES, **kwargs)
    log.update_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize("limit", ["time", "size", "none"])
def test_what_retention_asks_of_the_disk_is_read_on_the_pool(tmp_path: Path, limit: str) -> None:
    disk = Touched()
    log = _reopened(tmp_path, disk)
    if limit != "time":
        size = log.size_bytes // 2 if limit == "size" else -1
        log.set_config(with_config(EXPIRES, retention_ms=10**9, retention_bytes=size))
    now_ms = NOW_MS + 1300  # half of them are too old
    retention.learn_ages(log, now_ms)
    assert disk.names
    disk.names.clear()
    expiry = retention.expire(log, now_ms)
    assert disk.names == []
    assert (expiry is not None) == (limit != "none")


def test_of_a_log_of_which_nothing_expires_only_the_oldest_segment_is_read(tmp_path: Path) -> None:
    disk = Touched()
    log = _reopened(tmp_path, disk)
    log.set_config(with_config(EXPIRES, retention_ms=10**9))
    disk.names.clear()
    retention.learn_ages(log, LATER_MS)
    assert {Path(name).stem for name in disk.names} == {f"{0:020d}"}


def test_nothing_is_read_of_a_log_that_holds_nothing(tmp_path: Path) -> None:
    disk = Touched()
    log = open_log(tmp_path, disk=disk, config=EXPIRES)
    disk.names.clear()
    retention.learn_ages(log, LATER_MS)
    assert retention.expire(log, LATER_MS) is None
    assert disk.names == []


def test_taking_segments_out_touches_no_file(tmp_path: Path) -> None:
    disk = Touched()
    log = filled(tmp_path, disk=disk, config=EXPIRES)
    before = sorted(path.name for path in tmp_path.iterdir())
    expiry = retention.expire(log, LATER_MS)
    assert expiry is not None
    disk.names.clear()
    result = retention.take_out(log, expiry)
    assert len(result) > 5
    assert [name for name in disk.names if "checkpoint" not in name] == []
    assert set(before) <= {path.name for path in tmp_path.iterdir()}
    paths = retention.rename_leaving(log)
    assert sorted(path.suffix for path in paths) == [".deleted"] * len(paths)
    assert len(paths) >= 3 * len(result)
    assert retention.rename_leaving(log) == []


def test_a_kill_before_the_files_change_names_lets_them_go_again(tmp_path: Path) -> None:
    log = filled(tmp_path, config=EXPIRES)
    expiry = retention.expire(log, LATER_MS)
    assert expiry is not None
    log.flush(expiry.log_start_offset)
    retention.take_out(log, expiry)
    start, end = log.log_start_offset, log.log_end_offset
    log.close(clean=False)
    again = open_log(tmp_path, config=EXPIRES, clean=False, log_start=start, high_watermark=end)
    assert (again.log_start_offset, again.log_end_offset) == (start, end)
    assert len(again.segments.all) > 1
    retain(again, LATER_MS)
    assert len(again.segments.all) == 1
    assert not list(tmp_path.glob(f"{0:020d}.log"))


def test_a_log_that_begins_anew_where_one_left_keeps_its_new_segment(tmp_path: Path) -> None:
    log = filled(tmp_path, config=EXPIRES)
    second = log.segments.all[1].base_offset
    expiry = retention.expire(log, LATER_MS)
    assert expiry is not None
    retention.take_out(log, expiry)
    truncate_fully_and_start_at(log, second)
    append(log, 3)
    assert retention.rename_leaving(log) == []
    log.close()
    again = open_log(tmp_path, config=EXPIRES, log_start=second, recovery_point=second + 3)
    assert (again.log_start_offset, again.log_end_offset) == (second, second + 3)


def test_segments_leave_after_log_starts_are_kept_and_before_their_files(
    tmp_path: Path,
) -> None:
    pool = HeldPool(is_holding=False)
    ports = simulated(clock=ManualClock(NOW_MS), pool=pool)
    manager = LogManager([tmp_path], lambda _: EXPIRES, ports)
    manager.load()
    log = manager.create("orders", 0, TOPIC_ID)
    for _ in range(60):
        append(log)
    log.update_high_watermark(log.log_end_offset)
    count, oldest = len(log.segments.all), log.segments.all[0].path(".log")
    pool.is_holding = True
    dropped = manager.run_retention(LATER_MS)
    pool.release(1)  # the ages are known
    assert len(log.segments.all) > 1
    assert not manager.is_log_start_kept(TopicPartition("orders", 0))
    while len(log.segments.all) > 1:
        assert pool.held
        assert dropped == []
        pool.release(1)
    assert manager.is_log_start_kept(TopicPartition("orders", 0))
    assert len(dropped) >= count
    assert oldest.exists()
    pool.release()
    assert not oldest.exists()


CHAIN = "leader-epoch-checkpoint"
TIERED = with_config(EXPIRES, remote_storage_enable=True)
THEN_MS = NOW_MS + 6000
"""Of three epochs two have expired, and a part of the third."""


def _fill_three_epochs(log: PartitionLog) -> None:
    for i in range(60):
        append(log, epoch=i // 20, at_ms=NOW_MS + 100 * i)
    log.update_high_watermark(log.log_end_offset)


def _of_three_epochs(
    directory: Path, *, tiered: bool = True, disk: Disk | None = None
) -> PartitionLog:
    """If it is tiered its log start is moved apart from its segments."""
    log = open_log(directory, config=TIERED if tiered else EXPIRES, log_start=0, disk=disk)
    _fill_three_epochs(log)
    log.flush()
    if tiered:
        log.raise_log_start(45)
    return log


def _on_disk(directory: Path) -> list[EpochEntry]:
    return epoch_checkpoint.parse((directory / CHAIN).read_bytes())


@pytest.mark.parametrize("was_clipped", [False, True])
@pytest.mark.parametrize("tiered", [False, True])
def test_the_chain_that_begins_later_is_not_written_by_the_loop(
    tmp_path: Path, tiered: bool, was_clipped: bool
) -> None:
    disk = Touched()
    log = _of_three_epochs(tmp_path, tiered=tiered, disk=disk)
    if was_clipped:
        log.clip_chain(log.log_start_offset)
    expiry = retention.expire(log, THEN_MS)
    assert expiry is not None
    assert expiry.log_start_offset > 40
    log.epoch_file.write_clipped_ahead(expiry.log_start_offset)
    disk.names.clear()
    assert retention.take_out(log, expiry)
    assert disk.names == []
    if not tiered:
        assert _on_disk(tmp_path)[0] == EpochEntry(0, 0)
        log.flush()
    assert _on_disk(tmp_path) == log.epochs.entries() == [EpochEntry(2, expiry.log_start_offset)]


def test_a_lagging_chain_of_a_newly_tiered_log_is_durable_before_deletion(
    tmp_path: Path,
) -> None:
    log = _of_three_epochs(tmp_path, tiered=False)
    log.epochs.assign(4, log.log_end_offset)
    append(log, epoch=4)
    log.set_config(TIERED)
    assert log.set_copied_through(log.log_end_offset - 1, 4)
    expiry = retention.expire(log, LATER_MS)
    assert expiry is not None
    assert retention.take_out(log, expiry)
    assert log.log_start_offset == 0 < log.local_log_start_offset
    assert _on_disk(tmp_path) == log.epochs.entries()
    log.close(clean=False)
    assert not open_log(tmp_path, config=TIERED, clean=False, log_start=0).epoch_file.lost


def test_a_chain_that_nothing_is_clipped_from_is_not_written(tmp_path: Path) -> None:
    log = _of_three_epochs(tmp_path)
    (tmp_path / CHAIN).unlink()
    log.epoch_file.write_clipped_ahead(0)
    assert not (tmp_path / CHAIN).exists()


def test_an_epoch_that_begins_meanwhile_stays_in_the_clipped_chain(tmp_path: Path) -> None:
    log = _of_three_epochs(tmp_path)
    expiry = retention.expire(log, THEN_MS)
    assert expiry is not None
    log.epoch_file.write_clipped_ahead(expiry.log_start_offset)
    log.epochs.assign(7, log.log_end_offset)
    assert [entry.epoch for entry in _on_disk(tmp_path)] == [0, 1, 2, 7]
    retention.take_out(log, expiry)
    assert [entry.epoch for entry in _on_disk(tmp_path)] == [2, 7]
    assert _on_disk(tmp_path) == log.epochs.entries()


def test_a_kill_after_the_clipped_chain_is_written_loses_no_epoch(tmp_path: Path) -> None:
    log = _of_three_epochs(tmp_path)
    expiry = retention.expire(log, THEN_MS)
    assert expiry is not None
    log.flush(expiry.log_start_offset)
    log.epoch_file.write_clipped_ahead(expiry.log_start_offset)
    start, end = log.log_start_offset, log.log_end_offset
    log.close(clean=False)
    known = {"clean": False, "log_start": start, "high_watermark": end, "recovery_point": start}
    again = open_log(tmp_path, config=EXPIRES, **known)
    assert not again.epoch_file.lost
    assert again.epochs.entries() == [EpochEntry(2, start)]
    assert len(again.segments.all) > 1


class OfChains(FaultyDisk):
    """Notes which thread replaces an epoch chain."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []

    def atomic_write(self, path: Path, data: Buffer, *, durable: bool = True) -> None:
        if path.name == CHAIN:
            self.threads.append(threading.current_thread().name)
        super().atomic_write(path, data, durable=durable)


class Loop(ManualScheduler):
    """The thread of a test, which takes what others put in."""

    def __init__(self) -> None:
        super().__init__(ManualClock(NOW_MS))
        self.calls = SimpleQueue[Callable[[], object]]()

    def call_soon(self, fn: Callable[[], object]) -> None:
        self.calls.put(fn)


class TestAPass:
    """The chain's file is the pool's work, after the log start."""

    def _manager(
        self, root: Path, disk: Disk, pool: Pool, scheduler: ManualScheduler | None = None
    ) -> tuple[LogManager, PartitionLog]:
        ports = simulated(clock=ManualClock(NOW_MS), disk=disk, pool=pool)
        ports = replace(ports, scheduler=scheduler or ports.scheduler)
        manager = LogManager([root], lambda _: TIERED, ports)
        manager.load()
        log = manager.create("orders", 0, TOPIC_ID)
        _fill_three_epochs(log)
        log.raise_log_start(45)
        return manager, log

    def test_it_is_clipped_when_the_log_start_is_kept_and_before_segments_go(
        self, tmp_path: Path
    ) -> None:
        pool = HeldPool(is_holding=False)
        manager, log = self._manager(tmp_path, Disk(), pool)
        pool.is_holding = True
        manager.run_retention(THEN_MS)
        was_kept, count = False, 0
        while _on_disk(log.directory)[0].start_offset == 0:
            was_kept, count = manager.is_log_start_kept(log.topic_partition), len(log.segments.all)
            assert pool.held
            pool.release(1)
        assert was_kept
        assert count > 1
        pool.release()
        assert _on_disk(log.directory) == log.epochs.entries()

    def test_the_loop_writes_no_chain(self, tmp_path: Path) -> None:
        disk, loop = OfChains(), Loop()
        pool = make_pool("beside", 1)
        manager, log = self._manager(tmp_path, disk, pool, loop)
        disk.threads.clear()
        dropped = manager.run_retention(THEN_MS)
        while not dropped:
            loop.calls.get(timeout=30)()
        pool.shutdown()
        assert _on_disk(log.directory) == log.epochs.entries()
        assert log.epochs.entries()[0].start_offset > 40
        assert [name.startswith("beside") for name in disk.threads] == [True]

    def test_it_stays_whole_where_the_log_start_is_not_kept(self, tmp_path: Path) -> None:
        disk = FaultyDisk()
        manager, log = self._manager(tmp_path, disk, HeldPool(is_holding=False))
        disk.fail(["rename"], path_part="log-start-offset-checkpoint", error=errno.EMFILE)
        assert manager.run_retention(THEN_MS) == []
        assert _on_disk(log.directory)[0] == EpochEntry(0, 0)


def test_segments_stay_if_the_tier_withdraws_its_report_before_they_go(
    tmp_path: Path,
) -> None:
    """Its store may lose the copies from then on: what is here may be all there is."""
    pool = HeldPool(is_holding=False)
    ports = simulated(clock=ManualClock(NOW_MS), pool=pool)
    manager = LogManager([tmp_path], lambda _: TIERED, ports)
    manager.load()
    log = manager.create("orders", 0, TOPIC_ID)
    for _ in range(60):
        append(log)
    log.update_high_watermark(log.log_end_offset)
    third = log.segments.all[2].base_offset
    log.raise_log_start(third)
    assert log.set_copied_through(log.segments.all[-1].base_offset - 1, 0)
    pool.is_holding = True
    dropped = manager.run_retention(LATER_MS)
    pool.release(1)  # the ages are known, and it is decided
    assert pool.held
    log.forget_copies()
    pool.release()
    assert len(dropped) == 2, "what lies below the log start goes all the same"
    assert log.segments.all[0].base_offset == third


class Noted(Disk):
    """Notes which segments leave, and when that is durable."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        if source.suffix == ".log" and target.suffix == ".deleted":
            self.noted.append(source.name)
        super().rename(source, target, durable=durable)

    def fsync_path(self, path: Path) -> None:
        if self.noted and self.noted[-1] != "durable" and path.is_dir():
            self.noted.append("durable")
        super().fsync_path(path)


def test_a_tiered_log_drops_a_segment_only_once_the_last_is_durably_gone(
    tmp_path: Path,
) -> None:
    """A power cut that took one back and not the next would leave a hole below the local end."""
    disk = Noted()
    config = with_config(
        remote_storage_enable=True, local_retention_ms=1000, retention_ms=-1, retention_bytes=-1
    )
    log = filled(tmp_path, config=config, log_start=0, disk=disk)
    log.roll(NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    assert log.set_copied_through(log.log_end_offset - 1, 0)
    gone = [f"{base:020}.log" for base in log.segments.bases[:-1]]
    retain(log, NOW_MS + 10_000)
    assert len(gone) > 2
    assert disk.noted == [each for name in gone for each in (name, "durable")]


def _passes(pool: Pool, scheduler: ManualScheduler) -> RetentionPass:
    return RetentionPass(
        is_open=lambda _: True, keep_log_starts=lambda _: {}, pool=pool, scheduler=scheduler
    )


def test_a_pass_that_closes_many_segments_lets_others_on_the_loop_between(tmp_path: Path) -> None:
    """Each is some milliseconds of files: fifty in one turn stopped all clients for a tenth."""
    rolls = with_config(EXPIRES, segment_ms=1000)
    logs = [open_log(tmp_path / f"{number}", config=rolls) for number in range(13)]
    for log in logs:
        append(log)
    loop, rolled = Loop(), []
    _passes(InlinePool(), loop).run(logs, LATER_MS)
    while not loop.calls.empty():
        loop.calls.get()()
        rolled.append(sum(len(log.segments.all) > 1 for log in logs))
    steps = {after - before for before, after in pairwise(rolled)}
    assert rolled[-1] == len(logs)
    assert max(steps) <= STEP_WORK / CHANGE_WORK


def test_a_log_that_a_hanging_disk_has_keeps_no_other_from_its_turn(tmp_path: Path) -> None:
    logs = [filled(tmp_path / f"{number}", config=EXPIRES) for number in range(3)]
    logs[0].lease.grant(truncates=False)
    over: list[bool] = []
    passes = _passes(InlinePool(), ManualScheduler(ManualClock(NOW_MS)))
    passes.run(logs, LATER_MS, ended=lambda: over.append(True))
    assert [len(log.segments.all) == 1 for log in logs] == [False, True, True]
    assert not over
    logs[0].lease.take_back()
    assert [len(log.segments.all) == 1 for log in logs] == [True, True, True]
    assert over


def test_a_finished_retention_pass_is_freed_without_garbage_collection() -> None:
    pool = HeldPool()
    passes = _passes(pool, ManualScheduler(ManualClock(NOW_MS)))
    gc.collect()
    gc.disable()
    try:
        passes.run([], NOW_MS)
        pool.release()
        assert gc.collect() == 0  # else it held all its logs, for ever if it was frozen
    finally:
        gc.enable()
