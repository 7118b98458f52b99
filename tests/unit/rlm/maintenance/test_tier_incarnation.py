"""An incarnation never repeats, whatever became of its file."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from kafka_protocol.types import EpochEntry
from rlm.maintenance.census import NAMED_MAX
from rlm.maintenance.incarnation import (
    FILE_NAME,
    Counter,
    Incarnations,
    OlderFormError,
    check_forms,
    dump,
    parse,
)
from rlm.workers import VALIDATION_POOL
from rlmm.api import Fence
from rlmm.events import SegmentAdded, Stamp
from rsm_plugins.testing import segment
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.tier.log_in_memory import PARTITION
from tests.support.tier.pair import Pair, bytes_of

NOW_MS = 1_900_000_000_000


def incarnations(path: Path, clock: ManualClock, *, disk: Disk | None = None) -> Incarnations:
    return Incarnations(disk or Disk(), path, clock, SeededRng(1))


def test_numbers_rise_over_restarts_with_a_clock_that_stands_still(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    first = incarnations(tmp_path, clock)
    taken = [first.take(), first.take(), incarnations(tmp_path, clock).take()]
    assert taken == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


def test_numbers_rise_with_a_clock_that_was_set_back(tmp_path: Path) -> None:
    incarnations(tmp_path, ManualClock(wall_ms=NOW_MS)).take()
    assert incarnations(tmp_path, ManualClock(wall_ms=5)).take() == NOW_MS + 1


@pytest.mark.parametrize("operation", ["fsync", "fsync_path"])
def test_a_number_that_cannot_be_fsynced_is_not_given_out(tmp_path: Path, operation: str) -> None:
    disk = FaultyDisk()
    disk.fail([operation])
    with pytest.raises(OSError, match="No space"):
        incarnations(tmp_path, ManualClock(wall_ms=NOW_MS), disk=disk).take()


@pytest.mark.parametrize("seed", range(20))
def test_numbers_never_repeat_after_power_cuts_with_a_stopped_clock(
    tmp_path: Path, seed: int
) -> None:
    rng, taken = SeededRng(seed), list[int]()
    for operations in (3, 7, 1, 12, 5, 30):
        disk = PowerCutDisk(tmp_path, rng, operations)
        given = incarnations(tmp_path, ManualClock(wall_ms=NOW_MS), disk=disk)
        with suppress(PowerCutError):
            while True:
                taken.append(given.take())
    assert len(taken) > 5
    assert taken == sorted(set(taken))


DAMAGES = {
    "lost": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:5]),
    "cut to the digits": lambda path: path.write_bytes(path.read_bytes().split()[0]),
    "zeros": lambda path: path.write_bytes(bytes(20)),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "a directory"])
def test_a_damaged_counter_continues_by_the_clock(tmp_path: Path, damage: str) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    before = incarnations(tmp_path, clock).take()
    DAMAGES[damage](tmp_path / FILE_NAME)
    clock.advance(1)
    assert incarnations(tmp_path, clock).take() > before


def test_each_flipped_bit_is_noticed_or_harmless(tmp_path: Path) -> None:
    content = bytearray(dump(Counter(NOW_MS, NOW_MS - 7, (NOW_MS - 9,))))
    for bit in range(len(content) * 8):
        content[bit // 8] ^= 1 << bit % 8
        assert parse(bytes(content)) is None, bit
        content[bit // 8] ^= 1 << bit % 8


def test_a_counter_that_cannot_be_read_continues_by_the_clock(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    before = incarnations(tmp_path, clock).take()
    disk = FaultyDisk()
    disk.fail(["open_read"], path_part=FILE_NAME, error=5)
    clock.advance(1)
    assert incarnations(tmp_path, clock, disk=disk).take() > before


def test_after_a_refusal_the_next_incarnation_is_above_what_was_read(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    high = pair.clock.wall_ms() + 10**12  # of a tier whose clock was ahead; its counter is lost
    lies_in_it = replace(segment(topic="orders"), leader_epochs=(EpochEntry(1, 0),))
    pair.metadata.land(SegmentAdded(lies_in_it, Stamp(Fence(1, high), -1)))
    pair.log.fill(1, records=100)
    pair.assign()
    pair.scheduler.advance(5_000)
    pair.pump()
    assert pair.metadata.is_ready(PARTITION)
    assert bytes_of(pair.read(0))
    assert parse((tmp_path / FILE_NAME).read_bytes()) == Counter(high + 1, None)
    assert pair.reasons() == []


def test_a_counter_that_cannot_be_written_is_unhealthy_and_tried_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail(["rename"], path_part=FILE_NAME)
    pair = Pair(tmp_path, disk=disk)
    pair.log.fill(1, records=20)
    pair.assign()
    assert any("tier-incarnation" in reason for reason in pair.reasons())
    assert pair.aborted == []
    disk.heal()
    pair.scheduler.advance(60_000)
    pair.pump()
    assert bytes_of(pair.read(0))
    assert pair.reasons() == []


def test_partitions_wait_for_a_durable_incarnation_and_share_it(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(1, records=20)
    pair.workers.held.add(VALIDATION_POOL)
    for partition in range(3):
        pair.assign(partition=partition)
    assert not (tmp_path / FILE_NAME).exists(), "the tier's loop waits for no disk"
    assert not pair.metadata.is_ready(PARTITION)
    pair.tier.manager.unassign(PARTITION.topic_id, 1)
    pair.workers.held.clear()
    pair.pump()
    assert pair.metadata.is_ready(PARTITION)
    assert parse((tmp_path / FILE_NAME).read_bytes()) == Counter(pair.clock.wall_ms(), None)
    assert not pair.metadata.is_ready(PARTITION._replace(partition=1)), "it went meanwhile"


def test_the_first_unhealthy_partitions_are_named_and_the_rest_counted(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    disk.fail(["rename"], path_part=FILE_NAME)
    pair = Pair(tmp_path, disk=disk)
    pair.log.fill(1, records=20)
    for partition in range(NAMED_MAX + 7):
        pair.assign(partition=partition)
    said = pair.reasons()
    assert len(said) == NAMED_MAX + 1
    assert said[-1].startswith("and 7 more partitions are unhealthy")


@pytest.mark.parametrize("content", [b"17\n", b"17 %08x\n" % crc32c(b"17")])
def test_a_file_of_an_older_form_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(OlderFormError, match=r"tier-incarnation is of a version before 0\.1\.0"):
        incarnations(tmp_path, ManualClock(wall_ms=NOW_MS)).take()
    assert (tmp_path / FILE_NAME).read_bytes() == content


def test_damage_is_not_taken_for_an_older_form(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"17 00000000\n")
    assert incarnations(tmp_path, ManualClock(wall_ms=NOW_MS)).take() == NOW_MS


def test_a_file_in_the_place_of_older_versions_is_refused_by_name(tmp_path: Path) -> None:
    state, first = tmp_path / "meta", tmp_path / "logs"
    for directory in (state, first):
        directory.mkdir()
    check_forms(Disk(), state, first)
    (first / FILE_NAME).write_bytes(dump(Counter(17, 16)))
    with pytest.raises(OlderFormError, match=f"{first}/tier-incarnation is where .* before 0.1.0"):
        check_forms(Disk(), state, first)
    (state / FILE_NAME).write_bytes(dump(Counter(18, 18)))
    check_forms(Disk(), state, first)


def test_a_first_directory_that_cannot_be_read_ends_no_start(tmp_path: Path) -> None:
    class Failing(Disk):
        def exists(self, path: Path) -> bool:
            raise OSError(5, "of the disk")

    check_forms(Failing(), tmp_path, tmp_path / "logs")
