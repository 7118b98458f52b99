"""Exports that are killed at every step, and two at once: each row is committed exactly once."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.errors import DamagedDataError, OptionError, PipelineError
from pipeline.jobs.delta_table import OffsetFiles
from pipeline.jobs.directory_ledger import LOG, DirectoryLedger
from pipeline.jobs.place import LocalPlace
from pipeline.jobs.values import (
    Committed,
    DataFile,
    FilesMissingError,
    Identity,
    OvertakenError,
    Record,
)
from tests.support.export.places import Killed, MemoryPlace, Steps
from tests.support.export.topics import IDENTITY, ToyTopic, export_once
from tests.support.export.worlds import DirectoryWorld, TableWorld, World

MAX_STEPS = 60

WORLDS = pytest.mark.parametrize("make", [DirectoryWorld, TableWorld])


def die() -> None:
    raise Killed


def run(world: World, topic: ToyTopic, name: str, steps: Steps) -> int:
    with suppress(Killed, OvertakenError):
        export_once(world.ledger(steps), topic, name)
    return steps.taken


def finish(world: World, topic: ToyTopic) -> None:
    """A last undisturbed run: afterwards all is there once, and nothing else."""
    export_once(world.ledger(Steps()), topic, "last")
    assert world.rows() == topic.rows
    assert world.litter() == []


@WORLDS
def test_each_run_adds_what_is_new(make: Callable[[], World]) -> None:
    world, topic = make(), ToyTopic()
    finish(world, topic)
    topic.grow()
    export_once(world.ledger(Steps()), topic, "second")
    assert world.rows() == topic.rows


@WORLDS
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("grows", [False, True])
def test_a_run_killed_at_any_step_costs_nothing(
    make: Callable[[], World], *, after: bool, grows: bool
) -> None:
    for step in range(MAX_STEPS):
        world, topic = make(), ToyTopic()
        export_once(world.ledger(Steps()), topic, "first")
        topic.grow()
        taken = run(world, topic, "killed", Steps(step, die, after=after))
        seen = world.rows()
        assert len(seen) == len(set(seen))
        assert set(seen) <= set(topic.rows)
        if grows:
            topic.grow()
        finish(world, topic)
        if taken <= step:
            return
    raise AssertionError("more steps than expected")


@WORLDS
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_killed_while_it_repairs_costs_nothing(
    make: Callable[[], World], *, after: bool
) -> None:
    for first in range(MAX_STEPS):
        for second in range(MAX_STEPS):
            world, topic = make(), ToyTopic()
            taken_first = run(world, topic, "killed", Steps(first, die, after=after))
            taken_second = run(world, topic, "also", Steps(second, die, after=not after))
            finish(world, topic)
            if taken_second <= second:
                break
        if taken_first <= first:
            return
    raise AssertionError("more steps than expected")


@WORLDS
@pytest.mark.parametrize("after", [False, True])
def test_a_whole_run_in_the_middle_of_another_costs_nothing(
    make: Callable[[], World], *, after: bool
) -> None:
    for step in range(MAX_STEPS):
        world, topic = make(), ToyTopic()

        def other(world: World = world, topic: ToyTopic = topic) -> None:
            run(world, topic, "other", Steps())

        taken = run(world, topic, "outer", Steps(step, other, after=after))
        assert world.rows() == topic.rows
        topic.grow()
        finish(world, topic)
        if taken <= step:
            return
    raise AssertionError("more steps than expected")


@WORLDS
@pytest.mark.parametrize("after", [False, True])
def test_another_that_dies_in_the_middle_of_a_run_costs_nothing(
    make: Callable[[], World], *, after: bool
) -> None:
    for outer in range(MAX_STEPS):
        for inner in range(MAX_STEPS):
            world, topic = make(), ToyTopic()
            taken_inner: list[int] = []

            def other(
                world: World = world,
                topic: ToyTopic = topic,
                inner: int = inner,
                taken: list[int] = taken_inner,
            ) -> None:
                taken.append(run(world, topic, "inner", Steps(inner, die, after=after)))

            taken_outer = run(world, topic, "outer", Steps(outer, other))
            finish(world, topic)
            if not taken_inner or taken_inner[0] <= inner:
                break
        if taken_outer <= outer:
            return
    raise AssertionError("more steps than expected")


@WORLDS
def test_another_topic_or_form_is_refused_by_name(make: Callable[[], World]) -> None:
    world = make()
    export_once(world.ledger(Steps()), ToyTopic(), "first")
    made_again = Identity("orders", "11" * 16, "read_uncommitted", "bytes")
    with pytest.raises(OptionError, match="topic_id="):
        world.ledger(Steps()).begin("second", made_again)


def test_a_damaged_log_is_an_error_by_name() -> None:
    world = DirectoryWorld()
    export_once(world.ledger(Steps()), ToyTopic(), "first")
    name = world.place.names(LOG)[-1]
    world.place.remove(f"{LOG}/{name}")
    for damaged in (b"", b"[]", b'{"version": 2}', b'{"version": 1, "kind": "commit"}'):
        world.place.create(f"{LOG}/{name}", damaged)
        with pytest.raises(DamagedDataError, match=name):
            world.ledger(Steps()).look()
        world.place.remove(f"{LOG}/{name}")


def test_a_file_that_a_user_removed_is_not_exported_again() -> None:
    world, topic = DirectoryWorld(), ToyTopic()
    export_once(world.ledger(Steps()), topic, "first")
    world.place.remove("day=2026-11-23")
    topic.grow()
    export_once(world.ledger(Steps()), topic, "second")
    assert world.rows() == [(0, 3), (0, 4), (1, 2), (1, 3)]


def test_a_lost_answer_is_no_second_commit() -> None:
    class Deaf(MemoryPlace):
        def create(self, path: str, data: bytes) -> bool:
            super().create(path, data)
            raise TimeoutError

    place = MemoryPlace()
    ledger = DirectoryLedger(place)
    ledger.begin("one", IDENTITY)
    deaf = Deaf()
    deaf.stored = place.stored
    ledger._place = deaf
    with pytest.raises(TimeoutError):
        ledger.commit("one", Committed(IDENTITY, {0: 1}), [])
    ledger._place = place
    ledger.commit("one", Committed(IDENTITY, {0: 1}), [])
    assert len(place.names(LOG)) == 2


def test_a_file_that_cannot_be_moved_fails_until_the_next_run_moves_it() -> None:
    class Full(MemoryPlace):
        def move(self, source: str, target: str) -> None:
            raise OSError(28, f"no space for {target} from {source}")

    world, topic = DirectoryWorld(), ToyTopic()
    full = Full()
    full.stored = world.place.stored
    with pytest.raises(OSError, match="no space"):
        export_once(DirectoryLedger(full), topic, "first")
    finish(world, topic)


def test_a_directory_of_this_machine_keeps_the_promises(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path / "export")
    assert place.names("a") == []
    assert place.files("a") == {}
    with place.writing("a/b/c") as file:
        file.write(b"xyz")
    assert place.files("a") == {"b/c": 3}
    place.move("a/b/c", "d/e")
    place.move("a/b/c", "d/e")
    assert place.read("d/e") == b"xyz"
    assert place.create("d/f", b"1")
    assert not place.create("d/f", b"2")
    assert place.read("d/f") == b"1"
    assert place.names("d") == ["e", "f"]
    place.remove("d")
    place.remove("d")
    with pytest.raises(FileNotFoundError):
        place.read("d/e")


def test_an_entry_reads_back_as_it_was() -> None:
    entry = Record(7, "run", Committed(IDENTITY, {0: 5, 10: 1}), ())
    assert Record.decode(entry.encode(), "here") == entry
    began = Record(8, "run", Committed(IDENTITY))
    assert Record.decode(began.encode(), "here") == began


@WORLDS
@pytest.mark.parametrize("there", [None, b"0 3\n0"])
def test_a_file_that_is_nowhere_or_half_there_is_not_committed(
    make: Callable[[], World], there: bytes | None
) -> None:
    world, topic = make(), ToyTopic()
    export_once(world.ledger(Steps()), topic, "first")
    before = world.rows()
    topic.grow()
    ledger = world.ledger(Steps())
    ledger.begin("two", IDENTITY)
    if there is not None:
        with ledger.place.writing(f"{ledger.staging('two')}/a.staged") as file:
            file.write(there)
    day = "2026-11-23"
    file_said = DataFile("a.staged", f"day={day}/a.parquet", 0, day, 2, 7, 0, 3, 4, 0, 0)
    with pytest.raises(FilesMissingError, match=r"1 of 1 files .* first a\.staged"):
        ledger.commit("two", Committed(IDENTITY, topic.ends), [file_said])
    assert world.rows() == before
    finish(world, topic)


@WORLDS
def test_a_run_whose_files_a_later_one_removed_is_overtaken(make: Callable[[], World]) -> None:
    world, topic = make(), ToyTopic()
    ledger = world.ledger(Steps())
    ledger.begin("one", IDENTITY)
    world.ledger(Steps()).begin("two", IDENTITY)
    file_said = DataFile("a", "day=2026-11-23/a", 0, "2026-11-23", 2, 7, 0, 0, 1, 0, 0)
    with pytest.raises(OvertakenError):
        ledger.commit("one", Committed(IDENTITY, topic.ends), [file_said])


SAID = Committed(IDENTITY, {0: 12, 1: 0, 3: 77}, {0: 3, 3: 0})


def test_what_is_written_is_read_and_written_again_it_stays() -> None:
    place = MemoryPlace()
    files = OffsetFiles(place)
    files.write(7, "4711", SAID)
    stored = dict(place.stored)
    files.write(7, "4711", SAID)
    assert files.read(7, "4711") == SAID
    assert place.stored == stored
    assert place.names("offsets") == ["00000000000000000007-4711.json"]


def test_a_file_is_never_written_over_with_other_offsets() -> None:
    files = OffsetFiles(MemoryPlace())
    files.write(7, "4711", SAID)
    with pytest.raises(PipelineError, match=r"0007-4711\.json has other offsets than this run"):
        files.write(7, "4711", Committed(IDENTITY, {0: 13}))
    assert files.read(7, "4711") == SAID


def test_a_file_that_is_gone_is_an_error_by_name() -> None:
    with pytest.raises(DamagedDataError, match=r"offsets/0{19}7-4711\.json is not there"):
        OffsetFiles(MemoryPlace()).read(7, "4711")
