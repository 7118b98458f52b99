"""Which logs the cleaner of a broker cleans, in which order, and what it makes of failures."""

import errno
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.types import TopicPartition
from local_log.cleaner import cleaner as cleaner_module
from local_log.cleaner.cleaner import LogCleaner, NotedLog, check_logs
from local_log.cleaner.log_pass import Group, Job
from local_log.cleaner.policy import Range
from local_log.cleaner.process import Answer, WorkerLostError
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_fully_and_start_at, truncate_to
from local_log.manager.log_dir import CLEANER_OFFSETS
from runtime.work import Work
from tests.support.worlds.cleaned_logs import commit, put, records_of, table_of
from tests.support.worlds.cleaner import SETTINGS, TP, World, fill
from tests.support.worlds.local_log import NOW_MS


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_dirty_log_is_cleaned_and_its_checkpoint_written(world: World) -> None:
    log = world.log()
    fill(log)
    before = table_of(log)
    world.cleaner.start()
    assert table_of(log) == before
    assert len(records_of(log)) < 20
    assert world.checkpoint() == log.segments.all[-1].base_offset
    text = (world.directory.path / CLEANER_OFFSETS).read_text()
    assert text == f"0\n1\norders 0 {world.checkpoint()}\n"
    assert world.leftovers(log) == []
    world.ports.scheduler.advance(5000)
    assert len(world.worker.jobs) == 1, "what is clean is left alone"
    facts = world.cleaner.facts
    assert (facts.passes, facts.failures, facts.dirty_ratio) == (1, 0, 0.0)
    assert 0 < facts.recopy_ratio < 1
    assert facts.map_use > 0


def test_what_is_not_compacted_tiered_or_not_dirty_enough_is_left_alone(world: World) -> None:
    plain = world.log("plain", cleanup_policy=frozenset({"delete"}))
    lazy = world.log("lazy", min_cleanable_dirty_ratio=1.0)
    young = world.log("young", min_compaction_lag_ms=10**15)
    tiered = world.log("tiered", remote_storage_enable=True)
    for log in (plain, lazy, young, tiered):
        fill(log)
    world.cleaner.start()
    assert world.worker.jobs == []
    world.settings = replace(SETTINGS, is_enabled=False)
    fill(world.log("off"))
    world.ports.scheduler.advance(5000)
    assert world.worker.jobs == []


def test_the_dirtiest_comes_first_and_all_that_are_due_have_their_turn(world: World) -> None:
    few, many = world.log("few"), world.log("many")
    fill(few, 50)
    world.cleaner.start()
    fill(few, 20)
    fill(many, 30)
    world.ports.scheduler.advance(2000)
    topics = [Path(job.directory).name for job in world.worker.jobs]
    assert topics == ["few-0", "many-0", "few-0"]


def test_the_checkpoint_names_the_log_before_it_has_its_first_hole(world: World) -> None:
    log, seen = world.log(), []
    fill(log)
    world.worker.before = lambda job: seen.append(world.checkpoint())
    world.cleaner.start()
    assert seen == [0]


def test_a_process_that_dies_harms_nothing_and_is_tried_later_and_later(world: World) -> None:
    log = world.log()
    fill(log)
    before, segments = records_of(log), len(log.segments.all)

    def die(_: Job) -> None:
        raise WorkerLostError("killed")

    world.worker.before = die
    world.cleaner.start()
    assert (records_of(log), len(log.segments.all)) == (before, segments)
    assert world.cleaner.facts.failures == 1
    world.ports.scheduler.advance(60_000)
    assert 4 < len(world.worker.jobs) < 9
    world.ports.scheduler.advance(3_600_000)
    assert world.cleaner.uncleanable == [], "it began with no job: that is no fault of the log"
    world.worker.before = lambda _: None
    world.ports.scheduler.advance(1_200_000)
    assert world.cleaner.facts.failures == 0
    assert len(records_of(log)) < 20


def test_one_that_dies_in_the_middle_leaves_whole_groups(world: World) -> None:
    log = world.log(segment_bytes=500)
    fill(log)
    before = table_of(log)

    def die_after_one(answer: Answer) -> None:
        world.worker.each = lambda _: None
        world.worker._answers = deque([*world.worker._answers][:1])

    world.worker.each = die_after_one
    world.cleaner.start()
    assert world.cleaner.facts.failures == 1
    assert table_of(log) == before
    assert world.checkpoint() == 0
    assert world.leftovers(log) == []
    world.ports.scheduler.advance(10_000)
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before


