"""Pool threads read a log while the loop appends, rolls, drops and deletes.

The loop's step comes at a chosen moment of the pool's work: a disk that runs it at a certain call.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError, LogClosed, OffsetOutOfRange
from local_log.log import lookups, tier_segments
from local_log.log.partition_log import PartitionLog
from local_log.log.results import LogHooks
from local_log.log.truncation import truncate_fully_and_start_at
from local_log.manager.deletion import Removal
from local_log.manager.log_dir import LOG_STARTS
from local_log.manager.log_dirs import LogManager
from runtime.disk import Disk
from runtime.executors import make_pool
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
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

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)


class MeddlingDisk(Disk):
    """Runs `meddle` once, just before a file whose path holds `at` is opened or fsynced."""

    def __init__(self) -> None:
        super().__init__()
        self.at = ""
        self.meddle: Callable[[], object] | None = None

    def on_touch(self, at: str, meddle: Callable[[], object]) -> None:
        self.at, self.meddle = at, meddle

    def _touch(self, path: object) -> None:
        if self.meddle is not None and self.at in str(path):
            meddle, self.meddle = self.meddle, None
            meddle()

    def open_read(self, path):
        self._touch(path)
        return super().open_read(path)

    def fsync(self, file):
        self._touch(file.path)
        super().fsync(file)

    def fsync_path(self, path):
        self._touch(path)
        super().fsync_path(path)


@pytest.fixture
def disk():
    return MeddlingDisk()


def _reopened(directory, disk, **kwargs):
    """A log whose closed segments hold no files."""
    filled(directory, **kwargs).close()
    log = open_log(directory, disk=disk)
    log.update_high_watermark(log.log_end_offset)
    return log


def _drop_below(log, offset):
    log.raise_log_start(offset)
    retain(log, NOW_MS)


def test_look_up_by_time_continues_when_the_segment_it_reads_is_dropped(tmp_path, disk):
    log = _reopened(tmp_path, disk)
    start = log.segments.all[3].base_offset
    disk.on_touch(".timeindex", lambda: _drop_below(log, start))
    found = lookups.offset_for_timestamp(log, NOW_MS)
    assert found is not None
    assert found.offset == start
    assert not log.is_offline


def test_look_up_by_time_skips_no_segment_when_older_ones_are_dropped(tmp_path, disk):
    log = _reopened(tmp_path, disk)
    target = log.segments.all[2]
    disk.on_touch(target.path(".timeindex").name, lambda: _drop_below(log, target.base_offset))
    found = lookups.offset_for_timestamp(log, target.max_timestamp)
    assert found is not None
    assert target.base_offset <= found.offset < log.segments.all[1].base_offset


def test_largest_timestamp_is_found_while_the_log_rolls(tmp_path, disk):
    log = _reopened(tmp_path, disk)
    disk.on_touch(".timeindex", lambda: (append(log, at_ms=NOW_MS + 9999), log.roll(NOW_MS)))
    found = lookups.max_timestamp(log)
    assert found is not None
    assert found.timestamp in (NOW_MS + 9999, NOW_MS + 590, NOW_MS + 592)


def test_largest_timestamp_is_not_given_below_the_log_start(tmp_path):
    log = open_log(tmp_path)
    append(log, 3, at_ms=NOW_MS)
    log.update_high_watermark(3)
    log.raise_log_start(3)
    append(log, at_ms=5)
    assert lookups.max_timestamp(log) is None or lookups.max_timestamp(log).offset >= 3


def test_topic_deleted_during_a_look_up_takes_nothing_offline(tmp_path, disk):
    log = _reopened(tmp_path / "t", disk)

    def delete():
        log.close(clean=False)
        disk.rename(tmp_path / "t", tmp_path / "gone")

    disk.on_touch(".timeindex", delete)
    with pytest.raises(LogClosed):
        lookups.offset_for_timestamp(log, NOW_MS)
    assert not log.is_offline


def test_topic_deleted_during_a_flush_takes_nothing_offline(tmp_path, disk):
    log = filled(tmp_path / "t", disk=disk)

    def delete():
        log.close(clean=False)
        disk.rename(tmp_path / "t", tmp_path / "gone")

    disk.on_touch(".index", delete)
    with pytest.raises(LogClosed):
        log.flush()
    assert not log.is_offline


def test_segment_dropped_while_it_is_opened_for_copying_is_refused(tmp_path, disk):
    log = _reopened(tmp_path, disk)
    start = log.segments.all[2].base_offset
    disk.on_touch(".index", lambda: _drop_below(log, start))
    with pytest.raises(OffsetOutOfRange):
        tier_segments.open_segment(log, 0)
    assert not log.is_offline


@pytest.mark.parametrize("suffix", [".snapshot", ".index"])
def test_segment_repaired_for_a_copy_leaves_the_next_log_unchanged(tmp_path, disk, suffix):
    manager = LogManager(
        [tmp_path], lambda _: SMALL, simulated(clock=ManualClock(NOW_MS), disk=disk)
    )
    manager.load()
    log = manager.create(*ORDERS, TOPIC_ID)
    for i in range(15):
        append(log, producer_id=7, producer_epoch=0, base_sequence=i)
    log.roll(NOW_MS)
    damaged = log.directory / f"{15 if suffix == '.snapshot' else 0:020}{suffix}"
    damaged.unlink()
    made = []

    def restart():
        manager.delete(ORDERS)
        new = manager.create(*ORDERS, b"2" * 16)
        append(new, producer_id=7, producer_epoch=0, base_sequence=0)
        made.append((new, {path: path.read_bytes() for path in new.directory.iterdir()}))

    disk.on_touch(damaged.name, restart)
    with pytest.raises(LogClosed):
        tier_segments.open_segment(log, 0)
    [(new, files)] = made
    assert {path: path.read_bytes() for path in new.directory.iterdir()} == files
    assert not new.is_offline


def test_lookup_in_a_deleted_log_does_not_read_the_next_log_of_its_name(tmp_path, disk):
    manager = LogManager(
        [tmp_path], lambda _: SMALL, simulated(clock=ManualClock(NOW_MS), disk=disk)
    )
    manager.load()
    log = manager.create(*ORDERS, TOPIC_ID)
    append(log)
    log.roll(NOW_MS)
    log.flush()

    def restart():
        manager.delete(ORDERS)
        append(manager.create(*ORDERS, b"2" * 16), at_ms=NOW_MS + 1000)

    disk.on_touch(".log", restart)
    with pytest.raises(LogClosed):
        lookups.offset_for_timestamp(log, NOW_MS)


def test_segment_that_is_asked_for_twice_at_once_is_repaired_twice(tmp_path):
    """A tier that waited in vain asks again, while the thread is still at work."""
    pool = make_pool("open", 2)
    for number in range(10):
        log = open_log(tmp_path / str(number))
        for i in range(15):
            append(log, producer_id=i, producer_epoch=0, base_sequence=0)
        log.roll(NOW_MS)
        (log.directory / f"{15:020}.snapshot").unlink()
        (log.directory / f"{0:020}.index").unlink()
        asked = [pool.submit(tier_segments.open_segment, log, 0) for _ in range(2)]
        assert [len(each.result().leader_epoch_index) for each in asked]
        assert not log.is_offline
    pool.shutdown()


def test_a_truncation_does_not_wait_for_a_file_that_is_repaired(tmp_path, monkeypatch):
    log, pool, began = filled(tmp_path, 60, config=SMALL), make_pool("loop", 1), []
    (log.directory / f"{0:020}.index").unlink()
    write = Disk.atomic_write

    def truncate_first(disk, path, data, **more):
        if path.name.endswith(".index") and not began:
            began.append(path)
            pool.submit(truncate_fully_and_start_at, log, 100).result(timeout=30)
        return write(disk, path, data, **more)

    monkeypatch.setattr(Disk, "atomic_write", truncate_first)
    with pytest.raises(OffsetOutOfRange):
        tier_segments.open_segment(log, 0)
    assert began
    assert log.log_end_offset == 100
    pool.shutdown()


def _two_logs(tmp_path, disk):
    """Logs of which nothing is flushed; the first one's start is not durable."""
    manager = LogManager(
        [tmp_path], lambda _: SMALL, simulated(clock=ManualClock(NOW_MS), disk=disk)
    )
    manager.load()
    logs = [manager.create(*tp, TOPIC_ID) for tp in (BILLS, ORDERS)]
    for log in logs:
        append(log, 10)
        log.update_high_watermark(log.log_end_offset)
        log.raise_log_start(4)
    return manager, *logs


