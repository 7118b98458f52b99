"""A pass of the cleaner that ends anywhere: by a kill or by a power cut, at each operation."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from local_log.cleaner.log_facts import CleanerSettings, NotedLog, make_job
from local_log.cleaner.log_pass import LogPass
from local_log.file_names import CLEANED, SWAP
from local_log.log.cleaning import PassSpoiltError
from local_log.log.cleaning_job import Group
from local_log.log.partition_log import PartitionLog
from tests.support.rounds import rounds
from tests.support.sim.dice import SeededDice
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.worlds.cleaned_logs import (
    COMPACTED,
    batches_of,
    clean,
    commit,
    end_transaction,
    open_compacted,
    put,
    table_of,
)
from tests.support.worlds.local_log import NOW_MS

pytestmark = pytest.mark.lasts(seconds=8)

MERGING = replace(COMPACTED, segment_bytes=4000, delete_retention_ms=0)
LATER_MS = NOW_MS + 10
OPERATIONS = 115
APART = ((98, 2), (100, 9), (102, 2))
"""Cuts that keep the names which old files got, and lose those of the new ones, if they can."""


def written(path: Path, disk: PowerCutDisk) -> PartitionLog:
    """Segments that become fewer, with aborted records, tombstones and a producer's last batch."""
    log = open_compacted(path, config=MERGING, disk=disk)
    for number in range(40):
        put(log, (f"k{number % 7}", "v" * 60), (f"t{number % 3}", None if number % 2 else "x"))
        if number % 4 == 0:
            fields = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
            put(log, (f"k{number % 5}", "w"), base_sequence=number // 4, **fields)  # type: ignore[arg-type]
            end_transaction(log, 5, commits=number % 8 == 0)
        if number % 8 == 7:
            log.roll(NOW_MS)
    log.flush()
    commit(log)
    return log


def opened(path: Path, log: PartitionLog) -> PartitionLog:
    """As the next start does after a kill: what was flushed is known."""
    point = log.recovery_point
    return open_compacted(
        path,
        config=MERGING,
        clean=False,
        recovery_point=point,
        high_watermark=point,
        was_compacted=True,
    )


def kills_and_cuts() -> Iterator[object]:
    step = rounds("TIDEMARK_CLEANER_STEP", quick=3, full=1)
    for operation in range(1, OPERATIONS, step):
        yield pytest.param(operation, True, 0, id=f"kill-{operation}")
    for operation in range(1, OPERATIONS, step):
        for seed in range(2):
            yield pytest.param(operation, False, seed, id=f"cut-{operation}-{seed}")
    for operation, seed in APART:
        yield pytest.param(operation, False, seed, id=f"apart-{operation}-{seed}")


@pytest.mark.rounds(seconds=20)
@pytest.mark.parametrize(("operation", "kills", "seed"), list(kills_and_cuts()))
def test_the_log_is_whole_and_the_same_wherever_a_pass_ends(
    tmp_path: Path, operation: int, kills: bool, seed: int
) -> None:
    disk = PowerCutDisk(tmp_path, SeededDice(seed))
    path = tmp_path / "orders-0"
    log = written(path, disk)
    disk.fsync_path(tmp_path)
    before, count, end = table_of(log), len(log.segments.all), log.log_end_offset
    disk.begin(operation, kills=kills)
    try:
        clean(log, now_ms=LATER_MS)
    except PowerCutError:
        pass
    else:
        assert len(log.segments.all) < count
        disk.cut()
    disk.kill()
    again = opened(path, log)
    assert table_of(again) == before
    assert again.log_end_offset == end
    assert_each_is_found(again)
    assert not [one for one in path.iterdir() if one.name.endswith((CLEANED, SWAP))]
    # What was left half done is done now.
    clean(again, now_ms=LATER_MS)
    assert len(again.segments.all) < count
    assert table_of(again) == before
    again.close()
    assert table_of(opened(path, again)) == before


def test_the_operations_of_a_pass_are_as_many_as_are_tried(tmp_path: Path) -> None:
    disk = PowerCutDisk(tmp_path, SeededDice(1))
    log = written(tmp_path / "orders-0", disk)
    disk.begin(2 * OPERATIONS)
    clean(log, now_ms=LATER_MS)
    assert disk._left is not None
    assert 2 * OPERATIONS - disk._left in range(OPERATIONS - 20, OPERATIONS)


@pytest.mark.parametrize("operation", [*range(1, 12, 2), 100])
@pytest.mark.parametrize("seed", range(3))
def test_what_a_truncation_takes_back_does_not_come_back(
    tmp_path: Path, operation: int, seed: int
) -> None:
    """The new segment has its next name, and reaches beyond the end that the log gets."""
    disk = PowerCutDisk(tmp_path, SeededDice(seed))
    path = tmp_path / "orders-0"
    log = written(path, disk)
    disk.fsync_path(tmp_path)
    noted = NotedLog.of(log, None)
    job = make_job(
        noted,
        noted.range(LATER_MS),
        b"",
        CleanerSettings(),
        number=1,
        token="t",
        now_ms=LATER_MS,
        disk=disk,
    )
    log.cleaning.begin()
    group = next(answer for answer in LogPass(job, disk, lambda _: None).run())
    assert isinstance(group, Group)
    log.cleaning.make_ready(group.old[0], "t")
    cut_at = log.segments.all[1].base_offset
    disk.begin(operation)
    with suppress(PowerCutError):
        log.truncate_to(cut_at)
        assert log.log_end_offset == cut_at
        with pytest.raises(PassSpoiltError):
            log.cleaning.take(group)
    is_truncated = not disk.is_off
    assert is_truncated == (operation == 100)
    disk.cut()
    point = log.recovery_point
    again = open_compacted(
        path, config=MERGING, clean=False, recovery_point=min(point, cut_at), was_compacted=True
    )
    if is_truncated:
        assert again.log_end_offset == cut_at
    assert not [one for one in path.iterdir() if one.name.endswith((CLEANED, SWAP))]
    ends = [header.next_offset for header, _ in batches_of(again)]
    assert ends == sorted(set(ends))


def test_an_index_of_a_swap_without_its_log_is_not_taken_over(tmp_path: Path) -> None:
    """A cut may keep the new name of an index and lose that of the log: it is of another log."""
    log = written(tmp_path / "orders-0", PowerCutDisk(tmp_path, SeededDice(1)))
    before, base = table_of(log), log.segments.all[1].base_offset
    log.close(clean=False)
    for suffix in (".index", ".timeindex", ".txnindex"):
        path = tmp_path / "orders-0" / f"{base:020}{suffix}{SWAP}"
        path.write_bytes(bytes(24))
    again = opened(tmp_path / "orders-0", log)
    assert table_of(again) == before
    assert not list((tmp_path / "orders-0").glob(f"*{SWAP}"))
    assert_each_is_found(again)


def assert_each_is_found(log: PartitionLog) -> None:
    """The indexes lead to each batch."""
    for header, _ in batches_of(log):
        found = log.segments.all[segment_index(log, header.base_offset)].find_batch(
            header.last_offset
        )
        assert found is not None
        assert found[1].base_offset == header.base_offset


def segment_index(log: PartitionLog, offset: int) -> int:
    return max(n for n, segment in enumerate(log.segments.all) if segment.base_offset <= offset)
