"""Commits of real tables: Iceberg by pyiceberg, Delta by deltalake; no Spark is needed."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import OptionError
from pipeline.jobs.table_ledger import CommitConflictError
from pipeline.jobs.values import Committed, OvertakenError
from tests.support.export.real_tables import Delta, Iceberg, World, export_rows, write
from tests.support.export.topics import IDENTITY


@pytest.fixture(params=[("pyiceberg", Iceberg), ("deltalake", Delta)], ids=lambda one: one[0])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    package, make = request.param
    pytest.importorskip(package)
    with closing(make(tmp_path)) as made:
        yield made


def test_a_run_that_was_overtaken_leaves_neither_rows_nor_files(world: World) -> None:
    first, second = world.ledger(), world.ledger()
    assert first.begin("one", IDENTITY) == Committed(IDENTITY)
    left = write(first, "one", 0, 10)
    assert second.has_leftovers()
    assert second.begin("two", IDENTITY) == Committed(IDENTITY)
    assert not first.place.files(first.staging("one"))
    with pytest.raises(OvertakenError):
        first.commit("one", Committed(IDENTITY, {0: 10}), left)
    first.abandon("one")
    second.commit("two", Committed(IDENTITY, {0: 10}), write(second, "two", 0, 10))
    assert world.offsets() == list(range(10))
    assert not second.has_leftovers()
    assert second.look() == Committed(IDENTITY, {0: 10})


def test_a_commit_whose_answer_was_lost_is_found_again(world: World) -> None:
    ledger = world.ledger()
    ledger.begin("one", IDENTITY)
    files = write(ledger, "one", 0, 10)
    for _ in range(2):
        ledger.commit("one", Committed(IDENTITY, {0: 10}), files)
    assert world.offsets() == list(range(10))


def test_files_of_a_commit_survive_a_run_that_was_killed_behind_it(world: World) -> None:
    ledger = world.ledger()
    ledger.begin("one", IDENTITY)
    marker = ledger.place.names("_tidemark/open")[0]
    ledger.commit("one", Committed(IDENTITY, {0: 10}), write(ledger, "one", 0, 10))
    ledger.place.create(f"_tidemark/open/{marker}", b"")  # as if it had not come to remove it
    later = world.ledger()
    assert later.begin("two", IDENTITY) == Committed(IDENTITY, {0: 10})
    later.commit("two", Committed(IDENTITY, {0: 12}), write(later, "two", 10, 12))
    assert world.offsets() == list(range(12))


def test_other_writers_of_the_table_are_no_conflict(world: World) -> None:
    ledger = world.ledger()
    ledger.begin("one", IDENTITY)
    files = write(ledger, "one", 0, 10)
    world.other_writer()
    ledger.commit("one", Committed(IDENTITY, {0: 10}), files)
    world.other_writer()
    assert world.ledger().look() == Committed(IDENTITY, {0: 10})
    assert world.offsets() == [*range(10), 1000, 1000]


def test_rows_of_another_topic_id_are_refused(world: World) -> None:
    ledger = world.ledger()
    ledger.begin("one", IDENTITY)
    ledger.commit("one", Committed(IDENTITY, {0: 10}), write(ledger, "one", 0, 10))
    with pytest.raises(OptionError, match="topic_id="):
        world.ledger().begin("two", replace(IDENTITY, topic_id="11" * 16))


def test_a_table_that_was_rolled_back_is_filled_again_from_there(world: World) -> None:
    ledger = world.ledger()
    for run, (first, end) in enumerate([(0, 10), (10, 20)]):
        name = f"run{run}"
        ledger.begin(name, IDENTITY)
        offsets = {0: end, 1: 7} if run else {0: end}
        said = Committed(IDENTITY, offsets, dict.fromkeys(offsets, run))
        ledger.commit(name, said, write(ledger, name, first, end))
    world.roll_back()
    assert world.offsets() == list(range(10))
    assert ledger.begin("again", IDENTITY) == Committed(IDENTITY, {0: 10}, {0: 0})
    files = write(ledger, "again", 10, 20)
    ledger.commit("again", Committed(IDENTITY, {0: 20}), files)
    assert world.offsets() == list(range(20))
    assert world.ledger().look() == Committed(IDENTITY, {0: 20})


def test_a_table_that_is_rolled_back_under_a_run_does_not_take_its_commit(world: World) -> None:
    export_rows(world.ledger(), "one", 0, 10)
    export_rows(world.ledger(), "two", 10, 20)
    ledger = world.ledger()
    assert ledger.begin("three", IDENTITY).offsets == {0: 20}
    files = write(ledger, "three", 20, 25)
    world.roll_back()
    with pytest.raises(OvertakenError):
        ledger.commit("three", Committed(IDENTITY, {0: 25}), files)
    ledger.abandon("three")
    export_rows(world.ledger(), "again", 10, 25)
    assert world.offsets() == list(range(25))


def test_a_commit_holds_for_the_state_that_was_seen_alone(world: World) -> None:
    export_rows(world.ledger(), "one", 0, 10)
    export_rows(world.ledger(), "two", 10, 20)
    table = world.table()
    seen = table.look()
    world.roll_back()
    with pytest.raises(CommitConflictError):
        table.append(seen, "three", Committed(IDENTITY, {0: 25}), [])
