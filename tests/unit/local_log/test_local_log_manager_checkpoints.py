"""Offset checkpoints that are lost, damaged or old delete nothing, and forget nobody's entry."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.files.meta_properties import dump_partition_metadata
from local_log.checked_files import SIDECAR, CheckedFiles
from local_log.errors import KafkaStorageError
from local_log.log.truncation import truncate_fully_and_start_at
from local_log.manager.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    UNKNOWN,
)
from local_log.manager.placement import TargetReplica
from runtime.disk import Disk, OpenFile
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.worlds.local_log import NOW_MS, append, with_config
from tests.support.worlds.log_manager import (
    BILLS,
    IDS,
    ORDERS,
    ORDERS_1,
    Host,
    QuickDisk,
    make,
    record_bytes,
)
from tests.support.worlds.pools import HeldPool

WRITTEN = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)
Damage = Callable[[Path], object]


def flip(bit: int) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)

    return damage


def filled(tmp_path: Path, *, start: int = 30) -> Host:
    """Two partitions with a log start above 0, flushed and killed."""
    host = Host(tmp_path)
    manager = host.start()
    for log in make(manager, ORDERS, BILLS):
        log.flush()
        log.raise_log_start(start)
    checkpoint_all(manager)
    host.assign(ORDERS, BILLS)
    manager.close(clean=False)
    return host


def checkpoint_all(manager) -> None:
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()


@pytest.mark.parametrize("name", [*WRITTEN, CLEANER_OFFSETS])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(missing_ok=True),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"0\n2\nbills 0 3"),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_bytes(b"0\n2\nbills 0 999\norders 0 999\n"),
    ],
)
def test_a_damaged_checkpoint_deletes_nothing(tmp_path: Path, name: str, damage: Damage) -> None:
    host = filled(tmp_path)
    damage(host.paths[0] / name)
    before = record_bytes(tmp_path)
    for _ in range(2):
        manager = host.start()
        assert {log.log_end_offset for log in manager.all()} == {60}
        assert all(log.log_start_offset <= 30 for log in manager.all())
        assert record_bytes(tmp_path) == before
        manager.close(clean=False)


def test_kafkas_empty_checkpoint_of_a_cleaner_with_no_work_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = filled(tmp_path)
    (host.paths[0] / CLEANER_OFFSETS).write_bytes(b"")
    host.start().close()
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


@pytest.mark.parametrize("name", WRITTEN)
def test_no_flipped_bit_of_a_checkpoint_is_believed(tmp_path: Path, name: str) -> None:
    host = filled(tmp_path)
    sound = (host.paths[0] / name).read_bytes()
    files = host.manager().dirs[0]
    for bit in range(8 * len(sound)):
        flip(bit)(host.paths[0] / name)
        files.read_checkpoints()
        assert files.entries[name] == {}
        assert not files.is_sound(name)
        flip(bit)(host.paths[0] / name)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_checkpoint_of_an_hour_ago_is_not_believed(tmp_path: Path, name: str) -> None:
    host = filled(tmp_path)
    old = tmp_path / "old"
    shutil.copy(host.paths[0] / name, old)
    manager = host.start()
    for log in manager.all():
        append(log)
        log.update_high_watermark(log.log_end_offset)
        log.flush()
        log.raise_log_start(55)
    for _ in range(2):  # the sidecar forgets the version before the last with the next write
        checkpoint_all(manager)
    manager.close(clean=False)
    shutil.copy(old, host.paths[0] / name)
    manager = host.start(set_aside=False)
    assert [directory.works for directory in manager.dirs] == [True]
    starts = {log.log_start_offset for log in manager.all()}
    assert starts == ({0} if name == LOG_STARTS else {55})
    assert {log.high_watermark for log in manager.all()} == (
        {starts.pop()} if name == HIGH_WATERMARKS else {61}
    )


def test_a_lost_recovery_point_is_unknown_until_all_was_read_and_flushed(tmp_path: Path) -> None:
    host = filled(tmp_path)
    (host.paths[0] / RECOVERY_POINTS).unlink()
    manager = host.start()
    assert {log.recovery_point for log in manager.all()} == {60}
    assert host.checkpoint(RECOVERY_POINTS) == {ORDERS: 60, BILLS: 60}


def test_a_log_without_an_entry_in_a_sound_checkpoint_was_begun_since(tmp_path: Path) -> None:
    host = filled(tmp_path)
    manager = host.start()
    (log,) = make(manager, ORDERS_1, records=3)
    host.assign(ORDERS_1)
    assert ORDERS_1 not in host.checkpoint(RECOVERY_POINTS)
    log.close(clean=False)
    with (log.directory / f"{0:020}.log").open("ab") as file:
        file.write(bytes(20))  # torn
    manager = host.start()
    assert manager.refused == {}
    reopened = manager.get(ORDERS_1)
    assert reopened is not None
    assert (reopened.recovery_point, reopened.log_end_offset) == (0, 3)


@pytest.mark.parametrize("clean", [True, False])
def test_an_unknown_start_of_a_tiered_log_is_never_written_as_known(
    tmp_path: Path, clean: bool
) -> None:
    """What is remote below the first segment would be deleted by the next life."""
    host = Host(tmp_path, config=with_config(remote_storage_enable=True))
    manager = host.start()
    for log in make(manager, ORDERS, BILLS):
        log.flush()
    checkpoint_all(manager)
    host.assign(ORDERS, BILLS)
    manager.close(clean=clean)
    (host.directory() / f"{0:020}.log").unlink()  # remote only
    (host.paths[0] / LOG_STARTS).unlink()
    for _ in range(3):
        manager = host.start()
        log = manager.get(ORDERS)
        assert log is not None
        assert log.local_log_start_offset > 0
        assert not log.log_start_known
        checkpoint_all(manager)
        assert host.checkpoint(LOG_STARTS) == {BILLS: 0}
        manager.close(clean=clean)


def refuse(host: Host) -> None:
    """The files of ORDERS say from now on that they are another topic's."""
    (host.directory() / SIDECAR).unlink(missing_ok=True)
    (host.directory() / "partition.metadata").write_bytes(dump_partition_metadata(b"x" * 16))


