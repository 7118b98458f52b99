"""A log moves to another log directory while it is read and written."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.types import EpochEntry
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.file_names import FUTURE_MARKER, MOVED_MARK
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_to
from local_log.manager import moving
from local_log.manager.log_dir import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from local_log.manager.log_dirs import LogManager
from local_log.recovery.acceptance import Accepted, read_accepted, write_accepted
from runtime.disk import Disk
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.local_log import NOW_MS, SMALL, append, read_bytes, with_config
from tests.support.worlds.log_manager import BILLS, IDS, ORDERS, Host, make, names_in
from tests.support.worlds.moving import begun, copy_all, moved, swapped_in

PRODUCER = {"producer_id": 7, "producer_epoch": 2}


def hosted(root: Path, config: LogConfig = SMALL, records: int = 60) -> tuple[Host, LogManager]:
    host = Host(root, dirs=2, config=config)
    manager = host.start()
    make(manager, ORDERS, records=records)
    return host, manager


def log_of(manager: LogManager) -> PartitionLog:
    log = manager.get(ORDERS)
    assert log is not None
    return log


def records_of(log: PartitionLog) -> bytes:
    return b"".join(
        path.read_bytes() for path in sorted(log.directory.glob("*.log")) if path.stat().st_size
    )


def test_a_moved_log_continues_as_it_was_in_the_other_directory(tmp_path: Path) -> None:
    host, manager = hosted(tmp_path)
    old = log_of(manager)
    append(old, epoch=3, base_sequence=0, **PRODUCER)
    old.update_high_watermark(59)
    old.raise_log_start(5)
    assert manager.note_cleaned(old, 20)
    manager.checkpoint_recovery_points()
    before = records_of(old)
    read = old.read(5, 100, min_one_batch=True)
    new = moved(manager)
    assert manager.get(ORDERS) is new
    assert manager.directory_of(ORDERS) is manager.dirs[1]
    assert new.directory == host.directory(index=1)
    assert records_of(new) == before
    assert (new.log_start_offset, new.high_watermark, new.log_end_offset) == (5, 59, 61)
    assert new.recovery_point == 61
    assert new.epochs.entries() == [EpochEntry(0, 5), EpochEntry(3, 60)]
    assert append(new, epoch=3, base_sequence=0, **PRODUCER).is_duplicate
    assert append(new, epoch=3, base_sequence=1, **PRODUCER).last_offset == 61
    (region,) = read.regions  # whoever still reads the old one can finish
    assert old.disk.read_at(region.file, region.position, region.size_bytes)
    assert not manager.is_open(old)
    assert host.checkpoint(LOG_STARTS, 1)[ORDERS] == 5
    assert host.checkpoint(HIGH_WATERMARKS, 1)[ORDERS] == 59
    assert host.checkpoint(RECOVERY_POINTS, 1)[ORDERS] == 61
    assert host.checkpoint(CLEANER_OFFSETS, 1)[ORDERS] == 20
    manager.checkpoint_recovery_points()
    assert ORDERS not in host.checkpoint(RECOVERY_POINTS, 0)
    assert not host.directory().exists()
    assert FUTURE_MARKER not in names_in(new.directory)
    host.clock.advance(SMALL.file_delete_delay_ms + 10)
    manager.run_deletions()
    assert not list(host.paths[0].glob("orders-0*"))


def test_a_segment_is_as_old_as_before(tmp_path: Path) -> None:
    _, manager = hosted(tmp_path)
    old = log_of(manager)
    old.roll()
    first = old.segments.all[0].path(".log")
    Disk().set_modified_ms(first, NOW_MS - 99_000)
    new = moved(manager)
    assert Disk().modified_ms(new.directory / first.name) == NOW_MS - 99_000


def test_counts_of_directories_follow_a_moved_log(tmp_path: Path) -> None:
    _, manager = hosted(tmp_path)
    moved(manager)
    assert [len(manager.logs_in(each)) for each in manager.dirs] == [0, 1]
    made = manager.create("bills", 0, IDS["bills"])
    assert manager.directory_of(made.topic_partition) is manager.dirs[0]


def test_what_only_memory_knew_goes_along(tmp_path: Path) -> None:
    _, manager = hosted(tmp_path)
    old = log_of(manager)
    assert old.set_copied_through(30, 0)
    old.begin_unvalidated()
    old.hold.begin(10, now_ms=NOW_MS, for_ms=1000)
    new = moved(manager)
    assert (new.copied_through, new.unvalidated_end) == (30, 60)
    assert new.hold.start_at(NOW_MS) == 10


def test_records_that_come_while_it_is_copied_are_copied_too(tmp_path: Path) -> None:
    _, manager = hosted(tmp_path)
    move, old = begun(manager), log_of(manager)
    assert copy_all(manager, move) == len(old.segments.all)
    assert (move.bytes_left, move.offset_lag) == (0, 0)
    for _ in range(40):
        append(old)
    assert move.bytes_left == old.size_bytes - move.copied_bytes > 0
    assert move.offset_lag == 40
    copy_all(manager, move)
    append(old)
    assert move.offset_lag == 1
    before = records_of(old)
    assert records_of(swapped_in(manager, move)) == before


def test_a_large_segment_is_copied_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "STEP_BYTES", 700)
    monkeypatch.setattr(moving, "CHUNK_BYTES", 300)
    _, manager = hosted(tmp_path)
    move, old = begun(manager), log_of(manager)
    assert copy_all(manager, move) > old.size_bytes / 700
    before = records_of(old)
    assert records_of(swapped_in(manager, move)) == before


@pytest.mark.parametrize("cut", [0, 25, 58])
def test_what_a_truncation_took_is_not_in_the_copy(tmp_path: Path, cut: int) -> None:
    """As long as before, and other records: by their sizes nobody would see it."""
    _, manager = hosted(tmp_path)
    move, old = begun(manager), log_of(manager)
    copy_all(manager, move)
    truncate_to(old, cut)
    for _ in range(60 - cut):
        append(old, epoch=4, at_ms=NOW_MS + 5_000)
    old.update_high_watermark(60)
    copy_all(manager, move)
    before = records_of(old)
    new = swapped_in(manager, move)
    assert records_of(new) == before
    assert new.epochs.entries()[-1] == EpochEntry(4, cut)


def test_a_truncation_while_a_piece_is_copied_counts(tmp_path: Path) -> None:
    _, manager = hosted(tmp_path)
    move, old = begun(manager), log_of(manager)
    steps = []
    while step := move.next_step():
        steps.append(step)
    truncate_to(old, 40)
    copied = [manager.moves.copy(move, step) for step in steps]
    assert not all(copied), "files have gone"
    for _ in range(20):
        append(old, epoch=4)
    old.update_high_watermark(60)
    copy_all(manager, move)
    before = records_of(old)
    assert records_of(swapped_in(manager, move)) == before


def test_segments_that_leave_the_log_leave_the_copy(tmp_path: Path) -> None:
    host, manager = hosted(tmp_path, with_config(retention_bytes=2500))
    move, old = begun(manager), log_of(manager)
    copy_all(manager, move)
    manager.run_retention(host.clock.wall_ms())
    bases = list(old.segments.bases)
    assert old.log_start_offset > 0
    new = swapped_in(manager, move)
    assert new.log_start_offset == old.log_start_offset
    assert new.segments.bases == [*bases, 60]
    assert host.checkpoint(LOG_STARTS, 1)[ORDERS] == new.log_start_offset


def test_snapshots_come_with_their_segments_and_go_with_them(tmp_path: Path) -> None:
    """A log of very many segments is not leased while all of theirs are copied."""
    _, manager = hosted(tmp_path)
    move, old = begun(manager), log_of(manager)
    copy_all(manager, move)
    names = {path.name for path in move.path.glob("*.snapshot")}
    assert names == {path.name for path in old.directory.glob("*.snapshot")} != set()
    truncate_to(old, 25)
    append(old, epoch=4, base_sequence=0, **PRODUCER)
    old.update_high_watermark(26)
    old.roll()
    copy_all(manager, move)
    names = {path.name for path in move.path.glob("*.snapshot")}
    assert f"{26:020d}.snapshot" in names <= {p.name for p in old.directory.glob("*.snapshot")}
    new = swapped_in(manager, move)
    assert append(new, epoch=4, base_sequence=0, **PRODUCER).is_duplicate


def test_moves_to_one_directory_need_room_for_all_of_them(tmp_path: Path) -> None:
    class Short(FaultyDisk):
        def free_bytes(self, path: Path) -> int:
            return 10_000

    host = Host(tmp_path, dirs=2, disk=Short())
    manager = host.start()
    make(manager, ORDERS)
    manager.preferred[BILLS] = manager.dirs[0]
    (bills,) = make(manager, BILLS)
    assert 5_000 < bills.size_bytes < 10_000
    begun(manager)
    move = manager.moves.plan(bills, *manager.dirs)
    with pytest.raises(KafkaStorageError, match="make room there, or move"):
        manager.moves.begin(move)


def test_a_file_that_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    _, manager = hosted(tmp_path)
    move, old = begun(manager), log_of(manager)
    step = move.next_step()
    assert step is not None
    assert step.segment is not None
    path = step.segment.path(".log")
    hidden = path.rename(path.with_name("hidden"))
    assert not manager.moves.copy(move, step)
    move.forget(step.segment.base_offset)
    assert manager.dirs[0].works
    hidden.rename(path)
    copy_all(manager, move)
    before = records_of(old)
    assert records_of(swapped_in(manager, move)) == before


def test_a_tiered_log_moves_with_what_is_local_of_it(tmp_path: Path) -> None:
    config = with_config(remote_storage_enable=True, local_retention_bytes=2500)
    host, manager = hosted(tmp_path, config)
    old = log_of(manager)
    append(old, epoch=2)
    old.update_high_watermark(61)
    assert old.set_copied_through(50, 0)
    write_accepted(Disk(), old.directory, Accepted(adopted_epoch=9, holes=((3, 4),)))
    manager.run_retention(host.clock.wall_ms())
    local_start = old.local_log_start_offset
    assert (old.log_start_offset, local_start > 0) == (0, True)
    new = moved(manager)
    assert (new.log_start_offset, new.local_log_start_offset) == (0, local_start)
    assert new.epochs.entries() == [EpochEntry(0, 0), EpochEntry(2, 60)]
    assert not new.epoch_file.lost
    assert new.copied_through == 50
    assert new.adopted_epoch == 9
    assert read_accepted(Disk(), new.directory).knows_hole(3, 4)
    assert host.checkpoint(LOG_STARTS, 1)[ORDERS] == 0


def test_a_log_that_took_the_place_meanwhile_is_copied(tmp_path: Path) -> None:
    _, manager = hosted(tmp_path)
    move = begun(manager)
    copy_all(manager, move)
    assert manager.delete(ORDERS) == 1
    other = manager.create(*ORDERS, IDS["orders"])
    append(other, epoch=1)
    other.update_high_watermark(1)
    move.follow(other, manager.dirs[0])
    copy_all(manager, move)
    assert move.copied_bytes == other.size_bytes
    new = swapped_in(manager, move)
    assert (new.log_end_offset, len(read_bytes(new, 0, 1000))) == (1, other.size_bytes)


# -- disks that fail


def failing(root: Path) -> tuple[FaultyDisk, Host, LogManager]:
    host, manager = hosted(root)
    assert isinstance(host.disk, FaultyDisk)
    return host.disk, host, manager


def test_a_target_that_fails_ends_the_move_alone(tmp_path: Path) -> None:
    disk, _, manager = failing(tmp_path)
    move = begun(manager)
    step = move.next_step()
    assert step is not None
    disk.fail(["append"], path_part="-future", error=errno.EIO)
    with pytest.raises(KafkaStorageError, match="nothing can be copied"):
        manager.moves.copy(move, step)
    assert [each.works for each in manager.dirs] == [True, False]
    assert append(log_of(manager)).last_offset == 60
    with pytest.raises(KafkaStorageError, match="offline"):
        manager.moves.copy(move, step)
    manager.moves.drop(move)  # its disk is not asked any more


def test_a_target_that_is_full_serves_on(tmp_path: Path) -> None:
    disk, host, manager = failing(tmp_path)
    move = begun(manager)
    step = move.next_step()
    assert step is not None
    disk.fail(["append"], path_part="-future")
    with pytest.raises(KafkaStorageError):
        manager.moves.copy(move, step)
    assert [each.works for each in manager.dirs] == [True, True]
    disk.heal()
    manager.moves.drop(move)
    assert not list(host.paths[1].glob("orders-0*"))


def test_a_move_does_not_begin_where_there_is_no_room(tmp_path: Path) -> None:
    class Short(FaultyDisk):
        def free_bytes(self, path: Path) -> int:
            return 100

    host = Host(tmp_path, dirs=2, disk=Short())
    manager = host.start()
    make(manager, ORDERS)
    with pytest.raises(KafkaStorageError, match=r"and 100 are free: make room"):
        begun(manager)
    assert not list(host.paths[1].glob("orders-0*"))
    assert manager.dirs[1].works


def test_a_source_that_fails_takes_the_log_offline(tmp_path: Path) -> None:
    disk, _, manager = failing(tmp_path)
    move = begun(manager)
    step = move.next_step()
    assert step is not None
    disk.fail(["read_at"], path_part="orders-0/", error=errno.EIO)
    with pytest.raises(KafkaStorageError, match="offline"):
        manager.moves.copy(move, step)
    assert [each.works for each in manager.dirs] == [False, True]
    assert log_of(manager).is_offline


@pytest.mark.parametrize("operation", ["rename", "fsync_path"])
def test_a_target_that_fails_at_the_last_step_leaves_the_log_in_place(
    tmp_path: Path, operation: str
) -> None:
    disk, host, manager = failing(tmp_path)
    move, old = begun(manager), log_of(manager)
    assert old.set_copied_through(30, 0)
    copy_all(manager, move)
    before = records_of(old)
    old.roll()
    old.lease.grant(truncates=True)
    swap = manager.plan_swap(manager.moves.finish(move, ()))
    part = "data-1/orders-0" if operation == "rename" else "data-1"
    disk.fail([operation], path_part=part, error=errno.EIO)
    new = manager.take_swapped(swap, swap.carry_out())
    old.lease.take_back()
    assert isinstance(new, PartitionLog)
    assert manager.directory_of(ORDERS) is manager.dirs[0]
    assert [each.works for each in manager.dirs] == [True, False]
    assert (new.directory, records_of(new)) == (host.directory(), before)
    assert new.copied_through == 30
    assert append(new).last_offset == 60
    disk.heal()
    manager.close()
    host.assign(ORDERS)
    again = host.start()
    assert log_of(again).log_end_offset == 61, "what the other disk has is older"


# -- a start


def test_a_start_hears_of_a_move_that_had_not_ended(tmp_path: Path) -> None:
    host, manager = hosted(tmp_path)
    move = begun(manager)
    copy_all(manager, move)
    manager.close()
    host.assign(ORDERS)
    manager = host.start()
    (found,) = manager.interrupted
    assert (found.path, found.directory) == (move.path, manager.dirs[1])
    assert manager.directory_of(ORDERS) is manager.dirs[0]
    manager.moves.drop_path(ORDERS, found.directory, found.path)
    assert not list(host.paths[1].glob("orders-0*"))


def test_a_copy_waits_while_the_directory_it_came_from_is_away(tmp_path: Path) -> None:
    """More may have been written there than the copy has."""
    host, manager = hosted(tmp_path)
    move, old = begun(manager), log_of(manager)
    copy_all(manager, move)
    old.roll()
    old.lease.grant(truncates=True)
    manager.moves.finish(move, ())
    old.lease.take_back()
    append(old)
    manager.close()
    host.assign(ORDERS)
    manager = host.manager()
    manager.put_offline(host.paths[0], OSError(errno.EIO, "away"))
    assert host.wanted is not None
    manager.load(host.wanted.get)
    assert manager.get(ORDERS) is None
    assert move.path.exists()
    manager.close()
    manager = host.start()
    assert log_of(manager).log_end_offset == 61


def test_until_the_metadata_know_it_a_moved_log_is_known_where_it_is(tmp_path: Path) -> None:
    """The checkpoints of the directory before may say something of old."""
    host, manager = hosted(tmp_path)
    log_of(manager).flush()
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    new = moved(manager)
    assert MOVED_MARK in names_in(new.directory)
    new.raise_log_start(50)
    manager.keep_log_starts([ORDERS])
    manager.close(clean=False)
    host.assign(ORDERS)  # as before the move
    manager = host.start()
    assert log_of(manager).log_start_offset == 50
    assert manager.directory_of(ORDERS) is manager.dirs[1]


def test_a_log_that_an_operator_moved_on_is_known_where_it_was(tmp_path: Path) -> None:
    host, manager = hosted(tmp_path)
    new = moved(manager)
    new.raise_log_start(50)
    manager.keep_log_starts([ORDERS])
    manager.close()
    host.directory(index=1).rename(host.directory(index=0))
    host.assign(ORDERS, index=1)
    manager = host.start()
    assert log_of(manager).log_start_offset == 50


def test_a_replica_is_begun_in_the_directory_that_was_said_for_it(tmp_path: Path) -> None:
    host = Host(tmp_path, dirs=2)
    manager = host.start()
    manager.preferred[ORDERS] = manager.dirs[1]
    make(manager, ORDERS)
    assert manager.directory_of(ORDERS) is manager.dirs[1]
    assert not manager.preferred


def test_a_said_directory_that_failed_since_is_not_waited_for(tmp_path: Path) -> None:
    host = Host(tmp_path, dirs=2)
    manager = host.start()
    manager.preferred[ORDERS] = manager.dirs[1]
    manager.fail(manager.dirs[1], OSError(errno.EIO, "away"))
    make(manager, ORDERS)
    assert manager.directory_of(ORDERS) is manager.dirs[0]


def test_settings_of_a_moved_log_are_those_of_now(tmp_path: Path) -> None:
    _, manager = hosted(tmp_path)
    move, old = begun(manager), log_of(manager)
    copy_all(manager, move)
    old.set_config(replace(SMALL, retention_ms=5))
    assert swapped_in(manager, move).config.retention_ms == 5
