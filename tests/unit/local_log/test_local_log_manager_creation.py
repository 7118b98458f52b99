"""New logs are durable before anybody hears of them, and know nothing of older namesakes."""

import errno
import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.types import TopicPartition
from local_log.checked_files import CheckedFiles
from local_log.errors import KafkaStorageError
from local_log.manager.creation import NewLog
from local_log.manager.log_dir import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from local_log.manager.log_dirs import LogManager
from local_log.manager.placement import TargetReplica
from runtime.disk import Disk
from runtime.executors import make_pool
from tests.support.rounds import rounds
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.worlds.local_log import SMALL, append
from tests.support.worlds.log_manager import (
    BILLS,
    IDS,
    ORDERS,
    ORDERS_1,
    Host,
    QuickDisk,
    make,
    names_in,
    record_bytes,
)

NEW_ID = b"n" * 16
EVERY = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)


def new_logs(count: int) -> list[NewLog]:
    return [NewLog("new", number, NEW_ID) for number in range(count)]


def made(manager: LogManager, count: int) -> dict[str, list[int]]:
    """Partitions that were made, by the directory they lie in."""
    found: dict[str, list[int]] = {}
    for tp, log in manager.create_all(new_logs(count)).items():
        if isinstance(log, KafkaStorageError):
            found.setdefault("failed", []).append(tp.partition)
            assert manager.get(tp) is None
        else:
            assert manager.get(tp) is log
            directory = manager.directory_of(tp)
            assert directory is not None
            assert log.directory.parent == directory.path
            assert append(log).last_offset == log.log_end_offset - 1
            found.setdefault(directory.path.name, []).append(tp.partition)
    return {where: sorted(numbers) for where, numbers in found.items()}


# -- a disk that fails half way


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("operation", ["open_append", "fsync_path", "write_at"])
def test_a_directory_that_fails_half_way_loses_all_of_them_to_another(
    tmp_path: Path, operation: str, after: int
) -> None:
    host = Host(tmp_path, 2)
    manager = host.start()
    host.disk.fail([operation], path_part="data-0/new", error=errno.EIO, after=after)
    assert made(manager, 6) == {"data-1": list(range(6))}
    assert [directory.works for directory in manager.dirs] == [False, True]


def test_a_directory_that_cannot_sync_new_names_gives_them_to_another(
    tmp_path: Path,
) -> None:
    class NamelessDisk(QuickDisk):
        def fsync_path(self, path: Path) -> None:
            if path.name == "data-0" and "new-0" in names_in(path):
                raise OSError(errno.EIO, "broken", str(path))

    host = Host(tmp_path, 2, disk=NamelessDisk())
    manager = host.start()
    assert made(manager, 4) == {"data-1": [0, 1, 2, 3]}


def test_where_every_directory_fails_each_is_refused(tmp_path: Path) -> None:
    host = Host(tmp_path, 2)
    manager = host.start()
    host.disk.fail(["open_append"], path_part="new", error=errno.ENOSPC, after=1)
    assert made(manager, 3) == {"failed": [0, 1, 2]}


def test_used_up_descriptors_fail_one_log_and_no_directory(tmp_path: Path) -> None:
    host = Host(tmp_path, 2)
    manager = host.start()
    host.disk.fail(["open_append"], path_part="new-2", error=errno.EMFILE)
    found = made(manager, 4)
    assert found.pop("failed") == [2]
    assert sorted(number for numbers in found.values() for number in numbers) == [0, 1, 3]
    assert all(directory.works for directory in manager.dirs)
    host.disk.heal()
    assert manager.create("new", 2, NEW_ID).log_end_offset == 0


def test_files_that_are_there_are_never_taken_for_a_new_log(tmp_path: Path) -> None:
    """A refused partition keeps its files: only its deletion takes them."""
    host = Host(tmp_path)
    (log,) = make(host.start(), ORDERS)
    log.close()
    host.wanted = {ORDERS: TargetReplica(IDS["orders"], 1, host.id_of(0))}  # another partition
    manager = host.start()
    before = record_bytes(tmp_path)
    with pytest.raises(KafkaStorageError):
        manager.create(*ORDERS, IDS["orders"])
    assert record_bytes(tmp_path) == before
    assert manager.delete(ORDERS) == 1
    assert manager.create(*ORDERS, IDS["orders"]).log_end_offset == 0