def repair(host: Host) -> None:
    (host.directory() / SIDECAR).unlink(missing_ok=True)
    metadata = dump_partition_metadata(IDS["orders"])
    (host.directory() / "partition.metadata").write_bytes(metadata)


def test_entries_of_an_offline_partition_survive_rewrites_and_restarts(tmp_path: Path) -> None:
    host = filled(tmp_path)
    refuse(host)
    before = {name: host.checkpoint(name)[ORDERS] for name in WRITTEN}
    assert before == {RECOVERY_POINTS: 60, LOG_STARTS: 30, HIGH_WATERMARKS: 60}
    for clean in (True, False, True):
        manager = host.start()
        assert manager.refused.keys() == {ORDERS}
        checkpoint_all(manager)
        assert {name: host.checkpoint(name)[ORDERS] for name in WRITTEN} == before
        manager.close(clean=clean)
        assert {name: host.checkpoint(name)[ORDERS] for name in WRITTEN} == before
    repair(host)
    log = host.start().get(ORDERS)
    assert log is not None
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (30, 60, 60)


def test_a_lost_recovery_point_of_an_offline_partition_stays_unknown(tmp_path: Path) -> None:
    """Its entry says so: without one the next start would take it for 0 and cut what it likes."""
    host = filled(tmp_path)
    refuse(host)
    (host.paths[0] / RECOVERY_POINTS).unlink()
    for _ in range(3):
        manager = host.start()
        assert host.checkpoint(RECOVERY_POINTS) == {ORDERS: UNKNOWN, BILLS: 60}
        checkpoint_all(manager)
        manager.close()
        assert host.checkpoint(RECOVERY_POINTS) == {ORDERS: UNKNOWN, BILLS: 60}
    repair(host)
    manager = host.start()
    log = manager.get(ORDERS)
    assert log is not None
    assert log.log_end_offset == log.recovery_point == 60
    manager.checkpoint_recovery_points()
    assert host.checkpoint(RECOVERY_POINTS)[ORDERS] == 60


