"""Tables of pyiceberg and deltalake in a directory, and rows for them."""

import secrets
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.jobs.day_files import DayFiles, FileNames
from pipeline.jobs.delta_table import place_name
from pipeline.jobs.export import Target, open_target
from pipeline.jobs.iceberg_catalog import make_iceberg
from pipeline.jobs.iceberg_table import IcebergTable
from pipeline.jobs.ledger import Ledger
from pipeline.jobs.place_fsspec import open_place
from pipeline.jobs.table_ledger import Table, TableLedger
from pipeline.jobs.values import Committed, DataFile
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

    def table(self, value_type: pa.StructType | None = None) -> IcebergTable:
        make_iceberg(self.catalog, "ns.orders", file_schema(value_type))
        return IcebergTable(self.catalog, "ns.orders", "orders")

    def make_foreign(self) -> None:
        """Somebody else's table of that name."""
        self.catalog.create_namespace("ns")
        self.catalog.create_table("ns.orders", pa.schema([("a", pa.int32())]))

    def ledger(self, value_type: pa.StructType | None = None) -> Ledger:
        table = self.table(value_type)
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

    def ledger(self, value_type: pa.StructType | None = None) -> Ledger:
        return open_target(Target(delta=self.url), "orders", value_type)

    def make_foreign(self) -> None:
        """Somebody else's table in that place."""
        from deltalake import DeltaTable

        DeltaTable.create(self.url, pa.schema([("a", pa.int32())]))

    def table(self) -> Table:
        ledger = self.ledger()
        assert isinstance(ledger, TableLedger)
        return ledger._table

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


def rows(first: int, count: int, from_us: int = 20_000 * DAY_US) -> Rows:
    times = [from_us + (number % 3) * DAY_US for number in range(count)]
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


def write(
    ledger: Ledger, run: str, first: int, end: int, from_us: int = 20_000 * DAY_US
) -> list[DataFile]:
    names = FileNames(ledger.staging(run), ledger.suffix, run, "t0")
    files = DayFiles(ledger.place, names, 0)
    files.add(rows(first, end - first, from_us).batch)
    return files.close()


World = Iceberg | Delta


def export_rows(ledger: Ledger, run: str, first: int, end: int) -> None:
    """One run that commits these offsets of partition 0 (end exclusive)."""
    ledger.begin(run, IDENTITY)
    ledger.commit(run, Committed(IDENTITY, {0: end}), write(ledger, run, first, end))
