"""Commits of real tables: Iceberg by pyiceberg, Delta by deltalake; no Spark is needed."""

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import OptionError
from pipeline.jobs.day_files import DayFiles, FileNames
from pipeline.jobs.delta_table import DeltaLakeTable, make_delta, place_name
from pipeline.jobs.iceberg_table import IcebergTable, make_iceberg
from pipeline.jobs.ledger import Ledger
from pipeline.jobs.place_fsspec import open_place
from pipeline.jobs.table_ledger import TableLedger
from pipeline.jobs.values import Committed, DataFile, OvertakenError
from pipeline.jobs.write_task import file_schema
from tests.support.export.topics import IDENTITY

SCHEMA = file_schema(None)
DAY_US = 86_400_000_000
Offsets = list[int]


class Iceberg:
    """A catalog in a file."""

    def __init__(self, root: Path) -> None:
        from pyiceberg.catalog import load_catalog

        self._root = root
        (root / "warehouse").mkdir(parents=True)
        uri, warehouse = f"sqlite:///{root}/catalog.db", f"file://{root}/warehouse"
        self.catalog = load_catalog("c", type="sql", uri=uri, warehouse=warehouse)

    def ledger(self) -> Ledger:
        make_iceberg(self.catalog, "ns.orders", SCHEMA)
        table = IcebergTable(self.catalog, "ns.orders", "orders")
        return TableLedger(table, open_place(f"{table.location}/{place_name('orders')}"))

    def offsets(self) -> Offsets:
        found = self.catalog.load_table("ns.orders").scan().to_arrow()["offset"].to_pylist()
        return sorted(found)

    def other_writer(self) -> None:
        path = self._root / f"{secrets.token_hex(4)}.parquet"
        pq.write_table(rows(1000, 1).to_table(), path)
        self.catalog.load_table("ns.orders").add_files([path.as_uri()])

    def roll_back(self) -> None:
        """To the first run."""
        table = self.catalog.load_table("ns.orders")
        first = table.metadata.snapshots[0].snapshot_id
        table.manage_snapshots().set_current_snapshot(first).commit()

    def close(self) -> None:
        self.catalog.close()


class Delta:
    """A table in a directory."""

    def __init__(self, root: Path) -> None:
        self.url = str(root / "delta")

    def ledger(self) -> Ledger:
        place = open_place(f"{self.url}/{place_name('orders')}")
        return TableLedger(
            DeltaLakeTable(self.url, "orders", make_delta(self.url, SCHEMA), place), place
        )

    def offsets(self) -> Offsets:
        from deltalake import DeltaTable

        return sorted(DeltaTable(self.url).to_pyarrow_table()["offset"].to_pylist())

    def other_writer(self) -> None:
        from deltalake import write_deltalake

        data = rows(1000, 1).to_table()
        day = pa.array([20_000], pa.int32()).cast(pa.date32())
        write_deltalake(self.url, data.append_column("day", day), mode="append")

    def roll_back(self) -> None:
        """To the first run; version 0 made the table."""
        from deltalake import DeltaTable

        DeltaTable(self.url).restore(1)

    def close(self) -> None:
        """Nothing is held."""


class Rows:
    """Rows of partition 0 over three days."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches([self.batch])


def rows(first: int, count: int) -> Rows:
    times = [20_000 * DAY_US + (number % 3) * DAY_US for number in range(count)]
    columns = [
        pa.array([b"k"] * count, pa.binary()),
        pa.array([b"v"] * count, pa.binary()),
        pa.array(["orders"] * count),
        pa.array([0] * count, pa.int32()),
        pa.array(range(first, first + count), pa.int64()),
        pa.array(times, SCHEMA.field("timestamp").type),
        pa.array([0] * count, pa.int32()),
        pa.array([None] * count, SCHEMA.field("headers").type),
    ]
    return Rows(pa.record_batch(columns, schema=SCHEMA))


def write(ledger: Ledger, run: str, first: int, end: int) -> list[DataFile]:
    names = FileNames(ledger.staging(run), ledger.suffix, run, "t0")
    files = DayFiles(ledger.place, names, 0)
    files.add(rows(first, end - first).batch)
    return files.close()


World = Iceberg | Delta


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
