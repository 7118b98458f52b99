"""No small file of a partition or of a log directory costs records when it is lost or damaged."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.files.meta_properties import dump_partition_metadata, parse_partition_metadata
from kafka_protocol.types import TopicPartition
from local_log.checked_files import SIDECAR
from local_log.errors import KafkaStorageError
from local_log.file_names import PARTITION_METADATA
from local_log.manager.log_dir import CLEAN_SHUTDOWN, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from local_log.manager.placement import TargetReplica
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.local_log import append
from tests.support.worlds.log_manager import (
    BILLS,
    IDS,
    ORDERS,
    ORDERS_1,
    Host,
    make,
    names_in,
    record_bytes,
)

CHECKPOINTS = [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS]
METADATA = dump_partition_metadata(IDS["orders"])
GONE = b"g" * 16
Damage = Callable[[Path], object]


def flip(bit: int) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)

    return damage


def stopped(tmp_path: Path, dirs: int = 1, *partitions: TopicPartition, clean: bool = True) -> Host:
    """A host whose partitions were assigned to the directories they lie in."""
    host = Host(tmp_path, dirs)
    manager = host.start()
    for log in make(manager, *(partitions or (ORDERS,))):
        directory = manager.directory_of(log.topic_partition)
        assert directory is not None
        host.assign(log.topic_partition, index=host.paths.index(directory.path))
    for name in (manager.checkpoint_log_starts, manager.checkpoint_recovery_points):
        name()
    manager.checkpoint_high_watermarks()
    manager.close(clean=clean)
    return host


def assert_whole(host: Host, *partitions: TopicPartition, **load: object) -> None:
    """Every record is served, twice: the first start must not spoil the second."""
    for _ in range(2):
        before = record_bytes(host.root)
        manager = host.start(**load)
        assert {log.topic_partition for log in manager.all()} == set(partitions)
        for log in manager.all():
            assert (log.log_start_offset, log.log_end_offset) == (0, 60)
            data = (log.directory / PARTITION_METADATA).read_bytes()
            assert parse_partition_metadata(data) == IDS[log.topic_partition.topic]
        assert manager.refused == {}
        assert record_bytes(host.root) == before
        manager.close(clean=False)


# -- partition.metadata


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("with_sidecar", [True, False])
@pytest.mark.parametrize("is_assigned", [True, False])
@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda p: p.write_bytes(b""), lambda p: p.write_bytes(METADATA[:20])]
)
def test_a_lost_topic_id_costs_nothing(
    tmp_path: Path, damage: Damage, is_assigned: bool, with_sidecar: bool, clean: bool
) -> None:
    host = stopped(tmp_path, clean=clean)
    if not is_assigned:
        host.unassign(ORDERS)
    if not with_sidecar:
        (host.directory() / SIDECAR).unlink()
    damage(host.directory() / PARTITION_METADATA)
    if is_assigned or with_sidecar:
        assert_whole(host, ORDERS)
        return
    # Nothing says whose it is, and the metadata never said that it is here: perhaps a topic that
    # had the name before. It is put aside whole.
    before = record_bytes(host.root)
    manager = host.start()
    assert manager.all() == []
    assert len(list(host.root.glob("*/*-stray"))) == 1
    assert record_bytes(host.root) == before
    manager.close(clean=False)


def test_each_flipped_bit_of_a_topic_id_costs_nothing(tmp_path: Path) -> None:
    host = stopped(tmp_path)
    file = host.directory() / PARTITION_METADATA
    for bit in range(8 * len(METADATA)):
        flip(bit)(file)
        manager = host.start()
        assert [log.log_end_offset for log in manager.all()] == [60]
        manager.close()
        assert file.read_bytes() == METADATA


def test_each_flipped_bit_of_a_topic_id_without_a_sidecar_deletes_nothing(tmp_path: Path) -> None:
    """Then a flipped bit may be another topic's id: nothing but the metadata knows better."""
    host = stopped(tmp_path)
    for bit in range(8 * len(METADATA)):
        (host.directory() / SIDECAR).unlink(missing_ok=True)
        flip(bit)(host.directory() / PARTITION_METADATA)
        before = record_bytes(tmp_path)
        manager = host.start()
        assert manager.get(ORDERS) or ORDERS in manager.refused
        assert names_in(host.paths[0]) >= {"orders-0"}
        assert record_bytes(tmp_path) == before
        manager.close()
        (host.directory() / PARTITION_METADATA).write_bytes(METADATA)


def wrong_id(host: Host) -> None:
    (host.directory() / SIDECAR).unlink()
    (host.directory() / PARTITION_METADATA).write_bytes(dump_partition_metadata(b"x" * 16))