def test_records_that_could_not_be_renamed_are_not_those_of_the_next_topic(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path)
    manager = host.start()
    make(manager, ORDERS)
    host.disk.fail(["rename"], path_part="-delete", error=errno.ENOMEM)
    manager.delete(ORDERS)
    host.disk.heal()
    assert manager.dirs[0].works
    before = record_bytes(tmp_path)
    with pytest.raises(KafkaStorageError):
        manager.create(*ORDERS, NEW_ID)
    assert record_bytes(tmp_path) == before
    manager.close(clean=False)
    host.wanted = {ORDERS: TargetReplica(NEW_ID, 0, None, was_never_served=True)}
    assert host.start().create(*ORDERS, NEW_ID).log_end_offset == 0
    assert record_bytes(tmp_path) == before


def test_a_deletion_never_takes_files_that_are_another_partition(tmp_path: Path) -> None:
    """Two directories were swapped: under the name of one lie the records of the other."""
    host = Host(tmp_path)
    for log in make(host.start(), ORDERS, BILLS):
        log.close()
    host.assign(ORDERS, BILLS)
    orders, bills, between = host.directory(ORDERS), host.directory(BILLS), tmp_path / "x"
    for source, target in ((orders, between), (bills, orders), (between, bills)):
        source.rename(target)
    manager = host.start()
    before = record_bytes(tmp_path)
    assert manager.delete(ORDERS) == 1
    assert manager.create(*ORDERS, b"n" * 16).log_end_offset == 0
    host.clock.advance(10 * SMALL.file_delete_delay_ms)
    manager.run_deletions()
    assert record_bytes(tmp_path) == before
    (kept,) = host.paths[0].glob("orders-0.*-stray")
    bills.rename(tmp_path / "those-of-orders")
    kept.rename(bills)
    assert host.start().get(BILLS) is not None


# -- an older topic of the same name


def old_topic(root: Path, dirs: int = 1) -> Host:
    """An old topic with an entry in every checkpoint, also in Kafka's cleaner's."""
    host = Host(root, dirs)
    manager = host.start()
    for log in make(manager, ORDERS, BILLS):
        log.raise_log_start(30)
        log.flush()
    for checkpoint in (manager.checkpoint_log_starts, manager.checkpoint_recovery_points):
        checkpoint()
    manager.checkpoint_high_watermarks()
    manager.close()
    for path in host.paths:
        offsets = offset_checkpoint.dump({ORDERS: 40})
        CheckedFiles(Disk(), path).write(CLEANER_OFFSETS, offsets)
    assert all(ORDERS in host.checkpoint(name) for name in EVERY)
    return host


def test_what_was_known_of_a_deleted_topic_is_gone_from_every_checkpoint(tmp_path: Path) -> None:
    host = old_topic(tmp_path)
    manager = host.start()
    manager.delete(ORDERS)
    assert not any(ORDERS in host.checkpoint(name) for name in EVERY)
    assert host.checkpoint(HIGH_WATERMARKS) == {BILLS: 60}


def test_no_power_cut_lets_a_new_topic_meet_what_was_known_of_the_old_one(tmp_path: Path) -> None:
    base = tmp_path / "base"
    old_topic(base)
    cuts = 0
    while True:
        cuts += 1
        root = tmp_path / f"cut-{cuts}"
        shutil.copytree(base, root)
        host = Host(root)
        is_done = replaced_until_the_cut(host, cuts)
        after = host.manager(Disk())
        new_in_a = TargetReplica(NEW_ID, 0, host.id_of(0))
        wanted = new_in_a if is_done else TargetReplica(NEW_ID, 0, None)
        bills = TargetReplica(IDS["bills"], 0, host.id_of(0))
        after.load({ORDERS: wanted, BILLS: bills}.get)
        after.set_aside()
        assert after.refused == {}, cuts
        log = after.get(ORDERS)
        assert not is_done or log is not None
        log = log or after.create(*ORDERS, NEW_ID)
        assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (NEW_ID, 0, 0), cuts
        assert log.high_watermark == log.recovery_point == 0
        kept = after.get(BILLS)
        assert kept is not None
        assert (kept.log_start_offset, kept.log_end_offset) == (30, 60)
        after.close()
        assert not any(host.checkpoint(name).get(ORDERS, 0) for name in EVERY)
        if is_done:
            break
    assert cuts > 20


def replaced_until_the_cut(host: Host, operations: int) -> bool:
    """Delete the old topic, stop, and make the new one; whether that was done before the cut."""
    disk = PowerCutDisk(host.root, SeededRng(operations), operations=operations)
    try:
        manager = host.manager(disk)
        manager.load()
        manager.delete(ORDERS)
        again = host.manager(disk)  # killed and started again
        again.load({BILLS: TargetReplica(IDS["bills"], 0, host.id_of(0))}.get)
        again.set_aside()
        log = again.create(*ORDERS, NEW_ID)
        assert log.log_end_offset == 0
    except PowerCutError:
        return False
    except KafkaStorageError:
        assert disk.is_off
        return False
    disk.cut()
    return True


