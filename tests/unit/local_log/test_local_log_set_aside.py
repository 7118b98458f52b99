"""What recovery takes out of a log: in which order, durably, and kept whole."""

from pathlib import Path

import pytest

from kafka_protocol.records.batch import iter_batches
from local_log.log.partition_log import PartitionLog
from local_log.refusal import FaultKind
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.power_cut_disk import PowerCutDisk
from tests.support.sim.rng import SeededRng
from tests.support.worlds.local_log import accept, append, files_of, filled, open_log, refused

SEEDS = range(10)


@pytest.fixture
def killed(tmp_path: Path) -> PartitionLog:
    log = filled(tmp_path)
    log.close(clean=False)
    assert len(log.segments.all) > 4
    return log


def _bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def _path(log: PartitionLog, number: int) -> Path:
    return log.segments.all[number].path(".log")


def _record_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log*"))


def test_a_kill_while_segments_are_set_aside_keeps_the_start_of_the_log(
    killed: PartitionLog, tmp_path: Path
) -> None:
    """A later segment without the ones before it would be taken for a hole, or for the log."""
    before = _bases(tmp_path)
    _path(killed, 1).unlink()
    kept, start = [0, *before[2:]], files_of(tmp_path)
    left = []
    for renames in range(len(kept)):
        for path in tmp_path.iterdir():
            path.unlink()
        for name, data in start.items():
            (tmp_path / name).write_bytes(data)
        disk = FaultyDisk()
        disk.fail(["rename"], path_part=".cut", after=renames)
        try:
            open_log(tmp_path, clean=False, disk=disk)
        except OSError:
            left.append(_bases(tmp_path))
    assert left == [kept[: len(kept) - renames] for renames in range(len(kept) - 1)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_segment_that_was_set_aside_does_not_come_back(
    killed: PartitionLog, tmp_path: Path, seed: int
) -> None:
    """Its batches would follow those that were written at the same offsets since."""
    end = killed.segments.all[1].base_offset
    _path(killed, 1).unlink()
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    log = open_log(tmp_path, clean=False, disk=disk)
    assert log.log_end_offset == end
    disk.cut()
    assert _bases(tmp_path) == [0]
    assert len(list(tmp_path.glob("*.cut"))) == len(killed.segments.all) - 2


@pytest.mark.parametrize("point", [0, 1])
def test_what_is_cut_off_a_torn_closed_segment_is_kept(
    killed: PartitionLog, tmp_path: Path, point: int
) -> None:
    """Only the last segment can end in a batch that nobody was answered for."""
    path = _path(killed, 1)
    position, torn = list(iter_batches(path.read_bytes()))[-1]
    path.write_bytes(path.read_bytes()[:-3])
    before, tail = _record_bytes(tmp_path), path.read_bytes()[position:]
    log = open_log(tmp_path, clean=False, recovery_point=point)
    assert log.log_end_offset == torn.base_offset
    assert (tmp_path / f"{path.name}.1.{position}.cut").read_bytes() == tail
    assert _record_bytes(tmp_path) == before


@pytest.mark.parametrize("clean", [True, False])
def test_a_flushed_segment_that_reaches_into_the_next_one_is_refused(
    killed: PartitionLog, tmp_path: Path, clean: bool
) -> None:
    """It ends with a whole batch, which its offset index leads to: only its offsets are wrong."""
    second, third = _path(killed, 1), _path(killed, 2)
    following = third.read_bytes()
    _, first = next(iter_batches(following))
    with second.open("ab") as file:
        file.write(following[: first.size_bytes])
    end = killed.log_end_offset
    facts = refused(tmp_path, clean=clean, recovery_point=end)
    assert [fault.kind for fault in facts.faults] == [FaultKind.OVERLAP]
    accept(tmp_path, facts)
    log = open_log(tmp_path, clean=clean, recovery_point=end)
    offsets = [
        offset
        for segment in log.segments.all
        for _, header in segment.batches(0)
        for offset in range(header.base_offset, header.next_offset)
    ]
    assert offsets == list(range(end))
    assert append(log).first_offset == end
