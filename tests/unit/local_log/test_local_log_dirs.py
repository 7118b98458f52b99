"""The directories of a broker: start, stop, checkpoints, deletion, failing disks."""

import errno
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from local_log.log import lookups
from local_log.log.truncation import truncate_fully_and_start_at, truncate_to
from local_log.manager.log_dirs import LogManager
from runtime.disk import Disk, LockHeldError
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
from tests.support.worlds.local_log import NOW_MS, SMALL, TOPIC_ID, append, with_config

ORDERS = TopicPartition("orders", 0)


class Broker:
    """A log manager on directories that outlive it."""

    def __init__(self, root, dirs=1, config=SMALL):
        self.paths = [root / f"data-{i}" for i in range(dirs)]
        self.disk = FaultyDisk()
        self.ports = simulated(clock=ManualClock(NOW_MS), disk=self.disk)
        self.clock, self.scheduler = self.ports.clock, self.ports.scheduler
        self.config = config

    def start(self, wanted=None, **kwargs):
        manager = LogManager(self.paths, lambda _topic: self.config, self.ports, **kwargs)
        manager.lock()
        manager.load(wanted)
        return manager


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path)


def _fill(log, batches=60):
    for i in range(batches):
        append(log, at_ms=NOW_MS + i)
    log.update_high_watermark(log.log_end_offset)
    return log


def _checkpoint(path, name):
    return offset_checkpoint.parse((path / name).read_bytes())


def test_clean_stop_is_marked_and_nothing_is_recovered_after_it(broker):
    manager = broker.start()
    _fill(manager.create(*ORDERS, TOPIC_ID))
    manager.close(broker_epoch=42)
    mark = broker.paths[0] / ".kafka_cleanshutdown"
    assert mark.read_text() == '{"version":0,"brokerEpoch":42}'
    (broker.paths[0] / "orders-0" / f"{0:020d}.log").open("ab").close()
    manager = broker.start()
    assert not mark.exists()
    assert manager.dirs[0].broker_epoch == manager.clean_epoch == 42
    log = manager.get(ORDERS)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (60, 60, 60)


@pytest.mark.parametrize("second", [None, 41])
def test_a_life_ended_cleanly_only_where_every_directory_says_so(tmp_path, second):
    broker = Broker(tmp_path, dirs=2)
    manager = broker.start()
    manager.close(broker_epoch=42)
    mark = manager.dirs[1].path / ".kafka_cleanshutdown"
    if second is None:
        mark.unlink()
    else:
        mark.write_text(mark.read_text().replace("42", str(second)))
    assert broker.start().clean_epoch == -1


@pytest.mark.parametrize(
    ("old", "new", "epoch"),
    [("", "", 42), ("bootId", "other", -1), ('":"', '":"another-boot-', -1), ("{", "", -1)],
    ids=["killed", "without a boot id", "machine started again", "damaged"],
)
def test_a_killed_process_has_lost_nothing_while_its_machine_ran_on(tmp_path, old, new, epoch):
    broker = Broker(tmp_path, dirs=2)
    manager = broker.start()
    manager.note_running_incarnation(42, b"i" * 16)
    manager.close(clean=False)
    life = broker.paths[1] / "tidemark.running-life"
    life.write_text(life.read_text().replace(old, new))
    assert broker.start().clean_epoch == epoch


def test_a_failed_directory_may_have_lost_records_without_a_reboot(tmp_path):
    """After an fsync that failed the pages count as written, and a kill would look like any."""
    broker = Broker(tmp_path, dirs=2)
    manager = broker.start()
    manager.note_running_incarnation(42, b"i" * 16)
    manager.fail(manager.dirs[1], OSError(errno.EIO, "disk"))
    manager.close(clean=False)
    manager = broker.start()
    assert [one.same_boot_epoch for one in manager.dirs] == [42, -1]
    assert manager.clean_epoch == -1


