"""A log that stands damage: what is damaged is lost and named, all else is served."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from kafka_protocol.records.records import iter_records
from kafka_protocol.types import OFFSETS_TOPIC, TopicPartition
from local_log.config import LogConfig
from local_log.errors import LogRefused
from local_log.log.partition_log import PartitionLog
from local_log.manager.placement import TargetReplica
from local_log.segment.reading import is_filler
from runtime.disk import Disk
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.power_cut_disk import PowerCutDisk
from tests.support.sim.rng import SeededRng
from tests.support.worlds.local_log import SMALL, append, filled, open_log, with_config
from tests.support.worlds.log_manager import Host

COMPACTED: Final = with_config(SMALL, cleanup_policy=frozenset({"compact"}))
SEEDS = range(4)
Damage = Callable[[Path, list[int], int], object]


def put(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def without_indexes(path: Path, batches: list[int], number: int) -> None:
    path.with_suffix(".index").write_bytes(b"\7" * 24)
    path.with_suffix(".timeindex").unlink()
    put(path, batches[number] + 16, b"\7")


DAMAGES: Mapping[str, tuple[Damage, int]] = {
    # And how many batches may be lost by it.
    "magic": (lambda path, at, n: put(path, at[n] + 16, b"\7"), 1),
    "a long length": (lambda path, at, n: put(path, at[n] + 8, b"\x7f\xff\xff\xff"), 1),
    "a short length": (lambda path, at, n: put(path, at[n] + 8, b"\0\0\0\1"), 1),
    "a base offset below": (lambda path, at, n: put(path, at[n], bytes(8)), 0),
    "a base offset far above": (lambda path, at, n: put(path, at[n], b"\0\0\1" + bytes(5)), 0),
    "garbage": (lambda path, at, n: put(path, at[n] + 5, os.urandom(300)), 4),
    "zeros": (lambda path, at, n: put(path, at[n] + 5, bytes(300)), 4),
    "a cut": (lambda path, at, n: os.truncate(path, at[n] + 20), 99),
    "indexes, too": (without_indexes, 1),
}
# What the start knows: recovery point and high watermark, of the log's end, and a clean stop.
STARTS: Mapping[str, tuple[int, int, bool]] = {
    "clean": (1, 1, True),
    "killed, all flushed": (1, 1, False),
    "killed, nothing flushed": (0, 0, False),
}


def known(log_end: int, start: str) -> dict[str, object]:
    point, high_watermark, clean = STARTS[start]
    return {
        "recovery_point": point * log_end,
        "high_watermark": high_watermark * log_end,
        "clean": clean,
    }


def made(directory: Path) -> tuple[int, list[Path], list[list[int]]]:
    """A log of several segments: its end, their files, and where their batches begin."""
    log = filled(directory, config=COMPACTED)
    paths = [segment.path(".log") for segment in log.segments.all]
    places = [[at for at, _ in segment.batches(0)] for segment in log.segments.all]
    end = log.log_end_offset
    log.close()
    assert len(paths) > 3
    return end, paths, places


def offsets(log: PartitionLog) -> list[int]:
    """Offsets of all records that are there."""
    return [
        record.offset
        for segment in log.segments.all
        for at, header in segment.batches(0)
        for record in iter_records(segment.read_bytes(at, header.size_bytes))
    ]


def salvaged(directory: Path, disk: Disk | None = None, **facts: object) -> PartitionLog:
    return open_log(directory, config=COMPACTED, disk=disk, salvages=True, **facts)


@pytest.mark.parametrize("start", list(STARTS))
@pytest.mark.parametrize(("segment", "number"), [(0, 0), (1, -1), (-1, 2)])
@pytest.mark.parametrize("damage", list(DAMAGES))
def test_damage_costs_what_is_damaged_and_never_the_log(
    tmp_path: Path, damage: str, segment: int, number: int, start: str
) -> None:
    end, paths, places = made(tmp_path)
    path, batches = paths[segment], places[segment]
    before = path.read_bytes()
    do, lost_max = DAMAGES[damage]
    do(path, batches, number)
    damaged = path.read_bytes()
    log = salvaged(tmp_path, **known(end, start))
    if path.read_bytes()[: len(damaged)] == damaged:
        return  # not looked at by this start: those who read it skip it
    lost = len(set(range(end)) - set(offsets(log)))
    in_segment = 3 * len(batches)  # a batch has three records at most
    assert lost <= min(3 * lost_max, in_segment)
    # No offset is given twice, but for a tail of which nobody can know.
    if start != "killed, nothing flushed":
        assert log.log_end_offset == end
    # Whatever left the log is beside it, from the damage on.
    if log.damages:
        assert log.damages[0].file == path.name
        [copy] = tmp_path.glob(f"{path.name}.*.cut")
        position = log.damages[0].damage.position
        assert copy.name.split(".")[-2] == str(position)
        assert copy.read_bytes() == damaged[position:]
        assert path.read_bytes()[:position] == before[:position]
    # Nothing is wrong any more, and the log continues.
    append(log)
    following = log.log_end_offset
    log.update_high_watermark(following)
    kept = offsets(log)
    log.close()
    again = salvaged(tmp_path, recovery_point=following, high_watermark=following)
    assert not again.damages
    assert offsets(again) == kept


def test_other_logs_are_refused_as_ever(tmp_path: Path) -> None:
    end, paths, places = made(tmp_path)
    DAMAGES["magic"][0](paths[1], places[1], 0)
    before = paths[1].read_bytes()
    with pytest.raises(LogRefused):
        open_log(tmp_path, config=COMPACTED, **known(end, "clean"))
    assert paths[1].read_bytes() == before


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_sound_log_that_is_too_short_is_refused(tmp_path: Path, is_lost: bool) -> None:
    """It may be an old copy, or its file may be elsewhere: nothing in it is damaged."""
    end, paths, places = made(tmp_path)
    if is_lost:
        paths[-1].unlink()
    else:
        os.truncate(paths[-1], places[-1][1])
    with pytest.raises(LogRefused):
        salvaged(tmp_path, **known(end, "clean"))


def test_an_incomplete_last_batch_is_no_damage(tmp_path: Path) -> None:
    end, paths, _ = made(tmp_path)
    with paths[-1].open("ab") as file:
        file.write(end.to_bytes(8, "big") + b"\0\0\1\0" + bytes(4) + b"\2" + bytes(30))
    log = salvaged(tmp_path, **known(end, "killed, all flushed"))
    assert (list(log.damages), log.log_end_offset) == ([], end)
    assert not list(tmp_path.glob("*.cut"))


def test_lost_offsets_are_taken_by_a_batch_without_records(tmp_path: Path) -> None:
    end, paths, places = made(tmp_path)
    DAMAGES["magic"][0](paths[0], places[0], 0)
    log = salvaged(tmp_path, **known(end, "killed, nothing flushed"))
    segment = log.segments.all[0]
    fillers = [header for _, header in segment.batches(0) if is_filler(header)]
    lost = sorted(set(range(end)) - set(offsets(log)))
    assert [(one.base_offset, one.next_offset) for one in fillers] == [(lost[0], lost[-1] + 1)]


def test_what_a_value_holds_is_not_taken_for_a_batch_of_another_place(tmp_path: Path) -> None:
    """Behind damage a batch is looked for; one inside of a record has offsets of elsewhere."""
    log = open_log(tmp_path, config=LogConfig(cleanup_policy=frozenset({"compact"})))
    for _ in range(3):
        append(log)
    inner = log.segments.all[0].read_bytes(0, log.segments.all[0].size_bytes)
    end = log.log_end_offset
    log.close()
    [path] = tmp_path.glob("*.log")
    foreign = bytearray(inner)
    foreign[:8] = (1 << 40).to_bytes(8, "big")
    put(path, 0, b"\xff" * 70)
    with path.open("r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(data[:70] + bytes(foreign[: len(inner) // 3]) + data[70:])
    again = open_log(
        tmp_path,
        config=log.config,
        salvages=True,
        recovery_point=0,
        high_watermark=end,
        clean=False,
    )
    assert set(offsets(again)) == {1, 2}


@pytest.mark.parametrize("operations", range(0, 12, 2))
@pytest.mark.parametrize("name", ["write_at", "fsync", "rename", "unlink"])
def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, name: str, operations: int) -> None:
    end, paths, places = made(tmp_path)
    DAMAGES["magic"][0](paths[0], places[0], 0)
    DAMAGES["garbage"][0](paths[-1], places[-1], 1)
    disk = FaultyDisk()
    disk.fail([name], after=operations)
    with suppress(OSError):
        salvaged(tmp_path, disk, **known(end, "clean"))
    log = salvaged(tmp_path, **known(end, "killed, all flushed"))
    assert log.log_end_offset == end
    assert len(set(range(end)) - set(offsets(log))) <= 3 + 12
    assert list(tmp_path.glob(f"{paths[0].name}.*.cut"))
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_after_it_loses_nothing(tmp_path: Path, seed: int) -> None:
    end, paths, places = made(tmp_path)
    DAMAGES["magic"][0](paths[0], places[0], 0)
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    first = salvaged(tmp_path, disk, **known(end, "clean"))
    wanted = offsets(first)
    disk.cut()
    log = salvaged(tmp_path, **known(end, "killed, all flushed"))
    assert offsets(log) == wanted


@pytest.mark.parametrize(("has_others", "kept"), [(False, [0, 2]), (True, [0])])
def test_one_replica_of_several_is_cut_and_not_repaired(
    tmp_path: Path, has_others: bool, kept: list[int]
) -> None:
    """Its leader has what was lost; a batch in its place would count once this replica leads."""
    name, host = TopicPartition(OFFSETS_TOPIC, 0), Host(tmp_path, config=COMPACTED)
    manager = host.start()
    log = manager.create(*name, b"c" * 16)
    manager.checkpoint_recovery_points()
    for _ in range(3):
        append(log)
    second = [at for at, _ in log.segments.active.batches(0)][1]
    manager.close(clean=False)
    put(log.segments.active.path(".log"), second + 16, b"\7")
    host.wanted = {name: TargetReplica(b"c" * 16, 0, host.id_of(0), has_others=has_others)}
    (again,) = host.start().all()
    assert offsets(again) == kept
    assert again.log_end_offset == kept[-1] + 1
