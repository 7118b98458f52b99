"""A look at many logs and the passes that go by it."""

import errno
import logging
from pathlib import Path

import pytest

from local_log.cleaner import cleaner as cleaner_module
from local_log.cleaner.log_facts import NotedLog
from local_log.cleaner.look import Look
from local_log.log.partition_log import PartitionLog
from tests.unit.local_log.test_cleaner_runs import World, fill


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_one_look_serves_many_passes_unless_it_is_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, ranked = list[int](), Look.ranked

    def count(look: Look) -> list[PartitionLog]:
        due = ranked(look)
        looks.append(len(due))
        return due

    monkeypatch.setattr(Look, "ranked", count)
    for number in range(5):
        fill(world.log(f"t{number}"), 30)
    world.cleaner.start()
    assert looks == [5, 0]
    monkeypatch.setattr(cleaner_module, "LOOK_MAX_MS", 0)
    for each in world.logs.all():
        fill(each, 30)
    world.ports.scheduler.advance(2000)
    assert looks[2:8] == [5, 4, 3, 2, 1, 0]


def unread(world: World, log: PartitionLog) -> None:
    """A log whose first timestamp must be read again, and a disk that refuses."""
    fill(log, 30)
    log.segments.all[0].first_timestamp = None
    world.disk.fail(["read_at"], path_part=f"{log.topic_partition}/{0:020}.log", error=errno.EIO)


def test_a_log_that_cannot_be_looked_at_is_told_once_and_counted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    sick, sound = world.log("sick", max_compaction_lag_ms=10**9), world.log("sound")
    unread(world, sick)
    fill(sound, 20)
    with caplog.at_level(logging.INFO, "local_log.cleaner"):
        world.cleaner.start()
        world.ports.scheduler.advance(20_000)
    assert world.checkpoint(sound.topic_partition) == sound.segments.all[-1].base_offset
    lines = [one for one in caplog.records if "looking at sick-0" in one.getMessage()]
    assert [one.levelno for one in lines] == [logging.ERROR]
    assert world.cleaner.left_out.unread == [sick]
    [problem] = world.cleaner.problems()
    assert problem.startswith("sick-0 is not compacted, it is tried again: [Errno 5]")
    world.disk.heal()
    world.ports.scheduler.advance(2_000)
    assert "looking at sick-0 for the cleaner works again" in caplog.text
    assert world.cleaner.left_out.unread == world.cleaner.problems() == []
    assert world.checkpoint(sick.topic_partition) == sick.segments.all[-1].base_offset


def test_a_log_whose_files_go_while_it_is_looked_at_is_no_error(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = world.log("orders", max_compaction_lag_ms=10**9)
    unread(world, log)
    add = Look.add

    def cut_meanwhile(look: Look, some: list[NotedLog]) -> None:
        add(look, some)
        log.truncate_fully_and_start_at(100)

    monkeypatch.setattr(Look, "add", cut_meanwhile)
    world.cleaner.start()
    assert world.disk.has_failed
    assert world.cleaner.left_out.unread == []
    assert "looking at" not in caplog.text


def test_what_is_set_aside_is_told_as_long_as_the_log_is_there(world: World) -> None:
    logs = [world.log(f"t{number}") for number in range(102)]
    for log in logs:
        world.cleaner.left_out.set_aside(log, "a damaged batch")
    lines = world.cleaner.problems()
    assert len(lines) == 101
    assert lines[0] == "t0-0 is not compacted until the next start: a damaged batch"
    assert lines[-1] == "and 2 more partitions are not compacted"
    for log in logs[1:]:
        world.logs.delete(log.topic_partition)
    assert world.cleaner.problems() == lines[:1]
    logs[0].truncate_fully_and_start_at(0)
    assert world.cleaner.problems() == []
