"""The process or the machine ends while a log moves to another directory: one good log is there."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from local_log.errors import KafkaStorageError
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dir import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS
from local_log.manager.log_dirs import LogManager
from tests.support.damage.places import quick_directory
from tests.support.rounds import rounds
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.worlds.local_log import append, read_bytes
from tests.support.worlds.log_manager import BILLS, ORDERS, Host, make
from tests.support.worlds.moving import moved
from tests.support.worlds.replacement import PRODUCER, TIERED

pytestmark = pytest.mark.lasts(seconds=20)

CONFIG = replace(TIERED, segment_bytes=3000)
MARKS = {LOG_STARTS: 10, HIGH_WATERMARKS: 55, CLEANER_OFFSETS: 40}
SECOND_STEP = rounds("TIDEMARK_MOVING_STEP", quick=23, full=7)
"""From one operation of the second life that is stopped to the next."""
WAYS = ("kill", "power cut")


def make_base(root: Path) -> None:
    """Two logs, wholly on the disk, with entries in every checkpoint."""
    manager = Host(root, dirs=2, config=CONFIG).start()
    for log in make(manager, ORDERS, BILLS, records=59):
        append(log, epoch=3, base_sequence=0, **PRODUCER)
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
    """Two directories, and how far the move came in their lives.

    Attributes:
        was_done: the log was that of the second directory.
    """

    root: Path
    seed: int
    was_done: bool = False

    def __post_init__(self) -> None:
        self.disk = PowerCutDisk(self.root, SeededRng(self.seed))
        self.host = Host(self.root, dirs=2, config=CONFIG, disk=self.disk)
        self.host.assign(ORDERS)
        self.host.assign(BILLS, index=1)

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

    def move(self, way: str, operations: int) -> bool:
        """One life with a move, ended as in `live` in this operation after its start."""

        def move(manager: LogManager) -> None:
            self.disk.begin(operations, kills=way == "kill")
            moved(manager)
            self.was_done = True

        return self.live(move)

    def cut(self) -> None:
        """Lose what no life has made durable."""
        self.disk.cut()
        self.__post_init__()

    def check(self, manager: LogManager) -> None:
        """All records are there, once, with what the checkpoints know."""
        assert not manager.refused
        assert all(each.works for each in manager.dirs)
        log, bills = manager.get(ORDERS), manager.get(BILLS)
        assert bills is not None
        check_log(bills)
        assert log is not None
        check_log(log)
        home = manager.directory_of(ORDERS)
        assert home is not None
        assert home is manager.dirs[1] or not self.was_done
        assert {name: home.entry(name, ORDERS) for name in MARKS} == MARKS
        for found in manager.interrupted:
            assert home is manager.dirs[0]
            assert found.directory is manager.dirs[1]
            manager.moves.drop_path(ORDERS, found.directory, found.path)
        names = [sorted(p.name for p in path.iterdir() if p.is_dir()) for path in self.host.paths]
        at_home = ["orders-0"] if home is manager.dirs[0] else []
        assert names == [at_home, ["bills-0", *(() if at_home else ("orders-0",))]]


def check_log(log: PartitionLog) -> None:
    offsets = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point)
    assert offsets == (10, 60, 55, 60)
    offset = 0
    for segment in log.segments.all:
        for _, header in segment.batches(0):
            assert header.base_offset == offset
            offset = header.next_offset
    assert offset == 60
    assert read_bytes(log, 10, 100)
    assert log.last_fetched_epoch == 3
    assert append(log, epoch=3, base_sequence=0, **PRODUCER).is_duplicate


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_at_every_operation_leaves_the_log_in_one_of_the_two(way: str) -> None:
    with quick_directory() as root:
        make_base(root / "base")
        at, is_whole, homes = 0, False, set[bool]()
        while not is_whole:
            at += 1
            print(f"replay: {way}, operation {at}")
            lives = Lives(shutil.copytree(root / "base", root / f"at-{at}"), at)
            is_whole = lives.move(way, at)
            if way == "kill":
                assert lives.live(lives.check)
            lives.cut()
            assert lives.live(lives.check)
            homes.add(lives.host.directory().exists())
            shutil.rmtree(lives.root)
        assert homes == {False, True}
        assert at > 50


@pytest.mark.rounds(seconds=60)
@pytest.mark.parametrize("way", WAYS)
def test_a_second_stop_while_the_move_is_finished_does_so_too(way: str) -> None:
    with quick_directory() as root:
        make_base(root / "base")
        at, second, is_whole = 1, 1, False
        while not is_whole:
            print(f"replay: {way}, operations {at} and {second}")
            lives = Lives(shutil.copytree(root / "base", root / "lives"), 1000 * at + second)
            is_whole = lives.move(way, at)
            if way != "kill":
                lives.cut()
            is_settled = lives.live(lives.check, "kill" if second % 4 == 3 else "", second)
            lives.cut()
            assert lives.live(lives.check)
            shutil.rmtree(lives.root)
            is_whole &= is_settled
            second += SECOND_STEP
            if is_settled:
                at, second = at + SECOND_STEP // 3 + 1, 1
