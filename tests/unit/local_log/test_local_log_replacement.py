"""A log begins again elsewhere, in a directory beside its own that takes its name."""

import errno
from collections.abc import Mapping
from pathlib import Path
from types import NoneType

import pytest

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.files.meta_properties import parse_partition_metadata
from kafka_protocol.types import TopicPartition
from local_log.checked_files import CheckedFiles, Owner
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError, LogClosed, LogIsTruncated
from local_log.file_names import FUTURE_MARKER
from local_log.log.partition_log import PartitionLog
from local_log.manager.future_dirs import Marker, begin_at, parse_marker
from local_log.manager.log_dir import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    LogDir,
)
from local_log.recovery.acceptance import Accepted, Adopted
from runtime.disk import Disk
from runtime.executors import ThreadPool
from tests.support.brokers.process import until
from tests.support.worlds.local_log import NOW_MS, append, read_bytes, with_config
from tests.support.worlds.log_manager import IDS, ORDERS, Host, make, names_in
from tests.support.worlds.replacement import (
    BEGINNING,
    CHAIN,
    CLIPPED,
    EMPTY,
    PRODUCER,
    SNAPSHOT,
    TIERED,
    check_new,
    swapped,
)

MARKS = {LOG_STARTS: 3000, RECOVERY_POINTS: 5000, HIGH_WATERMARKS: 5000}


def host_of(root: Path, config: LogConfig = TIERED) -> Host:
    host = Host(root, config=config)
    manager = host.start()
    (log,) = make(manager, ORDERS)
    log.flush()
    manager.close()
    return host


def test_the_files_beside_are_those_of_a_log_that_begins_there(tmp_path: Path) -> None:
    host = Host(tmp_path, config=TIERED)
    manager = host.start()
    make(manager, ORDERS)
    future = manager.build_future(ORDERS, BEGINNING)
    assert future.path.parent == host.paths[0]
    assert future.path.name.endswith("-future")
    assert names_in(future.path) == {
        *(f"{EMPTY}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")),
        "leader-epoch-checkpoint",
        "partition.metadata",
        "tidemark-checksums",
        FUTURE_MARKER,
    }
    assert (future.path / f"{EMPTY}.log").read_bytes() == b""
    assert (future.path / f"{EMPTY}.snapshot").read_bytes() == SNAPSHOT
    files = CheckedFiles(Disk(), future.path)
    assert files.owner == Owner(IDS["orders"], 0)
    assert epoch_checkpoint.parse(files.read("leader-epoch-checkpoint")) == CLIPPED
    assert parse_partition_metadata(files.read("partition.metadata")) == IDS["orders"]
    marker = parse_marker((future.path / FUTURE_MARKER).read_bytes())
    assert marker == (IDS["orders"], ORDERS, 5000, 3000, True, None)
    log = manager.get(ORDERS)
    assert log is not None
    assert append(log).last_offset == 60, "the present log serves on"


def test_the_new_log_is_the_partition_s_from_the_swap_on(tmp_path: Path) -> None:
    host = Host(tmp_path, config=TIERED)
    manager = host.start()
    (old,) = make(manager, ORDERS)
    read = old.read(0, 100, min_one_batch=True)
    swap = manager.plan_swap(manager.build_future(ORDERS, BEGINNING))
    old.lease.grant(truncates=True)
    with pytest.raises(LogIsTruncated):
        old.read(0, 100)
    assert not manager.is_open(old)
    new = manager.take_swapped(swap, swap.carry_out())
    old.lease.take_back()
    assert manager.get(ORDERS) is new
    check_new(manager.get(ORDERS))
    assert manager.directory_of(ORDERS) is manager.dirs[0]
    (region,) = read.regions
    assert len(old.disk.read_at(region.file, region.position, region.size_bytes)) > 60
    assert {name: host.checkpoint(name)[ORDERS] for name in MARKS} == MARKS
    (aside,) = host.paths[0].glob("orders-0.*-delete")
    assert FUTURE_MARKER not in names_in(host.directory())
    host.clock.advance(TIERED.file_delete_delay_ms + 10)
    manager.run_deletions()
    assert not aside.exists()


