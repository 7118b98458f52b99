"""A new segment whose files get their names while others ask of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from local_log.cleaner.log_facts import CleanerSettings, NotedLog, make_job
from local_log.cleaner.log_pass import LogPass
from local_log.log import retention
from local_log.log.cleaning_job import Group
from local_log.log.partition_log import PartitionLog
from runtime.disk import Disk
from tests.support.worlds.cleaned_logs import (
    COMPACTED,
    commit,
    end_transaction,
    open_compacted,
    put,
)
from tests.support.worlds.local_log import NOW_MS

CONFIG = replace(
    COMPACTED,
    cleanup_policy=frozenset({"compact", "delete"}),
    segment_bytes=900,
    retention_ms=10**9,
)


class RenamingDisk(Disk):
    """Between the answer to whether a file exists and the next question `meanwhile` happens."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None

    def exists(self, path: Path) -> bool:
        found = super().exists(path)
        meanwhile = self.meanwhile
        if found and meanwhile is not None and path.name.endswith(".swap"):
            self.meanwhile = None
            meanwhile()
        return found


def taken(path: Path, disk: Disk) -> PartitionLog:
    """Its first segment was cleaned, and its files have their names but one."""
    log = open_compacted(path, config=CONFIG, disk=disk)
    for number in range(20):
        fields = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
        put(log, (f"k{number % 3}", "x" * 90), at_ms=-1)
        put(log, ("aborted", "y"), at_ms=-1, base_sequence=number, **fields)  # type: ignore[arg-type]
        end_transaction(log, 5, commits=number % 2 == 0)
    commit(log)
    noted = NotedLog.of(log, None)
    log.flush()
    log.cleaning.begin()
    job = make_job(
        noted,
        noted.range(NOW_MS),
        b"",
        CleanerSettings(),
        number=1,
        token="t",
        now_ms=NOW_MS,
        disk=disk,
    )
    group = next(iter(LogPass(job, disk, lambda _: None).run()))
    assert isinstance(group, Group)
    log.cleaning.make_ready(group.old[0], "t")
    log.cleaning.take(group)
    return log


def test_a_file_that_gets_its_name_meanwhile_takes_nothing_offline(tmp_path: Path) -> None:
    disk = RenamingDisk()
    log = taken(tmp_path / "orders-0", disk)
    first = log.segments.all[0]
    first.set_max_timestamp(-1, 0)
    assert first.is_moving
    disk.meanwhile = log.cleaning.put_in_place
    retention.learn_ages(log, NOW_MS)
    assert not log.is_offline
    disk.meanwhile = None
    assert first.modified_ms() > 0


def test_a_flush_finds_a_segment_whose_files_have_no_names_yet(tmp_path: Path) -> None:
    log = taken(tmp_path / "orders-0", Disk())
    while log.cleaning._rename_one():
        pass
    log.segments.all[0].fsync()
    log.cleaning.put_in_place()
    log.segments.all[0].fsync()


def test_the_age_of_a_moving_segment_is_known_before_and_after(tmp_path: Path) -> None:
    log = taken(tmp_path / "orders-0", Disk())
    first = log.segments.all[0]
    before = first.modified_ms()
    log.cleaning.put_in_place()
    assert (first.is_moving, first.modified_ms()) == (True, before)
    log.cleaning.settle()
    assert (first.is_moving, first.modified_ms()) == (False, before)