def test_unclean_stop_recovers_and_trusts_no_more_than_the_checkpoints(broker):
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID))
    manager.checkpoint_high_watermarks()
    manager.checkpoint_recovery_points()
    assert log.recovery_point == log.segments.all[-1].base_offset  # flushed after the last roll
    append(log)
    last = max((broker.paths[0] / "orders-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    manager.close(clean=False)
    manager = broker.start()
    log = manager.get(ORDERS)
    assert (log.log_end_offset, log.high_watermark, log.truncated_bytes > 0) == (60, 60, True)
    assert manager.dirs[0].broker_epoch == -1


def test_second_process_on_the_same_directory_is_refused(broker):
    manager = broker.start()
    with pytest.raises(LockHeldError):
        broker.start()
    manager.close()
    broker.start()


def test_bad_input_N120_alien_files_are_left_alone(broker, caplog):
    manager = broker.start()
    _fill(manager.create(*ORDERS, TOPIC_ID))
    manager.close()
    caplog.set_level("INFO")
    root = broker.paths[0]
    (root / "lost+found").mkdir()
    (root / "notes.txt").write_text("mine")
    (root / "orders-007").mkdir()
    (root / "orders-0" / "README").write_text("mine")
    manager = broker.start()
    assert [log.topic_partition for log in manager.all()] == [ORDERS]
    assert (root / "notes.txt").exists()
    assert (root / "orders-0" / "README").exists()
    assert sum("lost+found" in line for line in caplog.text.splitlines()) == 1
    assert sum("notes.txt" in line for line in caplog.text.splitlines()) == 1
    assert sum("README" in line for line in caplog.text.splitlines()) == 1


def test_files_of_our_own_are_not_reported(broker, caplog):
    manager = broker.start(own_names=["tier.lock", "remote-log-metadata"])
    _fill(manager.create(*ORDERS, TOPIC_ID))
    for _ in range(3):
        manager.checkpoint_log_starts()
        manager.checkpoint_high_watermarks()
    root = broker.paths[0]
    for name in ("cleaner-offset-checkpoint", "meta.properties"):
        (root / name).write_text("0\n0\n" if "cleaner" in name else "version=1\n")
    (root / "meta.properties").unlink()
    (root / "bootstrap.checkpoint").write_bytes(b"")
    (root / "tier.lock").write_bytes(b"")
    (root / "remote-log-metadata").mkdir()
    (root / "orders-0" / "quorum-state").write_text("{}")
    (root / "orders-0" / "00000000000000000007-0000000001.checkpoint").write_bytes(b"")
    caplog.set_level("INFO")
    for clean in (True, False, True):
        manager.close(clean=clean)
        manager = broker.start(own_names=["tier.lock", "remote-log-metadata"])
        assert "unknown" not in caplog.text


def test_metadata_log_is_not_opened_as_a_partition(broker):
    (broker.paths[0] / "__cluster_metadata-0").mkdir(parents=True)
    assert broker.start().all() == []


def test_new_logs_spread_over_the_directories(tmp_path):
    broker = Broker(tmp_path, dirs=3)
    manager = broker.start()
    for partition in range(9):
        manager.create("t", partition, TOPIC_ID)
    assert [len([p for p in path.iterdir() if p.is_dir()]) for path in broker.paths] == [3, 3, 3]
    assert manager.create("t", 0, TOPIC_ID) is manager.get(TopicPartition("t", 0))
    manager.close()
    assert len(broker.start().all()) == 9


def test_deleted_log_is_gone_at_once_and_its_files_later(broker):
    manager = broker.start()
    _fill(manager.create(*ORDERS, TOPIC_ID))
    assert manager.delete(ORDERS)
    assert not manager.delete(ORDERS)
    assert manager.get(ORDERS) is None
    (directory,) = [p for p in broker.paths[0].iterdir() if p.is_dir()]
    assert directory.name.startswith("orders-0.")
    assert directory.name.endswith("-delete")
    again = manager.create(*ORDERS, bytes(16))
    assert again.log_end_offset == 0
    broker.scheduler.advance(59_000)
    assert directory.exists()
    broker.scheduler.advance(2_000)
    assert not directory.exists()
    assert again.directory.exists()


def test_deletions_pending_at_close_are_left_to_the_next_start(broker):
    manager = broker.start()
    _fill(manager.create(*ORDERS, TOPIC_ID))
    manager.delete(ORDERS)
    manager.close()
    left = [p for p in broker.paths[0].iterdir() if p.is_dir()]
    assert len(left) == 1
    broker.scheduler.advance(200_000)  # the pool that would unlink it takes nothing any more
    assert [p for p in broker.paths[0].iterdir() if p.is_dir()] == left


def test_directory_still_waiting_for_deletion_goes_at_the_next_start(broker):
    manager = broker.start()
    _fill(manager.create(*ORDERS, TOPIC_ID))
    manager.delete(ORDERS)
    manager.close()
    manager = broker.start()
    assert [p for p in broker.paths[0].iterdir() if p.is_dir()] == []


def test_stray_log_is_put_aside_and_kept(broker):
    manager = broker.start()
    _fill(manager.create(*ORDERS, TOPIC_ID))
    manager.close()
    manager = broker.start(wanted=lambda _tp: None)
    assert manager.all() == []
    (directory,) = manager.set_aside()
    broker.scheduler.advance(200_000)
    assert [p for p in broker.paths[0].iterdir() if p.is_dir()] == [directory]
    assert directory.name.endswith("-stray")
    manager.close()
    broker.start()
    assert directory.exists()


def test_retention_unlinks_after_the_delay(broker):
    broker.config = with_config(retention_ms=1000)
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID))
    assert len(manager.run_retention(NOW_MS + 500)) == 0
    assert len(manager.run_retention(NOW_MS + 5000)) > 3
    assert log.log_start_offset == 60
    renamed = list(log.directory.glob("*.deleted"))
    assert renamed
    broker.scheduler.advance(60_002)
    assert not list(log.directory.glob("*.deleted"))


