"""The process or the machine ends while a log gives way to another: one of the two is there."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from local_log.errors import KafkaStorageError
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dir import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from local_log.manager.log_dirs import LogManager
from tests.support.damage.places import quick_directory
from tests.support.rounds import rounds
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.worlds.local_log import append, read_bytes
from tests.support.worlds.log_manager import BILLS, ORDERS, Host, make
from tests.support.worlds.replacement import BEGINNING, PRODUCER, TIERED, check_new

pytestmark = pytest.mark.lasts(seconds=15)

CONFIG = replace(TIERED, segment_bytes=1 << 16)
OLD = {LOG_STARTS: 10, RECOVERY_POINTS: 60, HIGH_WATERMARKS: 55, CLEANER_OFFSETS: 40}
NEW = {LOG_STARTS: 3000, RECOVERY_POINTS: 5000, HIGH_WATERMARKS: 5000}
SECOND_STEP = rounds("TIDEMARK_REPLACEMENT_STEP", quick=5, full=1)
"""From one operation of the second life that is stopped to the next; elsewhere ten times that."""
WAYS = ("kill", "power cut")


def make_base(root: Path) -> None:
    """Two logs that differ in every checkpoint from the one that is to come."""
    host = Host(root, config=CONFIG)
    manager = host.start()
    for log in make(manager, ORDERS, BILLS):
        log.flush()
        log.raise_log_start(10)
        log.update_high_watermark(55)
        assert manager.note_cleaned(log, 40)
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    manager.close(clean=False)


@dataclass
class Lives:
    """Directories, and how far the swap came in their lives.

    Attributes:
        had_begun: the old log may be gone.
        was_done: the new log was the partition's.
    """

    root: Path
    seed: int
    had_begun: bool = False
    was_done: bool = False

    def __post_init__(self) -> None:
        self.disk = PowerCutDisk(self.root, SeededRng(self.seed))
        self.host = Host(self.root, config=CONFIG, disk=self.disk)
        self.host.assign(ORDERS, BILLS)

    def live(
        self, work: Callable[[LogManager], None], way: str = "", operations: int | None = None
    ) -> bool:
        """One life that ends in this operation of the disk; whether it ended before that."""
        self.disk.begin(operations, kills=way == "kill")
        try:
            work(self.host.start())
        except PowerCutError:
            return False
        except KafkaStorageError:
            assert self.disk.is_off
            return False
        return True

    def swap(self, way: str, operations: int) -> bool:
        """One life with a swap, ended as in `live` in this operation after its start."""

        def swap(manager: LogManager) -> None:
            self.disk.begin(operations, kills=way == "kill")
            future = manager.build_future(ORDERS, BEGINNING)
            self.had_begun = True
            swap = manager.plan_swap(future)
            swap.future.replaces.lease.grant(truncates=True)
            new = manager.take_swapped(swap, swap.carry_out())
            swap.future.replaces.lease.take_back()
            assert isinstance(new, PartitionLog)
            self.was_done = True

        return self.live(swap)

    def drop(self, operations: int) -> bool:
        """One life that drops what it has built, and loses power in this operation of that."""

        def drop(manager: LogManager) -> None:
            future = manager.build_future(ORDERS, BEGINNING)
            self.disk.begin(operations)
            manager.drop_future(future)

        return self.live(drop)

    def names(self) -> str:
        """Which of the partition's directories are there, with which of these files."""
        found = sorted(path.relative_to(self.root) for path in self.root.glob("*/orders-0*"))
        markers = sorted(path.parent.name for path in self.root.glob("*/*/tidemark-future"))
        return f"{found} {markers}"

    def cut(self) -> None:
        """Lose what no life has made durable."""
        self.disk.cut()
        self.__post_init__()

    def check(self, manager: LogManager) -> None:
        """One of the two logs is there, with its checkpoints."""
        assert not manager.refused
        assert manager.dirs[0].works
        log, bills = manager.get(ORDERS), manager.get(BILLS)
        assert log is not None
        assert bills is not None
        check_old(bills)
        assert {name: manager.dirs[0].entry(name, BILLS) for name in OLD} == OLD
        is_new = log.log_start_offset == 3000
        assert is_new or not self.was_done
        assert self.had_begun or not is_new
        marks = {name: manager.dirs[0].entry(name, ORDERS) for name in OLD}
        if is_new:
            check_new(log)
            assert append(log, 5, epoch=8, base_sequence=10, **PRODUCER).is_duplicate
            assert marks == {**NEW, CLEANER_OFFSETS: None}
        else:
            check_old(log)
            assert marks == OLD
        assert {path.name for path in self.host.paths[0].iterdir() if path.is_dir()} == {
            "orders-0",
            "bills-0",
        }


