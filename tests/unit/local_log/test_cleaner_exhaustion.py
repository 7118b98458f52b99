"""Compaction while the process is out of descriptors: the log stays online, and goes on.

What a pass has left half done must not come back at a later start.
"""

import errno
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from local_log.file_names import SWAP
from local_log.log.cleaning_job import Answer, Group
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dir import CLEANER_OFFSETS, LogDir
from tests.support.worlds.cleaned_logs import commit, open_compacted, put, table_of
from tests.unit.local_log.test_cleaner_runs import World, fill


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


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
            log.truncate_to(4)
    assert not log.is_offline
    assert log.log_end_offset == 30
    world.disk.heal()
    log.truncate_to(4)
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
