"""Where a life of the broker began is told by the log, whenever it was killed or lost power.

The tier holds what earlier lives announced against it (docs/decisions/before-the-validation.md).
"""

from contextlib import suppress
from pathlib import Path

import pytest

from local_log.file_names import EPOCH_CHECKPOINT
from local_log.log import tier_segments
from local_log.log.partition_log import PartitionLog
from runtime.disk import Disk
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.worlds.local_log import append, filled, open_log, with_config

TIERED = with_config(remote_storage_enable=True)


def begun(directory: Path, disk: Disk, end: int, epoch: int) -> PartitionLog:
    """The next life, after a kill; the chain notes its leader epoch before anything else."""
    log = open_log(
        directory, disk=disk, clean=False, config=TIERED, log_start=0, recovery_point=end
    )
    log.epochs.assign(epoch, log.log_end_offset)
    return log


def first_above(log: PartitionLog, epoch: int) -> int:
    return next(entry.start_offset for entry in log.epochs.entries() if entry.epoch > epoch)


@pytest.mark.parametrize("operations", [*range(1, 60), None])
def test_after_a_power_cut_at_any_step_a_new_epoch_begins_at_the_old_end(
    tmp_path: Path, operations: int | None
) -> None:
    log = filled(tmp_path, config=TIERED)
    end = log.log_end_offset
    log.close()
    disk = PowerCutDisk(tmp_path, SeededRng(operations or 0), operations=operations)
    with suppress(PowerCutError):
        for epoch in (7, 9):
            log = begun(tmp_path, disk, end, epoch)
            for _ in range(3):
                append(log, epoch=epoch)
            log.flush()
    disk.cut()
    log = begun(tmp_path, Disk(), end, 11)
    assert first_above(log, 0) == end
    assert log.log_end_offset >= end
    log.close()


@pytest.mark.parametrize("file", ["old", "lost"])
def test_a_chain_file_of_before_or_none_changes_nothing_of_it(tmp_path: Path, file: str) -> None:
    log = filled(tmp_path, config=TIERED)
    end = log.log_end_offset
    log.close()
    chain = tmp_path / EPOCH_CHECKPOINT
    before = chain.read_bytes()
    log = begun(tmp_path, Disk(), end, 7)
    append(log, epoch=7)
    log.close()
    chain.write_bytes(before)
    if file == "lost":
        chain.unlink()
    log = begun(tmp_path, Disk(), end, 9)
    assert first_above(log, 0) == end
    log.close()


@pytest.mark.parametrize("seed", range(40))
def test_a_segment_that_was_opened_for_copying_is_there_after_a_power_cut(
    tmp_path: Path, seed: int
) -> None:
    disk = PowerCutDisk(tmp_path, SeededRng(seed), operations=None)
    config = with_config(remote_storage_enable=True, segment_bytes=300)
    log = open_log(tmp_path, disk=disk, config=config, log_start=0, recovery_point=0)
    log.epochs.assign(3, 0)
    while len(log.segments.all) < 7:
        append(log, epoch=3)
    opened = tier_segments.closed_tail(log, 0, 4).segments
    for segment in opened:
        tier_segments.open_segment(log, segment.base_offset)
    disk.cut()
    log = open_log(tmp_path, clean=False, config=config, log_start=0, recovery_point=0)
    assert log.log_end_offset > opened[-1].last_offset
    log.close()