def test_log_start_raised_during_another_flush_is_not_kept_unflushed(tmp_path, disk):
    manager, bills, _ = _two_logs(tmp_path, disk)
    disk.on_touch("orders-0/", lambda: bills.raise_log_start(10))
    assert manager.keep_log_starts([ORDERS]) == {}
    assert manager.dirs[0].entry(LOG_STARTS, BILLS) <= bills.recovery_point
    assert manager.keep_log_starts([BILLS]) == {}
    assert manager.dirs[0].entry(LOG_STARTS, BILLS) == bills.recovery_point == 10


def test_log_deleted_while_log_starts_are_kept_affects_no_other(tmp_path, disk):
    manager, _, _ = _two_logs(tmp_path, disk)

    def gone():
        manager.let_go([ORDERS], Removal())
        disk.rename(tmp_path / "orders-0", tmp_path / "gone")

    disk.on_touch("bills-0/", gone)
    assert manager.keep_log_starts([BILLS]) == {}
    assert manager.dirs[0].entry(LOG_STARTS, BILLS) == 4
    assert manager.dirs[0].works


def test_flush_during_which_segments_are_dropped_still_flushes_the_rest(tmp_path, disk):
    log = filled(tmp_path, disk=disk)
    start = log.segments.all[2].base_offset
    synced = []
    disk.on_touch(".index", lambda: _drop_below(log, start))
    plain = disk.fsync
    disk.fsync = lambda file: (plain(file), synced.append(str(file.path)))[0]
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert str(log.segments.all[-1].path(".log")) in synced


