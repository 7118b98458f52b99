"""A pass of the cleaner that ends anywhere: by a kill or by a power cut, at each operation."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from local_log.partition_log import PartitionLog
from local_log.segment_files import CLEANED, SWAP
from runtime.sim.dice import SeededDice
from runtime.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.worlds.cleaned_logs import (
    COMPACTED,
    clean,
    commit,
    end_transaction,
    open_compacted,
    put,
    table_of,
)
from tests.support.worlds.local_log import NOW_MS

MERGING = replace(COMPACTED, segment_bytes=4000, delete_retention_ms=0)
LATER_MS = NOW_MS + 10
OPERATIONS = 115


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
    for operation in range(1, OPERATIONS):
        yield pytest.param(operation, True, 0, id=f"kill-{operation}")
    for operation in range(1, OPERATIONS, 2):
        for seed in range(2):
            yield pytest.param(operation, False, seed, id=f"cut-{operation}-{seed}")


@pytest.mark.parametrize(("operation", "kills", "seed"), list(kills_and_cuts()))
def test_the_log_is_whole_and_the_same_wherever_a_pass_ends(
    tmp_path: Path, operation: int, kills: bool, seed: int
) -> None:
    disk = PowerCutDisk(tmp_path, SeededDice(seed))
    path = tmp_path / "orders-0"
    log = written(path, disk)
    disk.fsync_path(tmp_path)
    before, count, end = table_of(log), log.segment_count, log.log_end_offset
    disk.begin(operation, kills=kills)
    try:
        clean(log, now_ms=LATER_MS)
    except PowerCutError:
        pass
    else:
        assert log.segment_count < count
        disk.cut()
    disk.kill()
    again = opened(path, log)
    assert table_of(again) == before
    assert again.log_end_offset == end
    assert not [one for one in path.iterdir() if one.name.endswith((CLEANED, SWAP))]
    # What was left half done is done now.
    clean(again, now_ms=LATER_MS)
    assert again.segment_count < count
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