@pytest.mark.parametrize("clean", [False, True])
def test_after_a_restart_it_begins_there_and_knows_its_producers(
    tmp_path: Path, clean: bool
) -> None:
    host = host_of(tmp_path)
    assert host
    manager = host.start()
    swapped(manager)
    manager.close(clean=clean)
    host.assign(ORDERS)
    manager = host.start()
    assert not manager.refused
    log = manager.get(ORDERS)
    check_new(log)
    assert log is not None
    assert append(log, 5, epoch=8, base_sequence=10, **PRODUCER).is_duplicate
    info = append(log, 1, epoch=8, base_sequence=15, **PRODUCER)
    assert (info.first_offset, info.is_duplicate) == (5000, False)
    assert len(read_bytes(log, 5000, 1000)) > 60


@pytest.mark.parametrize("stops_early", [False, True])
def test_an_end_above_is_made_where_it_is_opened(tmp_path: Path, stops_early: bool) -> None:
    """A start opens it where the one that ordered it was killed before the second rename."""
    host = host_of(tmp_path)
    manager = host.start()
    accepted = Accepted(adopted=Adopted(None, 5010, tuple(CLIPPED)), adopted_epoch=6)
    beginning = BEGINNING._replace(accepted=accepted)
    if stops_early:
        future = manager.build_future(ORDERS, beginning)
        future.replaces.directory.rename(future.path.with_suffix(f".{'0' * 32}-delete"))
        assert future.path.is_dir()
    else:
        assert swapped(manager, beginning).log_end_offset == 5010
    manager.close(clean=False)
    host.assign(ORDERS)
    log = host.start().get(ORDERS)
    assert log is not None
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (
        3000,
        5000,
        5010,
    )
    assert (log.epochs.entries(), log.adopted_epoch) == (CLIPPED, 6)
    assert append(log, 5, epoch=8, base_sequence=10, **PRODUCER).is_duplicate


def test_a_chain_with_a_gap_or_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    manager = host_of(tmp_path).start()
    for changes in (
        {"chain": CHAIN[2:]},
        {"chain": []},
        {"producer_snapshot": SNAPSHOT[:-1]},
        {"producer_snapshot": b""},
    ):
        with pytest.raises(CorruptFileError):
            manager.build_future(ORDERS, BEGINNING._replace(**changes))
    assert not list(tmp_path.rglob("*-future"))


def test_where_nothing_is_remote_no_epoch_is_known(tmp_path: Path) -> None:
    host = host_of(tmp_path)
    log = swapped(host.start(), BEGINNING._replace(log_start=5000))
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries()) == (5000, 5000, [])


def test_a_log_that_is_another_by_now_is_not_swapped(tmp_path: Path) -> None:
    host = host_of(tmp_path)
    manager = host.start()
    future = manager.build_future(ORDERS, BEGINNING)
    manager.delete(ORDERS)
    new = manager.create(*ORDERS, b"n" * 16)
    with pytest.raises(LogClosed):
        manager.plan_swap(future)
    assert manager.is_open(new)
    for _ in range(2):
        manager.drop_future(future)
    assert not list(tmp_path.rglob("*-future"))
    assert manager.dirs[0].works


# -- what continues meanwhile


def test_the_old_log_says_nothing_any_more_and_writes_nothing(tmp_path: Path) -> None:
    host = host_of(tmp_path)
    manager = host.start()
    old = manager.get(ORDERS)
    assert old is not None
    before = {name: host.checkpoint(name) for name in CHECKPOINTS}
    assert before[RECOVERY_POINTS] == {ORDERS: 60}
    append(old)
    swap = manager.plan_swap(manager.build_future(ORDERS, BEGINNING))
    old.lease.grant(truncates=True)

    def proceed() -> None:
        """What a broker does for all logs, and what pool threads still do for this one."""
        manager.checkpoint_high_watermarks()
        manager.checkpoint_log_starts()
        manager.checkpoint_recovery_points()
        assert list(manager.keep_log_starts([ORDERS])) == [ORDERS]
        assert not manager.note_cleaned(old, 30)
        for late in (
            lambda: old.epoch_file.write_epoch_ahead(9, 60),
            lambda: old.epoch_file.write_clipped_ahead(20),
            lambda: old.segments.write_file(host.directory() / "x", b""),
            lambda: old.epochs.assign(9, 60),
        ):
            with pytest.raises(LogClosed):
                late()
        manager.flush_due()
        manager.run_retention(NOW_MS + 10**12)
        manager.expire_producers(NOW_MS + 10**12)

    proceed()
    assert {name: host.checkpoint(name) for name in CHECKPOINTS} == before
    swapped_in = swap.carry_out()
    files = {path.name: path.read_bytes() for path in host.directory().iterdir()}
    proceed()
    assert {name: host.checkpoint(name)[ORDERS] for name in MARKS} == MARKS
    with pytest.raises(LogClosed):
        old.flush()
    new = manager.take_swapped(swap, swapped_in)
    old.lease.take_back()
    for late in (old.flush, lambda: old.epoch_file.write_clipped_ahead(20)):
        with pytest.raises(LogClosed):
            late()
    assert {path.name: path.read_bytes() for path in host.directory().iterdir()} == files
    assert manager.dirs[0].works
    check_new(manager.get(ORDERS))
    assert manager.keep_log_starts([ORDERS]) == {}
    assert isinstance(new, PartitionLog)
    append(new, epoch=8)
    new.flush()
    manager.checkpoint_recovery_points()
    assert host.checkpoint(RECOVERY_POINTS) == {ORDERS: 5001}