def check_old(log: PartitionLog) -> None:
    offsets = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point)
    assert offsets == (10, 60, 55, 60)
    offset = 0
    for segment in log.segments.all:
        for _, header in segment.batches(0):
            assert header.base_offset == offset
            offset = header.next_offset
    assert offset == 60
    assert read_bytes(log, 10, 100)


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_at_every_operation_leaves_one_of_the_two_logs(way: str) -> None:
    with quick_directory() as root:
        make_base(root / "base")
        at, is_whole, begun = 0, False, 0
        while not is_whole:
            at += 1
            print(f"replay: {way}, operation {at}")
            lives = Lives(shutil.copytree(root / "base", root / f"at-{at}"), at)
            is_whole = lives.swap(way, at)
            begun += lives.had_begun
            if way == "kill":
                assert lives.live(lives.check)
            lives.cut()
            assert lives.live(lives.check)
            shutil.rmtree(lives.root)
        assert begun > 15
        assert at > 50


def test_a_stop_while_a_future_directory_is_removed_leaves_nothing_of_it() -> None:
    with quick_directory() as root:
        make_base(root / "base")
        at, is_whole = 0, False
        while not is_whole:
            at += 1
            for seed in range(10 * at, 10 * at + 6):
                print(f"replay: operation {at}, seed {seed}")
                lives = Lives(shutil.copytree(root / "base", root / "lives"), seed)
                is_whole = lives.drop(at)
                lives.cut()
                assert lives.live(lives.check)
                shutil.rmtree(lives.root)
        assert at > 10


def test_a_cut_takes_a_rename_back_before_a_start_has_removed_anything() -> None:
    """Killed right after the old log's rename: a cut in the next start gives it its name again."""
    with quick_directory() as root:
        make_base(root / "base")

        def killed(at: int, seed: int) -> Lives:
            shutil.rmtree(root / "lives", ignore_errors=True)
            lives = Lives(shutil.copytree(root / "base", root / "lives"), seed)
            lives.swap("kill", at)
            return lives

        at = next(one for one in range(1, 100) if not killed(one, 0).host.directory().exists())
        for second in range(1, 13):
            for seed in range(8):
                print(f"replay: operations {at} and {second}, seed {seed}")
                lives = killed(at, 100 * second + seed)
                assert not lives.live(lives.check, "", second)
                lives.cut()
                assert lives.live(lives.check)


@pytest.mark.rounds(seconds=60)
@pytest.mark.parametrize("way", WAYS)
def test_a_second_stop_while_the_swap_is_finished_does_so_too(way: str) -> None:
    """Where a name has just changed, which a cut may take back, from more operations."""
    with quick_directory() as root:
        make_base(root / "base")
        at, second, before, step, is_whole = 1, 1, "", 0, False
        while not is_whole:
            print(f"replay: {way}, operations {at} and {second}")
            lives = Lives(shutil.copytree(root / "base", root / "lives"), 1000 * at + second)
            is_whole = lives.swap(way, at)
            if second == 1:
                names, before = before, lives.names()
                step = SECOND_STEP if names != before else SECOND_STEP * 10
            if way != "kill":
                lives.cut()
            is_settled = lives.live(lives.check, "kill" if second % 4 == 3 else "", second)
            lives.cut()
            assert lives.live(lives.check)
            shutil.rmtree(lives.root)
            is_whole &= is_settled
            second += step
            if is_settled or not lives.had_begun:
                at, second = at + 1, 1