def test_epoch_that_begins_during_a_flush_is_kept(tmp_path, disk):
    log = filled(tmp_path, disk=disk)
    disk.on_touch("leader-epoch-checkpoint", lambda: log.epochs.assign(7, log.log_end_offset))
    log.flush()
    synced = []
    disk.fsync_path = lambda path: synced.append(path.name)
    log.flush()
    assert "leader-epoch-checkpoint" in synced
    assert "\n7 " in (tmp_path / "leader-epoch-checkpoint").read_text()
    assert not list(tmp_path.glob("*.tmp"))
    synced.clear()
    log.flush()
    assert synced == []


def test_snapshot_removed_by_a_copy_does_not_stop_retention(tmp_path):
    log = filled(tmp_path)
    (tmp_path / f"{log.segments.all[1].base_offset:020d}.snapshot").write_bytes(b"nonsense")
    tier_segments.open_segment(log, log.segments.all[1].base_offset)
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    _drop_below(log, log.log_end_offset)
    assert not log.is_offline
    assert len(log.segments.all) == 1


def test_truncation_to_nothing_never_shows_a_log_without_a_first_offset(tmp_path, disk):
    log = filled(tmp_path, disk=disk)
    seen = []
    rename = disk.rename

    def watching(source, target, *, durable=False):
        seen.append((log.segments.bases[0], log.local_log_start_offset))
        rename(source, target, durable=durable)

    disk.rename = watching
    truncate_fully_and_start_at(log, 5000)
    assert seen
    assert {first for first, _ in seen} == {5000}


def test_flush_of_an_offline_log_is_refused(tmp_path):
    disk = FaultyDisk()
    log = filled(tmp_path, disk=disk)
    disk.fail(["fsync"])
    with pytest.raises(KafkaStorageError):
        log.flush()
    disk.heal()
    with pytest.raises(KafkaStorageError):
        log.flush()
    with pytest.raises(KafkaStorageError):
        log.raise_log_start(1)


def test_look_ups_beside_a_busy_loop_are_always_right(tmp_path):
    """Many real threads against one busy writer, no chosen moments."""
    log = open_log(tmp_path, config=with_config(SMALL, segment_bytes=700))
    append(log, at_ms=NOW_MS)
    pool = make_pool("look-up", 3)
    stop = []

    def look():
        wrong = []
        while not stop:
            low = log.log_start_offset
            found = lookups.offset_for_timestamp(log, NOW_MS + 10 * low)
            if found is not None and found.offset > log.log_start_offset and found.offset != low:
                wrong.append((low, found))
            log.flush()
            lookups.max_timestamp(log)
        return wrong

    running = [pool.submit(look) for _ in range(3)]
    for i in range(1, 2000):
        append(log, at_ms=NOW_MS + 10 * i)
        log.update_high_watermark(log.log_end_offset)
        if i % 40 == 0:
            _drop_below(log, i - 30)
    stop.append(True)
    assert [wrong for future in running for wrong in future.result()] == []
    pool.shutdown()
    assert not log.is_offline


def test_failing_flush_on_a_pool_thread_lands_on_the_loop(tmp_path):
    disk, calls = FaultyDisk(), []
    pool = make_pool("log-io", 1)
    manager = LogManager(
        [tmp_path],
        lambda _topic: SMALL,
        simulated(clock=ManualClock(NOW_MS), disk=disk, pool=pool),
        to_loop=calls.append,
    )
    manager.load()
    logs = [manager.create("t", partition, TOPIC_ID) for partition in range(3)]
    for log in logs:
        append(log)
    offline = []
    manager.failures.on_offline = offline.append
    disk.fail(["fsync"], path_part="t-0")
    with pytest.raises(KafkaStorageError):
        pool.submit(logs[0].flush).result()
    assert (offline, logs[0].is_offline, logs[1].is_offline) == ([], True, False)
    assert manager.online_dirs() == []
    (spread,) = calls
    spread()
    assert offline == manager.dirs
    assert all(log.is_offline for log in logs)
    pool.shutdown()


def test_a_flush_within_a_truncation_calls_nothing_safe_that_is_cut_off(tmp_path: Path) -> None:
    """A checkpoint of another log flushes this one, too, on a pool thread."""
    logs: list[PartitionLog] = []

    def flush(_end: int = 0) -> None:
        logs[0].flush()

    hooks = LogHooks(before_truncation=flush, log_start_moved=flush)
    log = open_log(tmp_path, hooks=hooks)
    logs.append(log)
    append(log, 5)
    log.flush()
    truncate_fully_and_start_at(log, 5)
    log.flush()
    assert log.recovery_point == 5
    truncate_fully_and_start_at(log, 0)
    assert log.recovery_point == 0, "nothing is in it"
    append(log, 3)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 3