def test_settings_that_change_meanwhile_hold_for_the_new_log(tmp_path: Path) -> None:
    manager = host_of(tmp_path).start()
    swap = manager.plan_swap(manager.build_future(ORDERS, BEGINNING))
    old = swap.future.replaces
    old.lease.grant(truncates=True)
    swapped_in = swap.carry_out()
    old.set_config(with_config(TIERED, segment_bytes=7777))
    new = manager.take_swapped(swap, swapped_in)
    old.lease.take_back()
    assert isinstance(new, PartitionLog)
    assert new.config.segment_bytes == 7777


def test_a_topic_that_is_not_tiered_any_more_is_swapped_all_the_same(tmp_path: Path) -> None:
    """A removed topic has the broker's settings until its partitions go, in a later turn: by these
    nothing can be remote, and the first segment of the new log would be missing."""
    manager = host_of(tmp_path).start()
    future = manager.build_future(ORDERS, BEGINNING)
    future.replaces.set_config(with_config(TIERED, remote_storage_enable=False))
    swap = manager.plan_swap(future)
    swap.future.replaces.lease.grant(truncates=True)
    new = manager.take_swapped(swap, swap.carry_out())
    swap.future.replaces.lease.take_back()
    assert isinstance(new, PartitionLog), new
    assert (new.log_start_offset, new.local_log_start_offset) == (3000, 5000)
    assert not new.config.remote_storage_enable


# -- a disk that fails


@pytest.mark.parametrize(
    ("operation", "path_part", "after"),
    [
        ("rename", "-delete", 0),
        ("rename", LOG_STARTS, 0),
        ("rename", RECOVERY_POINTS, 0),
        ("rename", "data-0/orders-0", 1),
        ("open_append", "orders-0/", 0),
    ],
)
@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
def test_a_failing_disk_takes_the_directory_offline_and_a_start_continues(
    tmp_path: Path, operation: str, path_part: str, after: int, error: int
) -> None:
    host = host_of(tmp_path)
    host.assign(ORDERS)
    manager = host.start()
    swap = manager.plan_swap(manager.build_future(ORDERS, BEGINNING))
    swap.future.replaces.lease.grant(truncates=True)
    host.disk.fail(  # type: ignore[attr-defined]
        [operation], path_part=path_part, error=error, after=after
    )
    swapped_in = swap.carry_out()
    assert isinstance(swapped_in, KafkaStorageError)
    assert manager.take_swapped(swap, swapped_in) is swapped_in
    swap.future.replaces.lease.take_back()
    assert not manager.dirs[0].works
    manager.close()
    host.disk.heal()  # type: ignore[attr-defined]
    log = host.start().get(ORDERS)
    assert log is not None
    if path_part == "-delete":
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 60, 60)
    else:
        check_new(log)


