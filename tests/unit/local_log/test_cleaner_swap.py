"""A new segment on its way to its place: others ask for it, descriptors are out, the process ends.

What a pass has left half done must not come back at a later start.
"""

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.types import TopicPartition
from local_log.cleaner.log_pass import Group
from local_log.cleaner.process import Answer
from local_log.errors import KafkaStorageError
from local_log.file_names import CLEANED, SWAP
from local_log.log import retention
from local_log.log.cleaning import PassSpoiltError
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_to
from local_log.manager.log_dir import CLEANER_OFFSETS, LogDir
from runtime.disk import Disk
from tests.support.rounds import rounds
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.worlds.cleaned_logs import (
    COMPACTED,
    batches_of,
    clean,
    commit,
    end_transaction,
    first_group,
    job_of,
    make_ready_and_take,
    open_compacted,
    put,
    table_of,
)
from tests.support.worlds.cleaner import World, fill
from tests.support.worlds.local_log import NOW_MS

pytestmark = pytest.mark.lasts(seconds=8)

CONFIG = replace(
    COMPACTED,
    cleanup_policy=frozenset({"compact", "delete"}),
    segment_bytes=900,
    retention_ms=10**9,
)
MERGING = replace(COMPACTED, segment_bytes=4000, delete_retention_ms=0)
LATER_MS = NOW_MS + 10
OPERATIONS = 115
APART = ((98, 2), (100, 9), (102, 2))
"""Cuts that keep the names which old files got, and lose those of the new ones, if they can."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


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
    log.flush()
    log.cleaning.begin()
    make_ready_and_take(log, first_group(log, job_of(log)))
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


def test_a_moving_segment_is_flushed_and_its_age_known_at_each_step(tmp_path: Path) -> None:
    log = taken(tmp_path / "orders-0", Disk())
    first = log.segments.all[0]
    before = first.modified_ms()
    while log.cleaning._rename_one():
        pass
    first.fsync()
    log.cleaning.put_in_place()
    first.fsync()
    assert (first.is_moving, first.modified_ms()) == (True, before)
    log.cleaning.settle()
    assert (first.is_moving, first.modified_ms()) == (False, before)


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


def opened(path: Path, log: PartitionLog, end: int | None = None) -> PartitionLog:
    """As the next start does after a kill: what was flushed is known, up to `end`."""
    point = log.recovery_point if end is None else min(log.recovery_point, end)
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
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
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
    disk = PowerCutDisk(tmp_path, SeededRng(1))
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
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    path = tmp_path / "orders-0"
    log = written(path, disk)
    disk.fsync_path(tmp_path)
    log.cleaning.begin()
    group = first_group(log, job_of(log, now_ms=LATER_MS))
    log.cleaning.make_ready(group.old[0], "t")
    cut_at = log.segments.all[1].base_offset
    disk.begin(operation)
    with suppress(PowerCutError):
        truncate_to(log, cut_at)
        assert log.log_end_offset == cut_at
        with pytest.raises(PassSpoiltError):
            log.cleaning.take(group.old, group.old_bytes, group.segment(disk, path))
    is_truncated = not disk.is_off
    assert is_truncated == (operation == 100)
    disk.cut()
    again = opened(path, log, cut_at)
    if is_truncated:
        assert again.log_end_offset == cut_at
    assert not [one for one in path.iterdir() if one.name.endswith((CLEANED, SWAP))]
    ends = [header.next_offset for header, _ in batches_of(again)]
    assert ends == sorted(set(ends))


def test_an_index_of_a_swap_without_its_log_is_not_taken_over(tmp_path: Path) -> None:
    """A cut may keep the new name of an index and lose that of the log: it is of another log."""
    log = written(tmp_path / "orders-0", PowerCutDisk(tmp_path, SeededRng(1)))
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
        segment = log.segments.all[segment_index(log, header.base_offset)]
        found = segment.find_batch(header.last_offset)
        assert found is not None
        assert found[1].base_offset == header.base_offset


def segment_index(log: PartitionLog, offset: int) -> int:
    return max(n for n, segment in enumerate(log.segments.all) if segment.base_offset <= offset)


def test_a_pass_whose_new_file_is_gone_is_spoilt(world: World) -> None:
    log = world.log()
    fill(log)
    with pytest.raises(PassSpoiltError, match="is gone"):
        log.cleaning.make_ready(0, "nobody")


def test_a_taken_segment_gets_its_name_once_descriptors_are_free(
    world: World,
) -> None:
    log = world.log()
    fill(log)
    before = table_of(log)
    world.disk.fail(["rename"], path_part=".log.deleted", error=errno.EMFILE)
    world.cleaner.start()
    assert not log.is_offline
    assert (log.directory / f"{0:020}.log.swap").exists()
    assert table_of(log) == before
    world.disk.heal()
    fill(log, 20)
    before = table_of(log)
    world.ports.scheduler.advance(10_000)
    assert world.leftovers(log) == []
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before


def exhaust_at_group(world: World, number: int, operations: list[str]) -> None:
    """From the swap of this group (from 0) on the operations fail."""
    left = [number]

    def each(answer: Answer) -> None:
        if isinstance(answer, Group):
            left[0] -= 1
            if left[0] == -1:
                world.disk.fail(operations, path_part="orders-0", error=errno.EMFILE)

    world.worker.each = each


def swaps(log: PartitionLog) -> list[str]:
    return [one.name for one in log.directory.iterdir() if one.name.endswith(SWAP)]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("operations", [["fsync_path", "unlink"], ["fsync_path"]])
def test_what_was_ready_and_not_taken_does_not_come_back(
    world: World, operations: list[str], is_clean: bool
) -> None:
    log = world.log(segment_bytes=700, delete_retention_ms=0)
    fill(log, 5, keys=3)
    put(log, ("gone", "old" + "v" * 90))
    fill(log, 34, keys=3)
    exhaust_at_group(world, 1, operations)
    world.cleaner.start()
    assert world.disk.has_failed
    assert not log.is_offline
    world.disk.heal()
    put(log, ("gone", None))
    for _ in range(4):
        fill(log, 10, keys=3)
        world.ports.scheduler.advance(400_000)
    before, end = table_of(log), log.log_end_offset
    assert b"gone" not in before
    assert swaps(log) == []
    log.flush()
    log.close(clean=is_clean)
    again = open_compacted(
        log.directory,
        config=log.config,
        clean=is_clean,
        recovery_point=end,
        high_watermark=end,
        was_compacted=True,
    )
    commit(again)
    assert table_of(again) == before


def test_what_was_ready_goes_with_its_pass(world: World) -> None:
    log = world.log(segment_bytes=700)
    fill(log)
    fsync_path, failures = world.disk.fsync_path, [errno.EMFILE]
    ready: list[bool] = []

    def fail_once(path: Path) -> None:
        if path == log.directory and failures and swaps(log):
            ready.append(True)
            raise OSError(failures.pop(), "Too many open files")
        fsync_path(path)

    world.disk.fsync_path = fail_once  # type: ignore[method-assign]
    world.cleaner.start()
    assert ready
    assert world.leftovers(log) == []


def test_a_truncation_takes_back_again_what_may_not_be_durable(world: World) -> None:
    log = world.log(segment_bytes=700)
    fill(log)
    exhaust_at_group(world, 0, ["fsync_path", "unlink"])
    world.cleaner.start()
    assert swaps(log)
    world.disk.heal()
    world.disk.fail(["fsync_path"], path_part="orders-0", error=errno.EMFILE)
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="cannot be used now"):
            truncate_to(log, 4)
    assert not log.is_offline
    assert log.log_end_offset == 30
    world.disk.heal()
    truncate_to(log, 4)
    assert log.log_end_offset <= 4
    assert swaps(log) == []


def test_a_checkpoint_that_cannot_be_written_is_tried_with_pauses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.log()
    fill(log)
    write, tries = LogDir.write_checkpoint, list[int]()

    def refuse(one: LogDir, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        if name == CLEANER_OFFSETS:
            tries.append(world.ports.clock.monotonic_ms())
            if len(tries) < 100:
                raise OSError(errno.EMFILE, "Too many open files")
        write(one, name, offsets)

    monkeypatch.setattr(LogDir, "write_checkpoint", refuse)
    world.cleaner.start()
    assert len(tries) == 1
    world.ports.scheduler.advance(60_000)
    assert 3 < len(tries) < 9
    assert not log.is_offline
    tries.extend(range(100))
    world.ports.scheduler.advance(120_000)
    assert world.checkpoint() == log.segments.all[-1].base_offset