def test_a_log_that_cannot_be_read_does_not_keep_the_others_waiting(world: World) -> None:
    log, other = world.log(), world.log("other")
    fill(log, 40)
    fill(other, 20)
    hidden = log.segments.all[1].path(".log")

    def hide(job: Job) -> None:
        if "orders" in job.directory and hidden.exists():
            hidden.rename(hidden.with_suffix(".hidden"))

    world.worker.before = hide
    world.cleaner.start()
    assert world.checkpoint(TopicPartition("other", 0)) == other.segments.active.base_offset
    assert world.checkpoint() == 0
    hidden.with_suffix(".hidden").rename(hidden)
    world.worker.before = lambda _: None
    world.ports.scheduler.advance(10_000)
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert world.cleaner._retries == {}, "the next failure is the first one again"


@pytest.mark.parametrize("kind", ["truncated", "deleted", "begun again"])
@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_pass_over_a_log_that_changed_meanwhile_is_thrown_away(
    world: World, kind: str, answers: int
) -> None:
    log = world.log(segment_bytes=500)
    fill(log)
    left = [answers]
    kept = table_of(log)

    def change(answer: Answer) -> None:
        left[0] -= 1
        if left[0] != -1:
            return
        if kind == "truncated":
            truncate_to(log, 10)
            kept.clear()
            kept.update(table_of(log))
        elif kind == "deleted":
            world.logs.delete(TP)
        else:
            truncate_fully_and_start_at(log, 100)

    world.worker.each = change
    world.cleaner.start()
    world.worker.each = lambda _: None
    if kind == "deleted":
        assert world.checkpoint() is None
        assert world.logs.get(TP) is None
        return
    assert world.leftovers(log) == []
    assert (world.checkpoint() or 0) <= log.log_end_offset
    if kind == "truncated":
        assert table_of(log) == kept
        fill(log)
        world.ports.scheduler.advance(5000)
        assert world.checkpoint() == log.segments.all[-1].base_offset
    else:
        assert records_of(log) == []


def test_retention_leaves_a_log_alone_while_it_is_cleaned(world: World) -> None:
    log = world.log(
        cleanup_policy=frozenset({"compact", "delete"}), retention_bytes=1, segment_bytes=500
    )
    fill(log)
    seen: list[int] = []

    def retain(_: Answer) -> None:
        world.logs.run_retention(NOW_MS)
        seen.append(log.log_start_offset)

    world.worker.each = retain
    world.cleaner.start()
    assert set(seen) == {0}
    world.logs.run_retention(NOW_MS)
    assert log.log_start_offset > 0
    assert not log.is_offline


def test_truncation_cuts_the_checkpoint_back(world: World) -> None:
    log = world.log()
    fill(log)
    world.cleaner.start()
    assert (world.checkpoint() or 0) > 10
    truncate_to(log, 10)
    assert (world.checkpoint() or 0) <= log.log_end_offset == 10


def test_a_log_start_above_the_checkpoint_begins_the_dirty_part(world: World) -> None:
    log = world.log()
    fill(log)
    world.cleaner.start()
    at = log.log_end_offset - 1
    fill(log, 10)
    log.raise_log_start(at)
    world.ports.scheduler.advance(2000)
    assert world.worker.jobs[-1].first_dirty == at


async def test_stopping_ends_the_process_and_looks_no_more(world: World) -> None:
    fill(world.log())
    world.cleaner.start()
    await world.cleaner.stop()
    fill(world.logs.get(TP))  # type: ignore[arg-type]
    world.ports.scheduler.advance(60_000)
    assert world.worker.stops == 1
    assert len(world.worker.jobs) == 1


@pytest.mark.parametrize("dirtier", ["sick", "sound"])
def test_a_log_that_kills_the_process_does_not_keep_others_waiting(
    world: World, dirtier: str
) -> None:
    sick, sound = world.log("sick"), world.log("sound")
    fill(sick, 60 if dirtier == "sick" else 20)
    fill(sound, 40)

    def die(answer: Answer) -> None:
        if "sick" in world.worker.jobs[-1].directory:
            raise WorkerLostError("killed", in_job=True)

    world.worker.each = die
    world.cleaner.start()
    world.ports.scheduler.advance(1500)
    assert world.checkpoint(sound.topic_partition) == sound.segments.active.base_offset
    assert not sick.cleaning.uncleanable
    world.ports.scheduler.advance(600_000)
    assert [Path(job.directory).name for job in world.worker.jobs].count("sick-0") == 5
    assert world.cleaner.uncleanable == [sick]
    assert "5 processes in a row ended over it: killed" in sick.cleaning.uncleanable
    assert world.cleaner.facts.failures == 0