def test_a_wrong_topic_id_where_the_metadata_assigned_it_is_offline(tmp_path: Path) -> None:
    host = stopped(tmp_path)
    wrong_id(host)
    before = record_bytes(tmp_path)
    manager = host.start()
    assert manager.get(ORDERS) is None
    assert "those of another partition" in manager.refused[ORDERS].reason
    with pytest.raises(KafkaStorageError, match="those of another partition"):
        manager.create(*ORDERS, IDS["orders"])
    assert names_in(host.paths[0]) >= {"orders-0"}
    assert record_bytes(tmp_path) == before


def test_a_wrong_topic_id_that_was_never_assigned_is_put_aside(tmp_path: Path) -> None:
    host = stopped(tmp_path)
    host.unassign(ORDERS)
    wrong_id(host)
    before = record_bytes(tmp_path)
    manager = host.start()
    assert manager.refused == {}
    assert manager.create(*ORDERS, IDS["orders"]).log_end_offset == 0
    (aside,) = [name for name in names_in(host.paths[0]) if name.endswith("-stray")]
    host.scheduler.advance(10**7)
    manager.close()
    host.start()
    assert record_bytes(host.paths[0] / aside) == before


@pytest.mark.parametrize("is_wanted", [False, True], ids=["gone", "made again"])
def test_files_of_a_topic_whose_removal_was_read_are_deleted(
    tmp_path: Path, *, is_wanted: bool
) -> None:
    host = stopped(tmp_path)
    host.wanted = {}
    if is_wanted:
        other = TargetReplica(b"n" * 16, 0, host.id_of(1), was_never_served=False)
        host.wanted = {ORDERS: other}
    manager = host.start(removed_topics={IDS["orders"]})
    assert (manager.all(), manager.refused) == ([], {})
    (going,) = [name for name in names_in(host.paths[0]) if name.startswith("orders")]
    assert going.endswith("-delete")
    host.scheduler.advance(1)
    assert not (host.paths[0] / going).exists()


@pytest.mark.parametrize("removed", [set(), {b"?" * 16}], ids=["none", "another"])
def test_files_of_a_topic_whose_removal_was_not_read_stay(
    tmp_path: Path, removed: set[bytes]
) -> None:
    host = stopped(tmp_path)
    host.wanted = {}
    before = record_bytes(tmp_path)
    host.start(removed_topics=removed)
    host.scheduler.advance(10**7)
    (aside,) = [name for name in names_in(host.paths[0]) if name.startswith("orders")]
    assert aside.endswith("-stray")
    assert record_bytes(host.paths[0] / aside) == before


@pytest.mark.parametrize("has_sidecar", [False, True])
def test_files_that_metadata_assign_here_are_never_of_a_removed_topic(
    tmp_path: Path, *, has_sidecar: bool
) -> None:
    """One stale file is no reason to delete what the metadata assign to this directory."""
    host = stopped(tmp_path)
    if has_sidecar:
        (host.directory() / PARTITION_METADATA).write_bytes(dump_partition_metadata(b"x" * 16))
    else:
        wrong_id(host)
    before = record_bytes(tmp_path)
    host.start(removed_topics={b"x" * 16})
    host.scheduler.advance(10**7)
    assert record_bytes(tmp_path) == before
    assert names_in(host.paths[0]) >= {"orders-0"}


def with_a_removed_copy(tmp_path: Path) -> Host:
    """A second directory has a partition of the same name, of a topic that was removed."""
    host = stopped(tmp_path, 2)
    home, other = (host.directory(index=index) for index in (0, 1))
    if other.exists():
        home, other = other, home
    shutil.copytree(home, other)
    (other / SIDECAR).unlink()
    (other / PARTITION_METADATA).write_bytes(dump_partition_metadata(GONE))
    return host


def test_removed_files_beside_a_partition_that_is_opened_are_deleted(tmp_path: Path) -> None:
    host = with_a_removed_copy(tmp_path)
    manager = host.start(removed_topics={GONE})
    assert [log.log_end_offset for log in manager.all()] == [60]
    host.scheduler.advance(1)
    found = list(tmp_path.glob("*/orders-0*"))
    assert found == [log.directory for log in manager.all()]


def test_removed_files_beside_a_partition_that_is_offline_are_deleted(tmp_path: Path) -> None:
    """They are none of its files: what is no longer there cannot be taken away with them."""
    host = with_a_removed_copy(tmp_path)
    host.wanted = {ORDERS: TargetReplica(IDS["orders"], 0, b"?" * 16)}
    manager = host.start(removed_topics={GONE})
    assert set(manager.refused) == {ORDERS}
    host.scheduler.advance(1)
    assert len(list(tmp_path.glob("*/orders-0*"))) == 1
    assert manager.delete(ORDERS) == 1
    assert len(manager.online_dirs()) == 2