def test_log_start_survives_a_kill_once_it_is_checkpointed(broker):
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID))
    log.raise_log_start(5)
    manager.checkpoint_log_starts()
    assert _checkpoint(broker.paths[0], "log-start-offset-checkpoint") == {ORDERS: 5}
    manager.close(clean=False)
    log = broker.start().get(ORDERS)
    assert log.log_start_offset == 5
    # The epoch of the last record that counts as committed stays.
    assert log.epochs.entries()[0].start_offset == 4


def test_tiered_log_start_is_listed_also_at_zero(broker):
    broker.config = with_config(remote_storage_enable=True)
    manager = broker.start()
    manager.create(*ORDERS, TOPIC_ID)
    manager.checkpoint_log_starts()
    assert _checkpoint(broker.paths[0], "log-start-offset-checkpoint") == {ORDERS: 0}


def test_start_no_longer_copied_is_durable_before_segments_go(broker):
    broker.config = with_config(
        remote_storage_enable=True, remote_log_copy_disable=True, retention_ms=1000
    )
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID))
    broker.disk.fail(["rename"], path_part="log-start-offset-checkpoint", error=errno.EIO)
    assert manager.run_retention(NOW_MS + 5000) == []
    assert not list(log.directory.glob("*.deleted"))


def test_log_start_that_could_not_be_kept_is_told(broker):
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID))
    log.raise_log_start(5)
    broker.disk.fail(["fsync"], path_part="log-start-offset-checkpoint", error=errno.EIO)
    assert set(manager.keep_log_starts([ORDERS])) == {ORDERS}
    assert log.is_offline
    assert set(manager.keep_log_starts([ORDERS])) == {ORDERS}  # nor is it told later that it is


def test_damaged_checkpoint_is_ignored_with_an_error(broker, caplog):
    manager = broker.start()
    _fill(manager.create(*ORDERS, TOPIC_ID))
    manager.close()
    (broker.paths[0] / "recovery-point-offset-checkpoint").write_text("7\nnonsense")
    assert broker.start().get(ORDERS).log_end_offset == 60
    assert "damaged" in caplog.text