def damage_first_segment(host: Host) -> None:
    path = host.directory() / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_damage_found_with_an_unknown_recovery_point_is_found_again(
    tmp_path: Path,
) -> None:
    """A known one in its place, and the next start reads the last segment only, and serves."""
    host = filled(tmp_path)
    damage_first_segment(host)
    (host.paths[0] / RECOVERY_POINTS).unlink()
    for _ in range(3):
        manager = host.start()
        assert manager.refused.keys() == {ORDERS}
        assert "damaged" in manager.refused[ORDERS].reason
        manager.close()
        assert host.checkpoint(RECOVERY_POINTS) == {ORDERS: UNKNOWN, BILLS: 60}


def test_damage_in_an_old_log_without_checkpoint_entries_is_refused(
    tmp_path: Path,
) -> None:
    """It was read whole before, and flushed for all that is known: damage in it is no torn tail."""
    host = filled(tmp_path)
    (host.directory() / f"{0:020}.log").unlink()
    path = min(host.directory().glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    manager = host.start()
    manager.close(clean=False)
    files = CheckedFiles(Disk(), host.paths[0])
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        files.write(name, offset_checkpoint.dump({BILLS: 60}))
    before = record_bytes(tmp_path)
    manager = host.start()
    assert manager.refused.keys() == {ORDERS}
    assert record_bytes(tmp_path) == before


def test_a_log_that_begins_elsewhere_is_known_from_its_log_start_on(tmp_path: Path) -> None:
    """Else what a power cut takes in the next minute is damage, and the replica offline."""
    host = filled(tmp_path)
    manager = host.start()
    (log,) = make(manager, ORDERS_1, records=3)
    host.assign(ORDERS_1)
    truncate_fully_and_start_at(log, 57)
    assert manager.keep_log_starts([ORDERS_1]) == {}
    assert host.checkpoint(RECOVERY_POINTS)[ORDERS_1] <= 57
    assert host.checkpoint(LOG_STARTS)[ORDERS_1] == 57
    manager.close(clean=False)
    with (log.directory / f"{57:020}.log").open("ab") as file:
        file.write(bytes(100))  # a batch whose bytes never came to the disk
    manager = host.start()
    assert manager.refused == {}
    reopened = manager.get(ORDERS_1)
    assert reopened is not None
    assert (reopened.log_start_offset, reopened.log_end_offset) == (57, 57)


def test_entries_of_a_partition_that_is_not_there_survive_as_well(tmp_path: Path) -> None:
    host = filled(tmp_path)
    host.directory().rename(tmp_path / "away")
    manager = host.start()
    checkpoint_all(manager)
    manager.close()
    (tmp_path / "away").rename(host.directory())
    log = host.start().get(ORDERS)
    assert log is not None
    assert (log.log_start_offset, log.high_watermark) == (30, 60)


def test_no_checkpoint_on_disk_exceeds_the_end_of_a_truncation(
    tmp_path: Path,
) -> None:
    host = filled(tmp_path)
    manager = host.start()
    directory = manager.dirs[0]
    manager._checkpoints.lower(ORDERS, directory, 45)
    assert host.checkpoint(RECOVERY_POINTS) == {ORDERS: 45, BILLS: 60}
    assert host.checkpoint(HIGH_WATERMARKS) == {ORDERS: 45, BILLS: 60}
    manager._checkpoints.lower(ORDERS, directory, 50)
    assert host.checkpoint(RECOVERY_POINTS)[ORDERS] == 45


def test_a_truncation_does_not_make_an_unknown_recovery_point_known(tmp_path: Path) -> None:
    """With 0 as its recovery point, damage in the middle of the log would be cut off."""
    host = filled(tmp_path)
    (host.directory() / f"{0:020}.log").unlink()
    files = CheckedFiles(Disk(), host.paths[0])
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        files.write(name, offset_checkpoint.dump({BILLS: 60}))
    manager = host.start()
    manager._checkpoints.lower(ORDERS, manager.dirs[0], 45)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        assert host.checkpoint(name) == {BILLS: 60}
    manager.close(clean=False)
    path = min(host.directory().glob("*.log"))
    flip(path.stat().st_size * 4)(path)
    before = record_bytes(tmp_path)
    assert host.start().refused.keys() == {ORDERS}
    assert record_bytes(tmp_path) == before


# -- log starts


class NotingDisk(QuickDisk):
    """Notes in which order things become so."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def fsync(self, file: OpenFile) -> None:
        super().fsync(file)
        self.notes.append(f"fsync {Path(file.path).name}")

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        super().rename(source, target, durable=durable)
        self.notes.append(f"rename {target.name}")

    def of(self, *words: str) -> list[str]:
        return [note for note in self.notes if any(word in note for word in words)]


def test_the_log_is_flushed_up_to_a_log_start_before_that_is_on_the_disk(tmp_path: Path) -> None:
    disk = NotingDisk()
    host = Host(tmp_path, disk=disk)
    manager = host.start()
    (log,) = make(manager, ORDERS, records=4)
    log.raise_log_start(3)
    disk.notes.clear()
    assert manager.keep_log_starts([ORDERS]) == {}
    order = disk.of(".log", "rename " + LOG_STARTS)
    assert order[0].startswith("fsync 0000")
    assert order[-1] == "rename " + LOG_STARTS
    disk.notes.clear()
    assert manager.keep_log_starts([ORDERS]) == {}
    assert disk.notes == []  # it is kept already


def test_log_starts_that_are_not_kept_are_told_by_partition(tmp_path: Path) -> None:
    host = Host(tmp_path, 2)
    manager = host.start()
    logs = make(manager, ORDERS, ORDERS_1)
    for log in logs:
        log.raise_log_start(7)
    bad, good = logs
    bad_path = bad.directory.parent
    host.disk.fail(["rename"], path_part=f"{bad_path}/{LOG_STARTS}", error=errno.EIO)
    failed = manager.keep_log_starts([ORDERS, ORDERS_1, BILLS])
    assert failed.keys() == {bad.topic_partition, BILLS}
    assert host.checkpoint(LOG_STARTS, host.paths.index(good.directory.parent)) == {
        good.topic_partition: 7
    }


def test_retention_writes_log_starts_before_it_deletes_the_first_segment(
    tmp_path: Path,
) -> None:
    disk = NotingDisk()
    host = Host(tmp_path, 2, disk=disk, config=with_config(retention_ms=1000))
    manager = host.start()
    make(manager, ORDERS, ORDERS_1, BILLS)
    disk.notes.clear()
    assert len(manager.run_retention(NOW_MS + 5000)) > 9
    order = ["." if ".deleted" in note else "*" for note in disk.of(".deleted", "rename log-start")]
    assert "".join(order).strip(".") == "**"  # one for each directory and pass, both first
    assert order[:2] == ["*", "*"]


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
def test_retention_drops_nothing_in_a_directory_that_keeps_no_log_starts(
    tmp_path: Path, error: int
) -> None:
    host = Host(tmp_path, 2, config=with_config(retention_ms=1000))
    manager = host.start()
    logs = make(manager, ORDERS, ORDERS_1, BILLS)
    host.disk.fail(["rename"], path_part=f"data-0/{LOG_STARTS}", error=error)
    dropped = {tp for tp, _, _ in manager.run_retention(NOW_MS + 5000)}
    for log in logs:
        is_bad = log.directory.parent.name == "data-0"
        assert (log.topic_partition in dropped) is not is_bad
        assert bool(list(log.directory.glob("*.deleted"))) is not is_bad


def test_no_power_cut_in_a_retention_pass_makes_a_hole(tmp_path: Path) -> None:
    base = tmp_path / "base"
    host = Host(base)
    manager = host.start()
    make(manager, ORDERS, records=30)[0].flush()
    checkpoint_all(manager)
    host.assign(ORDERS)
    manager.close(clean=False)
    for cut in range(1, 200):
        root = tmp_path / str(cut)
        shutil.copytree(base, root)
        disk = PowerCutDisk(root, SeededRng(cut), operations=cut)
        host = Host(root, disk=disk, config=with_config(retention_ms=1000))
        host.wanted = {ORDERS: TargetReplica(IDS["orders"], 0, host.id_of(0))}
        is_done = False
        try:
            manager = host.start()
            is_done = bool(manager.run_retention(NOW_MS + 5000))
        except (PowerCutError, KafkaStorageError):
            assert disk.is_off
        disk.cut()
        host.disk = Disk()
        manager = host.start()
        assert manager.refused == {}
        log = manager.get(ORDERS)
        assert log is not None
        bases = [segment.base_offset for segment in log.segments.all]
        assert log.log_end_offset == 30
        assert log.log_start_offset in (0, 30)
        assert bases[0] <= log.log_start_offset
        entry = offset_checkpoint.parse((root / "data-0" / LOG_STARTS).read_bytes()).get(ORDERS, 0)
        assert bases[0] <= entry
        if is_done:
            return
    raise AssertionError("never done")


@pytest.mark.parametrize("is_assigned", [True, False])
def test_a_served_log_without_a_segment_is_never_begun_anew(
    tmp_path: Path, is_assigned: bool
) -> None:
    """It was begun since the last checkpoint: no entry says how far it was flushed."""
    host = Host(tmp_path, wanted={})
    (log,) = make(host.start(), ORDERS, records=3)
    log.flush()
    assert ORDERS not in host.checkpoint(RECOVERY_POINTS)
    (host.directory() / f"{0:020}.log").unlink()
    if is_assigned:
        host.assign(ORDERS)
        for _ in range(2):
            manager = host.start()
            assert manager.get(ORDERS) is None
            assert "no segment is there" in manager.refused[ORDERS].reason
            manager.checkpoint_recovery_points()
    else:  # a kill left it half made
        host.unassign(ORDERS)
        log = host.start().get(ORDERS)
        assert log is not None
        assert log.log_end_offset == 0


def test_retention_waits_for_the_disk_on_the_pool_alone(tmp_path: Path) -> None:
    disk, pool = NotingDisk(), HeldPool(is_holding=False)
    host = Host(tmp_path, disk=disk, config=with_config(retention_ms=1000))
    manager = host.manager(pool=pool)
    manager.load()
    make(manager, ORDERS, BILLS)
    pool.is_holding = True
    disk.notes.clear()
    dropped = manager.run_retention(NOW_MS + 5000)
    assert disk.of("rename log-start", ".deleted") == []
    assert dropped == []
    manager.delete(BILLS)  # meanwhile
    pool.release()
    assert {tp for tp, _, _ in dropped} == {ORDERS}


def test_a_lost_recovery_point_stays_unknown_for_a_partition_that_is_away(tmp_path: Path) -> None:
    host = Host(tmp_path, wanted={})
    manager = host.start()
    make(manager, ORDERS, BILLS)
    manager.close()
    away = tmp_path / "away"
    host.directory().rename(away)
    (host.paths[0] / RECOVERY_POINTS).unlink()
    manager = host.manager()
    manager.load(lambda _tp: None, assigned={host.id_of(0): [ORDERS, BILLS]})
    manager.close(clean=False)
    assert host.checkpoint(RECOVERY_POINTS)[ORDERS] == UNKNOWN