def test_of_what_is_renamed_away_what_is_kept_is_named(tmp_path: Path) -> None:
    host = stopped(tmp_path, 1, ORDERS, BILLS)
    host.wanted = {}
    manager = host.start(set_aside=False, removed_topics={IDS["orders"]})
    (aside,) = manager.set_aside()
    assert aside.name.startswith("bills-0.")


def test_a_wrong_topic_id_of_before_the_rule_is_offline(tmp_path: Path) -> None:
    host = stopped(tmp_path)
    host.wanted = {ORDERS: TargetReplica(IDS["orders"], 0, None, was_never_served=False)}
    wrong_id(host)
    manager = host.start()
    assert "those of another topic" in manager.refused[ORDERS].reason
    assert names_in(host.paths[0]) >= {"orders-0"}


# -- whole directories


def test_directories_of_two_partitions_that_were_swapped_are_offline(tmp_path: Path) -> None:
    host = stopped(tmp_path, 1, ORDERS, ORDERS_1, BILLS)
    for one, other in ((ORDERS, ORDERS_1), (ORDERS, BILLS)):
        swap(host.directory(one), host.directory(other))
        before = record_bytes(tmp_path)
        manager = host.start()
        assert manager.refused.keys() == {one, other}
        assert record_bytes(tmp_path) == before
        manager.close()
        swap(host.directory(one), host.directory(other))
    assert_whole(host, ORDERS, ORDERS_1, BILLS)


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def test_a_copy_in_the_other_directory_is_put_aside(tmp_path: Path) -> None:
    host = stopped(tmp_path, 2)
    home = 0 if host.directory(index=0).exists() else 1
    shutil.copytree(host.directory(index=home), host.directory(index=1 - home))
    assert_whole(host, ORDERS)
    assert not host.directory(index=1 - home).exists()
    assert any(name.endswith("-stray") for name in names_in(host.paths[1 - home]))


def test_two_copies_that_the_metadata_cannot_tell_apart_are_offline(tmp_path: Path) -> None:
    host = stopped(tmp_path, 2)
    host.unassign(ORDERS)
    home = 0 if host.directory(index=0).exists() else 1
    shutil.copytree(host.directory(index=home), host.directory(index=1 - home))
    before = record_bytes(tmp_path)
    manager = host.start()
    assert "leave one" in manager.refused[ORDERS].reason
    assert set(manager.refused[ORDERS].directories) == set(manager.dirs)
    manager.close()
    assert record_bytes(tmp_path) == before
    shutil.rmtree(host.directory(index=1 - home))
    assert_whole(host, ORDERS)


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_partition_that_was_moved_by_hand_keeps_what_was_known_of_it(
    tmp_path: Path, is_noted: bool
) -> None:
    """Also when the start after the move is killed before or after the metadata know of it."""
    host = stopped(tmp_path, 2)
    manager = host.start()
    manager.get(ORDERS).raise_log_start(5)
    assert manager.keep_log_starts([ORDERS]) == {}
    manager.close(clean=False)
    home = 0 if host.directory(index=0).exists() else 1
    host.directory(index=home).rename(host.directory(index=1 - home))
    for name in CHECKPOINTS[::2]:
        (host.paths[home] / name).unlink()
    for _ in range(3):
        manager = host.start(set_aside=is_noted)
        log = manager.get(ORDERS)
        assert (log.log_start_offset, log.log_end_offset) == (5, 60)
        if is_noted:
            host.assign(ORDERS, index=1 - home)
            assert ORDERS not in host.checkpoint(LOG_STARTS, home)
        manager.close(clean=False)
    assert host.checkpoint(LOG_STARTS, 1 - home) == {ORDERS: 5}


def test_a_directory_that_is_lost_never_begins_its_partitions_anew(tmp_path: Path) -> None:
    host = stopped(tmp_path, 2)
    home = 0 if host.directory(index=0).exists() else 1
    manager = host.manager()
    manager.put_offline(host.paths[home], OSError(5, "broken"))
    assert host.wanted is not None
    manager.load(host.wanted.get)
    assert manager.get(ORDERS) is None
    manager.close()
    assert_whole(host, ORDERS)


# -- sidecars


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [Path.unlink, lambda p: p.write_bytes(b""), flip(77)])
def test_a_lost_sidecar_costs_nothing_and_is_made_again(
    tmp_path: Path, damage: Damage, clean: bool
) -> None:
    host = stopped(tmp_path, clean=clean)
    damage(host.directory() / SIDECAR)
    damage(host.paths[0] / SIDECAR)
    assert_whole(host, ORDERS)
    assert b"owner b29vb29vb29vb29vb29vbw 0" in (host.directory() / SIDECAR).read_bytes()