@pytest.mark.parametrize("operation", ["append", "write_at", "open_append", "fsync"])
def test_bad_input_N121_full_disk_takes_its_directory_offline_alone(operation, tmp_path):
    broker = Broker(tmp_path, dirs=2)
    manager = broker.start()
    logs = [manager.create("t", partition, TOPIC_ID) for partition in range(4)]
    for log in logs:
        _fill(log, 5)
    broker.disk.fail([operation], path_part="data-0")
    offline = []
    manager.failures.on_offline = offline.append
    bad = logs[0]
    written = bad.log_end_offset
    with pytest.raises(KafkaError) as refused:  # noqa: PT012 - one of them meets the fault
        for _ in range(100):
            written = append(bad).last_offset + 1
        bad.flush()
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bad.log_end_offset in (written, written + 1)
    assert [directory.path.name for directory in offline] == ["data-0"]
    for log in logs:
        if "data-0" in str(log.directory):
            with pytest.raises(KafkaStorageError):
                append(log)
            with pytest.raises(KafkaStorageError):
                log.read(0, 100)
        else:
            append(log)
    assert "data-1" in str(manager.create("u", 0, bytes(15) + b"x").directory)
    broker.disk.heal()
    manager.close(broker_epoch=1)
    assert not (broker.paths[0] / ".kafka_cleanshutdown").exists()
    assert (broker.paths[1] / ".kafka_cleanshutdown").exists()
    again = broker.start()
    assert again.get(bad.topic_partition).log_end_offset >= written
    append(again.get(bad.topic_partition))


def test_directory_unreadable_at_start_is_offline_and_keeps_its_logs(tmp_path):
    broker = Broker(tmp_path, dirs=2)
    manager = broker.start()
    for partition in range(4):
        _fill(manager.create("t", partition, TOPIC_ID), 5)
    manager.close()
    broker.disk.fail(["open_read"], path_part="data-1/t-3", error=errno.EIO)
    manager = broker.start()
    assert [d.path.name for d in manager.online_dirs()] == ["data-0"]
    lost = [p for p in range(4) if manager.directory_of(TopicPartition("t", p)) is None]
    assert lost
    with pytest.raises(KafkaStorageError):
        manager.create("t", lost[0], TOPIC_ID)
    assert "data-0" in str(manager.create("new", 0, bytes(15) + b"n").directory)
    broker.disk.heal()
    manager.close()
    manager = broker.start()
    assert [manager.get(TopicPartition("t", p)).log_end_offset for p in range(4)] == [5] * 4


def test_every_directory_offline_refuses_new_logs(broker):
    manager = broker.start()
    broker.disk.fail(["open_append"], error=errno.EIO)
    with pytest.raises(KafkaStorageError):
        manager.create(*ORDERS, TOPIC_ID)
    with pytest.raises(KafkaStorageError):
        manager.create(*ORDERS, TOPIC_ID)


def test_flush_interval_is_kept(broker):
    broker.config = with_config(flush_ms=100)
    manager = broker.start()
    log = manager.create(*ORDERS, TOPIC_ID)
    append(log)
    manager.flush_due()
    assert log.recovery_point == 0
    broker.clock.advance(100)
    manager.flush_due()
    assert log.recovery_point == 1
    log.set_config(with_config(flush_messages=3))
    append(log, 2)
    assert not log.is_flush_due
    append(log)
    assert log.is_flush_due
    log.flush()
    assert not log.is_flush_due


def test_idle_partitions_hold_one_file_each(broker):
    manager = broker.start()
    for partition in range(20):
        _fill(manager.create("t", partition, TOPIC_ID), 60)
    manager.close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    manager = broker.start()
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 20 + len(broker.paths)
    log = manager.get(TopicPartition("t", 7))
    _fill(log, 60)
    assert [r.offset for r in [lookups.offset_for_timestamp(log, NOW_MS)]] == [0]