def test_a_truncation_between_the_look_and_the_pass_is_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last segment of the look is active again, and grows while the process works."""
    log = world.log(segment_bytes=700)
    fill(log, 6)
    seen = list[int]()

    def cut_after(some: Sequence[NotedLog], now_ms: int) -> list[tuple[NotedLog, Range | OSError]]:
        found = check_logs(some, now_ms)
        if not seen:
            seen.append(log.segments.all[0].size_bytes)
            truncate_to(log, 2)
            put(log, ("k0", "again" + "v" * 90))
            commit(log)
        return found

    monkeypatch.setattr(cleaner_module, "check_logs", cut_after)
    world.cleaner.start()
    assert seen
    assert world.worker.jobs == [], "only the active segment is left"
    for number in range(10):
        put(log, (f"n{number}", "v" * 100))
    commit(log)
    before = table_of(log)
    world.ports.scheduler.advance(5000)
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before


def test_what_was_made_of_other_segments_is_not_taken(world: World) -> None:
    log = world.log(segment_bytes=700)
    fill(log, 20)
    before = table_of(log)

    def grow(answer: Answer) -> None:
        if isinstance(answer, Group):
            first.size_bytes += 1

    first = log.segments.all[0]
    world.worker.each = grow
    world.cleaner.start()
    assert len(world.worker.jobs) == 1
    first.size_bytes -= 1
    assert log.segments.all[0] is first
    assert world.leftovers(log) == []
    world.worker.each = lambda _: None
    world.ports.scheduler.advance(5000)
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before


def test_one_look_serves_many_passes_unless_it_is_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = list[int](), LogCleaner._find_due

    def count(cleaner: LogCleaner) -> Work[list[PartitionLog]]:
        due = yield from look(cleaner)
        looks.append(len(due))
        return due

    monkeypatch.setattr(LogCleaner, "_find_due", count)
    monkeypatch.setattr(cleaner_module, "SLICE_LOGS", 2)
    logs = [world.log(f"t{number}") for number in range(5)]
    for log in logs:
        fill(log, 30)
    world.cleaner.start()
    assert looks == [5, 0]
    for log in logs:
        assert world.checkpoint(log.topic_partition) == log.segments.all[-1].base_offset
    monkeypatch.setattr(cleaner_module, "CHECK_MAX_MS", 0)
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
    assert world.checkpoint(sound.topic_partition) == sound.segments.active.base_offset
    lines = [one for one in caplog.records if "looking at sick-0" in one.getMessage()]
    assert [one.levelno for one in lines] == [logging.ERROR]
    assert world.cleaner.unread == [sick]
    [problem] = world.cleaner.problems()
    assert problem.startswith("sick-0 is not compacted, it is tried again: [Errno 5]")
    world.disk.heal()
    world.ports.scheduler.advance(2_000)
    assert "looking at sick-0 for the cleaner works again" in caplog.text
    assert world.cleaner.unread == world.cleaner.problems() == []
    assert world.checkpoint(sick.topic_partition) == sick.segments.active.base_offset


def test_a_log_whose_files_go_while_it_is_looked_at_is_no_error(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = world.log("orders", max_compaction_lag_ms=10**9)
    unread(world, log)

    def cut(some: Sequence[NotedLog], now_ms: int) -> list[tuple[NotedLog, Range | OSError]]:
        found = check_logs(some, now_ms)
        truncate_fully_and_start_at(log, 100)
        return found

    monkeypatch.setattr(cleaner_module, "check_logs", cut)
    world.cleaner.start()
    assert world.disk.has_failed
    assert world.cleaner.unread == []
    assert "looking at" not in caplog.text


def test_what_is_set_aside_is_told_as_long_as_the_log_is_there(world: World) -> None:
    logs = [world.log(f"t{number}") for number in range(102)]
    for log in logs:
        world.cleaner.set_aside(log, "a damaged batch")
    lines = world.cleaner.problems()
    assert len(lines) == 101
    assert lines[:-1] == sorted(lines[:-1])
    assert lines[-1] == "and 2 more partitions are not compacted"
    for log in logs[1:]:
        world.logs.delete(log.topic_partition)
    left = "t0-0 is not compacted until the next start: a damaged batch"
    assert world.cleaner.problems() == [left]
    truncate_fully_and_start_at(logs[0], 0)
    assert world.cleaner.problems() == []
