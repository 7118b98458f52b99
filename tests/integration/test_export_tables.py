"""Commits of real tables: Iceberg by pyiceberg, Delta by deltalake; no Spark is needed."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.errors import OptionError, PipelineError, StoreUnreachableError
from pipeline.jobs.table_ledger import CommitConflictError, Seen, TableLedger
from pipeline.jobs.values import NO_DAY, Committed, OvertakenError
from tests.support.export.real_tables import (
    DAY_US,
    Delta,
    Iceberg,
    World,
    export_rows,
    write,
)
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


def test_a_table_of_other_columns_is_refused_before_any_file_is_written(
    world: World, tmp_path: Path
) -> None:
    world.make_foreign()
    with pytest.raises(OptionError, match="export to a table of its own"):
        world.ledger()
    assert not [*tmp_path.rglob("*tidemark*/*")]


def test_a_table_of_other_types_is_refused(world: World) -> None:
    world.ledger().close()
    with pytest.raises(OptionError, match=r"value.*export to a table of its own"):
        world.ledger(pa.struct([("x", pa.int64())]))


def test_times_that_no_calendar_has(world: World) -> None:
    """Delta holds them without a day, Iceberg cannot; neither loses a row that is there."""
    ledger = world.ledger()
    export_rows(ledger, "one", 0, 10)
    ledger.begin("two", IDENTITY)
    files = write(ledger, "two", 10, 13, from_us=253_402_300_800_000_000 - DAY_US)
    assert {one.day for one in files} == {"9999-12-31", NO_DAY}
    committed = Committed(IDENTITY, {0: 13})
    if isinstance(world, Delta):
        ledger.commit("two", committed, files)
        assert world.offsets() == list(range(13))
        return
    with pytest.raises(PipelineError, match="between offsets 11 and 12 of a year"):
        ledger.commit("two", committed, files)
    assert world.offsets() == list(range(10))


def test_a_store_that_fails_once_after_a_lost_answer_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = world.ledger()
    assert isinstance(ledger, TableLedger)
    ledger.begin("one", IDENTITY)
    files = write(ledger, "one", 0, 10)
    table, failing = ledger._table, []
    real_append, real_look = table.append, table.look

    def append(*args: Any) -> None:
        real_append(*args)
        failing.append(True)
        raise CommitConflictError("the answer was lost")

    def look() -> Seen:
        if failing:
            raise failing.pop() and StoreUnreachableError("the store does not answer")
        return real_look()

    monkeypatch.setattr(table, "append", append)
    monkeypatch.setattr(table, "look", look)
    ledger.commit("one", Committed(IDENTITY, {0: 10}), files)
    assert world.offsets() == list(range(10))