def test_start_writes_no_epoch_chain_that_only_became_shorter(broker):
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID), 5)
    log.epochs.assign(3, log.log_end_offset)  # a leader that wrote nothing
    manager.close()
    file = log.directory / "leader-epoch-checkpoint"
    written = file.stat().st_mtime_ns
    log = broker.start().get(ORDERS)
    assert [entry.epoch for entry in log.epochs.entries()] == [0]
    assert file.stat().st_mtime_ns == written


def test_start_after_a_kill_keeps_the_epochs_it_found(broker):
    manager = broker.start()
    log = manager.create(*ORDERS, TOPIC_ID)
    append(log, epoch=1)
    before = (log.directory / "leader-epoch-checkpoint").read_bytes()
    append(log, epoch=4)
    manager.close(clean=False)
    (log.directory / "leader-epoch-checkpoint").write_bytes(before)  # its write was lost
    log = broker.start().get(ORDERS)
    assert [entry.epoch for entry in log.epochs.entries()] == [1, 4]
    assert "4 1" in (log.directory / "leader-epoch-checkpoint").read_text()


def test_partition_twice_is_opened_where_its_id_is(tmp_path):
    broker = Broker(tmp_path, dirs=2)
    manager = broker.start()
    _fill(manager.create(*ORDERS, TOPIC_ID))
    manager.close()
    Disk().make_dirs(broker.paths[1] / "orders-0")
    assert [str(log.directory.parent.name) for log in broker.start().all()] == ["data-0"]


@pytest.mark.parametrize("fully", [False, True])
def test_log_start_and_end_survive_a_kill_after_truncation(broker, fully):
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID))
    manager.checkpoint_recovery_points()
    if fully:
        truncate_fully_and_start_at(log, 500)
    else:
        truncate_to(log, 20)
    manager.close(clean=False)
    log = broker.start().get(ORDERS)
    expected = (500, 500) if fully else (0, 20)
    assert (log.log_start_offset, log.log_end_offset) == expected


def test_log_start_survives_a_kill_after_retention(broker):
    broker.config = with_config(retention_ms=1000)
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID))
    log.set_config(with_config(retention_bytes=3000, retention_ms=-1))
    assert manager.run_retention(NOW_MS)
    start = log.log_start_offset
    assert start > 0
    manager.close(clean=False)
    log = broker.start().get(ORDERS)
    assert (log.log_start_offset, log.log_end_offset) == (start, 60)
    assert not list(log.directory.glob("*.deleted"))


def test_segments_that_an_older_version_dropped_move_the_log_start(broker):
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID))
    log.raise_log_start(5)
    manager.checkpoint_log_starts()
    second = log.segments.all[1].base_offset
    for path in log.directory.glob(f"{0:020d}.*"):
        path.unlink()
    manager.close(clean=False)
    manager = broker.start()
    assert ORDERS in manager.refused  # we write the start first: something was lost
    manager.close(clean=False)
    for sidecar in broker.paths[0].rglob("tidemark-checksums"):
        sidecar.unlink()
    assert broker.start().get(ORDERS).log_start_offset == second


def test_a_topic_that_just_dropped_its_tier_begins_at_its_first_segment(broker):
    broker.config = with_config(remote_storage_enable=True, local_retention_ms=1000)
    manager = broker.start()
    log = _fill(manager.create(*ORDERS, TOPIC_ID))
    log.set_copied_through(log.log_end_offset - 2, log.epochs.latest_epoch)
    assert manager.run_retention(NOW_MS + 5000)
    local_start = log.local_log_start_offset
    assert (log.log_start_offset, local_start > 0) == (0, True)
    manager.close(clean=False)  # before the tier has raised the log start
    broker.config = with_config(remote_log_delete_on_disable=True)
    log = broker.start().get(ORDERS)
    assert log.log_start_offset == local_start