def test_the_sidecar_of_another_topic_costs_nothing(tmp_path: Path) -> None:
    host = stopped(tmp_path, 1, ORDERS, BILLS)
    shutil.copy(host.directory(BILLS) / SIDECAR, host.directory(ORDERS) / SIDECAR)
    assert_whole(host, ORDERS, BILLS)


def test_the_sidecar_of_another_partition_is_offline_until_it_is_removed(tmp_path: Path) -> None:
    """Its topic id is the right one: whose records these are cannot be told."""
    host = stopped(tmp_path, 1, ORDERS, ORDERS_1)
    shutil.copy(host.directory(ORDERS_1) / SIDECAR, host.directory(ORDERS) / SIDECAR)
    manager = host.start()
    assert manager.refused.keys() == {ORDERS}
    manager.close()
    (host.directory(ORDERS) / SIDECAR).unlink()
    assert_whole(host, ORDERS, ORDERS_1)


def test_where_somebody_else_wrote_last_sidecars_are_not_believed(tmp_path: Path) -> None:
    host = stopped(tmp_path, 1, ORDERS, ORDERS_1)
    shutil.copy(host.directory(ORDERS_1) / SIDECAR, host.directory(ORDERS) / SIDECAR)
    assert_whole(host, ORDERS, ORDERS_1, compare=False)


def test_where_somebody_else_wrote_last_may_be_one_directory_alone(tmp_path: Path) -> None:
    """What was deleted there came back if its log start counted as damaged."""
    host = stopped(tmp_path, 2, ORDERS, ORDERS_1)
    for tp in (ORDERS, ORDERS_1):
        for path in host.paths:
            if (path / f"{tp.topic}-{tp.partition}").exists():
                (path / LOG_STARTS).write_bytes(offset_checkpoint.dump({tp: 30}))
    for theirs in ([path for path in host.paths if (path / "orders-0").exists()], []):
        manager = host.start(without_sidecars=theirs)
        starts = {log.topic_partition: log.log_start_offset for log in manager.all()}
        assert starts == {ORDERS: 30, ORDERS_1: 0}
        manager.close(clean=False)


# -- clean mark


BROKEN_MARKS = [b"", b"{", b'{"version":0}', b"[]", b"\xff"]


@pytest.mark.parametrize(
    ("mark", "last_epoch"),
    [
        (b'{"version":0,"brokerEpoch":41}', 42),
        *((mark, epoch) for mark in BROKEN_MARKS for epoch in (None, -1, 42)),
    ],
)
def test_a_mark_that_proves_nothing_means_recovery(
    tmp_path: Path, mark: bytes, last_epoch: int | None
) -> None:
    """Also where nothing is known of the last life, so that only the mark itself can tell."""
    host = stopped(tmp_path)
    (host.paths[0] / CLEAN_SHUTDOWN).write_bytes(mark)
    manager = host.start(last_broker_epoch=last_epoch)
    assert [directory.was_clean for directory in manager.dirs] == [False]
    assert not (host.paths[0] / CLEAN_SHUTDOWN).exists()
    assert [log.log_end_offset for log in manager.all()] == [60]


def test_a_mark_of_another_incarnation_counts_only_without_a_comparison(
    tmp_path: Path,
) -> None:
    host = stopped(tmp_path)
    (host.paths[0] / CLEAN_SHUTDOWN).write_bytes(b'{"version":0,"brokerEpoch":41}')
    manager = host.start(last_broker_epoch=42, compare=False)
    assert [directory.was_clean for directory in manager.dirs] == [True]


def test_there_is_no_clean_mark_where_a_log_could_not_be_flushed(tmp_path: Path) -> None:
    """Used-up descriptors take no directory offline: the mark alone would be wrong."""
    host = stopped(tmp_path, 1, ORDERS, BILLS)
    manager = host.start()
    append(manager.get(ORDERS))
    assert isinstance(host.disk, FaultyDisk)
    host.disk.fail(["rename"], path_part=f"{host.directory()}/", error=errno.EMFILE)
    manager.close()
    assert [directory.works for directory in manager.dirs] == [True]
    assert not (host.paths[0] / CLEAN_SHUTDOWN).exists()


def test_there_is_no_clean_mark_while_a_partition_is_refused(tmp_path: Path) -> None:
    host = stopped(tmp_path, 1, ORDERS, BILLS)
    wrong_id(host)
    for _ in range(2):
        manager = host.start()
        assert manager.refused.keys() == {ORDERS}
        append(manager.get(BILLS))
        manager.close()
        assert not (host.paths[0] / CLEAN_SHUTDOWN).exists()
    (host.directory() / PARTITION_METADATA).write_bytes(METADATA)
    manager = host.start()
    assert {log.topic_partition: log.log_end_offset for log in manager.all()} == {
        ORDERS: 60,
        BILLS: 62,
    }
    manager.close()
    assert (host.paths[0] / CLEAN_SHUTDOWN).exists()