def test_no_second_power_cut_does_either(tmp_path: Path) -> None:
    """The first took the checkpoints of the deletion: only its rename is on the disk."""
    base = tmp_path / "base"
    old_topic(base)
    shutil.rmtree(base / "data-0" / "orders-0")
    for cut in range(1, 200):
        root = tmp_path / f"cut-{cut}"
        shutil.copytree(base, root)
        host = Host(root, disk=PowerCutDisk(root, SeededRng(cut), operations=cut))
        host.wanted = {
            ORDERS: TargetReplica(NEW_ID, 0, None),
            BILLS: TargetReplica(IDS["bills"], 0, host.id_of(0)),
        }
        is_done = False
        with suppress(PowerCutError, KafkaStorageError):
            is_done = host.start().create(*ORDERS, NEW_ID).log_end_offset == 0
        host.disk = Disk()
        manager = host.start()
        assert manager.refused == {}
        log = manager.get(ORDERS) or manager.create(*ORDERS, NEW_ID)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 0, 0)
        if is_done:
            return
    raise AssertionError("never done")


# -- power cuts


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(rounds("TIDEMARK_LOG_SEEDS", quick=2, full=5)))
def test_no_power_cut_loses_a_log_that_was_made(tmp_path: Path, seed: int) -> None:
    """After `create_all` a replica is assigned: its files must be there from then on."""
    for cut in range(1, 200):
        root = tmp_path / str(cut)
        host = Host(root, 2)
        disk = PowerCutDisk(root, SeededRng(seed * 1000 + cut), operations=cut)
        assigned: dict[TopicPartition, TargetReplica] = {}
        try:
            manager = host.manager(disk)
            manager.load()
            for tp, log in manager.create_all(new_logs(3)).items():
                directory = manager.directory_of(tp)
                assert not isinstance(log, KafkaStorageError)
                assert directory is not None
                assigned[tp] = TargetReplica(NEW_ID, tp.partition, directory.directory_id)
        except PowerCutError:
            pass
        disk.cut()
        wanted = {
            new.topic_partition: TargetReplica(NEW_ID, new.partition, None) for new in new_logs(3)
        }
        after = host.manager(Disk())
        after.load((wanted | assigned).get)
        after.set_aside()
        assert after.refused == {}
        assert set(assigned) <= {log.topic_partition for log in after.all()}
        if len(assigned) == 3:
            return
        assert made(after, 3).keys() <= {"data-0", "data-1"}
    raise AssertionError("never done")


def test_a_deletion_that_a_power_cut_undoes_leaves_a_whole_log_or_none(tmp_path: Path) -> None:
    base = tmp_path / "base"
    host = Host(base)
    make(host.start(), ORDERS, ORDERS_1)[0].flush()
    host.start().close()
    for cut in range(1, 100):
        root = tmp_path / str(cut)
        shutil.copytree(base, root)
        host = Host(root)
        disk = PowerCutDisk(root, SeededRng(cut), operations=cut)
        is_done = False
        try:
            manager = host.manager(disk)
            manager.load()
            manager.delete(ORDERS)
            is_done = True
        except PowerCutError:
            pass
        disk.cut()
        host.disk = Disk()
        manager = host.start()
        ends = {log.topic_partition: log.log_end_offset for log in manager.all()}
        assert ends.pop(ORDERS_1) == 60
        assert ends in ({}, {ORDERS: 60})
        assert manager.refused == {}
        if is_done:
            assert ends == {}
            return
    raise AssertionError("never done")


# -- many at once


class MeetingDisk(QuickDisk):
    """Ends a fsync of a partition directory only while one of another is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = threading.Barrier(2)

    def fsync_path(self, path: Path) -> None:
        if path.name.startswith("new-"):
            self.meeting.wait(timeout=10)
        super().fsync_path(path)


def test_new_logs_are_fsynced_side_by_side(tmp_path: Path) -> None:
    host = Host(tmp_path, disk=MeetingDisk())
    pool = make_pool("log-io", 2)
    manager = host.manager(pool=pool)
    manager.load()
    assert made(manager, 2) == {"data-0": [0, 1]}
    pool.shutdown()


def test_a_deleted_log_waits_as_long_as_its_own_settings_say(tmp_path: Path) -> None:
    host = Host(tmp_path)
    manager = host.start()
    quick = replace(host.config, file_delete_delay_ms=5)
    manager.create_all([NewLog("new", 0, NEW_ID, quick), NewLog("new", 1, NEW_ID)])
    assert manager.delete(TopicPartition("new", 0), TopicPartition("new", 1)) == 2
    host.scheduler.advance(10)
    assert {name[:5] for name in names_in(host.paths[0]) if name.startswith("new")} == {"new-1"}