@pytest.mark.parametrize(("error", "works"), [(errno.ENOSPC, False), (errno.EMFILE, True)])
def test_a_build_that_fails_leaves_the_present_log(tmp_path: Path, error: int, works: bool) -> None:
    host = host_of(tmp_path)
    manager = host.start()
    host.disk.fail(["open_append"], path_part="-future", error=error)  # type: ignore[attr-defined]
    with pytest.raises(KafkaStorageError):
        manager.build_future(ORDERS, BEGINNING)
    host.disk.heal()  # type: ignore[attr-defined]
    assert manager.dirs[0].works == works
    assert names_in(host.paths[0]).isdisjoint({path.name for path in tmp_path.rglob("*-future")})
    if works:
        swapped(manager)


def test_a_directory_that_failed_before_is_not_touched(tmp_path: Path) -> None:
    host = host_of(tmp_path)
    manager = host.start()
    swap = manager.plan_swap(manager.build_future(ORDERS, BEGINNING))
    swap.future.replaces.lease.grant(truncates=True)
    before = names_in(host.paths[0])
    manager.fail(manager.dirs[0], OSError(errno.EIO, "broken"))
    assert isinstance(swap.carry_out(), KafkaStorageError)
    assert names_in(host.paths[0]) == before


def test_after_a_swap_that_failed_the_name_can_be_used_elsewhere(tmp_path: Path) -> None:
    host = Host(tmp_path, 2, config=TIERED)
    manager = host.start()
    make(manager, ORDERS)
    swap = manager.plan_swap(manager.build_future(ORDERS, BEGINNING))
    swap.future.replaces.lease.grant(truncates=True)
    host.disk.fail(["rename"], path_part="-delete")  # type: ignore[attr-defined]
    manager.take_swapped(swap, swap.carry_out())
    swap.future.replaces.lease.take_back()
    manager.delete(ORDERS)
    append(manager.create(*ORDERS, b"n" * 16))
    manager.checkpoint_recovery_points()
    assert host.checkpoint(RECOVERY_POINTS, 1) == {ORDERS: 0}


# -- many at a time: each checkpoint is one file for all logs of a directory


class Waiting:
    """Threads that have their beginnings written, all of which wait for the same lock."""

    def __init__(self, directory: LogDir, count: int) -> None:
        self.directory, self.written = directory, list[str]()
        self.markers = [
            Marker(bytes(16), TopicPartition("t", one), 50 + one, one, True) for one in range(count)
        ]
        self._write = directory.write_checkpoint
        directory.write_checkpoint = self._counted  # type: ignore[method-assign]
        self.failures: list[Exception] = []

    def _counted(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.written.append(name)
        if self.failures:
            raise self.failures.pop()
        self._write(name, offsets)

    def run(self) -> list[Exception | None]:
        pool = ThreadPool("begin", len(self.markers))
        with self.directory.checkpointing:
            calls = [pool.submit(begin_at, self.directory, one) for one in self.markers]
            until(lambda: len(self.directory.beginnings) == len(calls), "all wait")
        found = [one.exception() for one in calls]
        pool.shutdown()
        return found


def directory_of(tmp_path: Path) -> LogDir:
    directory = LogDir(tmp_path, Disk())
    directory.prepare()
    directory.write_checkpoint(CLEANER_OFFSETS, {TopicPartition("t", 0): 9})
    return directory


def test_one_write_of_each_checkpoint_is_for_all_that_wait(tmp_path: Path) -> None:
    """Else a broker with ten thousand logs writes ten thousand times a file of all of them."""
    waiting = Waiting(directory_of(tmp_path), 8)
    assert waiting.run() == [None] * 8
    assert waiting.written == [LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS]
    found = LogDir(tmp_path, Disk())
    found.prepare()
    found.read_checkpoints()
    for marker in waiting.markers:
        tp = marker.topic_partition
        told = [found.entry(name, tp) for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS)]
        assert told == [marker.log_start, marker.offset, marker.offset]
    assert found.entry(CLEANER_OFFSETS, TopicPartition("t", 0)) is None


def test_who_waits_writes_for_itself_where_the_write_for_all_has_failed(tmp_path: Path) -> None:
    waiting = Waiting(directory_of(tmp_path), 4)
    waiting.failures = [OSError(errno.EIO, "once")]
    found = waiting.run()
    assert sorted(map(type, found), key=str) == [NoneType] * 3 + [OSError]
    for marker, error in zip(waiting.markers, found, strict=True):
        told = waiting.directory.entry(RECOVERY_POINTS, marker.topic_partition)
        assert (told == marker.offset) == (error is None)
