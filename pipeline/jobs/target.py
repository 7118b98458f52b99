"""Opens what an export is appended to: a directory, an Iceberg table, or a Delta table."""

from dataclasses import dataclass

import pyarrow as pa

from pipeline.errors import OptionError
from pipeline.jobs.delta_table import DeltaLakeTable, make_delta, offsets_name, place_name
from pipeline.jobs.directory_ledger import DirectoryLedger
from pipeline.jobs.iceberg_catalog import open_iceberg
from pipeline.jobs.ledger import Ledger
from pipeline.jobs.offset_files import OffsetFiles
from pipeline.jobs.place_fsspec import open_place
from pipeline.jobs.table_ledger import TableLedger
from pipeline.jobs.write_task import file_schema


@dataclass(frozen=True, slots=True)
class Target:
    """Exactly one of these.

    Attributes:
        directory: a directory or URL of plain Parquet files.
        iceberg: `CATALOG.NAMESPACE.TABLE`.
        delta: directory or URL of a Delta table.
    """

    directory: str | None = None
    iceberg: str | None = None
    delta: str | None = None


def open_target(target: Target, topic: str, value_type: pa.StructType | None = None) -> Ledger:
    """The ledger of a target; a table is made if there is none.

    Raises:
        OptionError: none or several are named, or a name is wrong.
        MissingPackageError: the library of a table or a store is not installed.
    """
    named = [one for one in (target.directory, target.iceberg, target.delta) if one]
    if len(named) != 1:
        raise OptionError("say where to export to: one of a directory, --iceberg and --delta")
    if target.directory:
        return DirectoryLedger(open_place(target.directory))
    schema = file_schema(value_type)
    if target.iceberg:
        table = open_iceberg(target.iceberg, topic, schema)
        return TableLedger(table, open_place(f"{table.location}/{place_name(topic)}"))
    url = str(target.delta).rstrip("/")
    place = open_place(f"{url}/{place_name(topic)}")
    offsets = OffsetFiles(open_place(f"{url}/{offsets_name(topic)}"))
    return TableLedger(DeltaLakeTable(url, topic, make_delta(url, schema), place, offsets), place)
