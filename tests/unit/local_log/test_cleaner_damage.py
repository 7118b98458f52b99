"""Damage that shows only while a log is cleaned: it is set aside, and nothing of it is written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from local_log.cleaner.log_pass import LogPass
from local_log.file_names import LOG, TXN_INDEX
from local_log.log.cleaning_job import Answer, Failed, Job
from local_log.log.partition_log import PartitionLog
from tests.support.worlds.cleaned_logs import end_transaction, put, records_of
from tests.unit.local_log.test_cleaner_runs import World, fill


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def aborted_log(world: World) -> PartitionLog:
    log = world.log(segment_bytes=700)
    fields = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    put(log, ("K", "committed"))
    put(log, ("K", "aborted"), base_sequence=0, **fields)  # type: ignore[arg-type]
    end_transaction(log, 7, commits=False)
    fill(log, 20)
    return log


@pytest.mark.parametrize("damage", [remove, cut])
def test_an_aborted_transaction_that_no_index_names(
    world: World, damage: Callable[[Path], None]
) -> None:
    log = aborted_log(world)
    before = records_of(log)
    [index] = log.directory.glob(f"*{TXN_INDEX}")
    damage(index)
    world.cleaner.start()
    world.ports.scheduler.advance(10_000)
    assert "producer 7 aborted what is in no transaction index" in log.cleaning.uncleanable
    assert records_of(log) == before
    assert world.leftovers(log) == []
    assert not log.is_offline


def test_transactions_that_the_index_names_go_over_and_over(world: World) -> None:
    log = aborted_log(world)
    for _ in range(3):
        world.cleaner.start()
        world.ports.scheduler.advance(10_000)
        fill(log, 20)
        assert not log.cleaning.uncleanable
    assert [r.value for r in records_of(log) if r.key == b"K"] == [b"committed"]


def test_what_a_truncation_took_from_under_the_pass_is_no_damage(world: World) -> None:
    log = world.log(segment_bytes=700)
    fill(log, 20)
    end = log.segments.all[3].base_offset

    def shorten(job: Job) -> None:
        path = log.segments.all[3].path(LOG)
        path.write_bytes(path.read_bytes()[:-1])
        world.worker.before = lambda _: None

    def cut(answer: Answer) -> None:
        if isinstance(answer, Failed):
            seen.append(answer)
            log.truncate_to(end)

    seen: list[Failed] = []
    world.worker.before, world.worker.each = shorten, cut
    world.cleaner.start()
    assert [failed.is_damage for failed in seen] == [True]
    assert not log.cleaning.uncleanable
    fill(log, 20)
    world.ports.scheduler.advance(5000)
    assert world.checkpoint() == log.segments.all[-1].base_offset


@pytest.mark.parametrize("size", [1, 60])
def test_bytes_after_the_last_batch_that_are_none(world: World, size: int) -> None:
    log = world.log(segment_bytes=700)
    fill(log, 20)
    segment = log.segments.all[0]
    with segment.path(LOG).open("ab") as file:
        file.write(bytes(size))
    segment.size_bytes += size
    world.cleaner.start()
    assert "the last batch is cut" in log.cleaning.uncleanable


def test_a_pass_that_fails_for_whatever_reason_sets_its_log_aside_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick, sound = world.log("sick"), world.log("sound")
    fill(sick, 60)
    fill(sound, 20)
    run = LogPass.run

    def fail(one: LogPass) -> object:
        if "sick" in one._job.directory:
            raise OverflowError("too large")
        return run(one)

    monkeypatch.setattr(LogPass, "run", fail)
    world.cleaner.start()
    assert world.cleaner.left_out.uncleanable == [sick]
    reason = f"a pass over {sick.directory} failed with OverflowError: too large"
    assert sick.cleaning.uncleanable == reason
    assert world.checkpoint(sound.topic_partition) == sound.segments.all[-1].base_offset


def test_a_last_batch_that_claims_offsets_of_later_segments(world: World) -> None:
    log = world.log(segment_bytes=700)
    fill(log, 20)
    put(log, ("k0", "newest"))
    fill(log, 20)
    count, first = len(log.segments.all), log.segments.all[0]
    *_, (position, last) = first.batches(0)
    with first.path(LOG).open("r+b") as file:
        file.seek(position)
        file.write((last.base_offset + (1 << 40)).to_bytes(8, "big"))
    world.cleaner.start()
    world.ports.scheduler.advance(10_000)
    assert f"to below {log.segments.all[1].base_offset}" in log.cleaning.uncleanable
    assert len(log.segments.all) == count
    assert world.leftovers(log) == []
