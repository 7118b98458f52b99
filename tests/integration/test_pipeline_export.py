"""Exports of a bucket by Spark: to a directory and to tables, again and again, values decoded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipeline.errors import DataLossError, OptionError
from pipeline.jobs.day_files import FileLimits
from pipeline.jobs.export import Exported, ExportOptions, Target, export, open_target
from pipeline.jobs.ledger import Ledger
from pipeline.jobs.spark_job import JobFailedError
from pipeline.jobs.values import decode_committed
from pipeline.values import Where
from tests.support.lake.bucket import Bucket
from tests.support.lake.rows import Row, rows_of_arrow
from tests.support.lake.stories import an_unclean_election, every_kind_of_record
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=60), pytest.mark.timeout(900)]
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    with spark_session() as session:
        yield session


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with Bucket(tmp_path / "lake") as made:
        every_kind_of_record(made.partition("orders", 0))
        an_unclean_election(made.partition("orders", 1))
        yield made


def options_of(bucket: Bucket, **more: Any) -> ExportOptions:
    return replace(ExportOptions("orders", Where(store=bucket.address)), **more)


def directory(path: Path) -> Ledger:
    return open_target(Target(directory=str(path)), "orders")


def files_of(path: Path) -> list[Path]:
    return sorted(one for one in path.glob("day=*/*.parquet"))


def rows_in(path: Path) -> list[Row]:
    """What a reader of the directory sees, without a word on what is hidden in it."""
    table = ds.dataset(path, partitioning="hive").to_table()
    batches = table.drop_columns(["day"]).sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    return list(rows_of_arrow(batches.to_batches()))


def grow(bucket: Bucket) -> None:
    for one in bucket.partitions:
        one.batches(3).roll().copy()


@pytest.mark.smoke
def test_a_directory_holds_every_row_once_however_often_it_is_exported(
    spark: "SparkSession", bucket: Bucket, tmp_path: Path
) -> None:
    to = tmp_path / "export"
    first = export(spark, options_of(bucket), directory(to))
    assert rows_in(to) == bucket.rows()
    assert first.rows == len(bucket.rows())
    before = files_of(to)
    assert export(spark, options_of(bucket), directory(to)).runs == 0
    assert files_of(to) == before

    grow(bucket)
    second = export(spark, options_of(bucket), directory(to))
    assert rows_in(to) == bucket.rows()
    assert second.rows == len(bucket.rows()) - first.rows
    assert set(before) < set(files_of(to))


def test_a_file_has_one_partition_one_day_and_statistics_of_both(
    spark: "SparkSession", bucket: Bucket, tmp_path: Path
) -> None:
    days = [(NOW_MS + day * DAY_MS, None, b"late", []) for day in (0, 3, 0, 1, 3)]
    bucket.partitions[0].roll().append(*days).roll().copy()
    to = tmp_path / "export"
    export(spark, options_of(bucket), directory(to))
    assert rows_in(to) == bucket.rows()
    for path in files_of(to):
        table = pq.read_table(path, partitioning=None)
        times = pc.cast(pc.strftime(table["timestamp"], "%Y-%m-%d"), pa.string())
        assert set(times.to_pylist()) == {path.parent.name.removeprefix("day=")}
        assert len(set(table["partition"].to_pylist())) == 1
        group = pq.read_metadata(path).row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        known = {one.path_in_schema for one in columns if one.is_stats_set}
        assert known == {"partition", "offset", "timestamp"}
        assert {one.compression for one in columns} == {"ZSTD"}
    names = [path.name.split("-2023")[0] for path in files_of(to)]
    assert len(names) == len(set(names))


def test_runs_end_at_segments_and_each_is_committed(
    spark: "SparkSession", bucket: Bucket, tmp_path: Path
) -> None:
    said: list[str] = []
    small = options_of(bucket, run_bytes=1, task_bytes=2_000)
    to = tmp_path / "export"
    done = export(spark, small, directory(to), said.append)
    assert done.runs > 3
    assert rows_in(to) == bucket.rows()
    assert sum("committed run" in line for line in said) == done.runs


def test_small_limits_make_many_files_of_the_same_rows(
    spark: "SparkSession", bucket: Bucket, tmp_path: Path
) -> None:
    limits = FileLimits(file_bytes=20_000, group_bytes=2_000, waiting_bytes=3_000, open_files=2)
    to = tmp_path / "export"
    export(spark, options_of(bucket, files=limits), directory(to))
    assert rows_in(to) == bucket.rows()
    assert max(path.stat().st_size for path in files_of(to)) < 40_000


def test_spark_reads_the_directory_as_it_is(
    spark: "SparkSession", bucket: Bucket, tmp_path: Path
) -> None:
    to = tmp_path / "export"
    export(spark, options_of(bucket), directory(to))
    left = directory(to)
    identity = left.look().identity  # type: ignore[union-attr]
    left.begin("killed", identity)
    with left.place.writing(f"{left.staging('killed')}/x{left.suffix}") as file:
        file.write(b"no Parquet")
    frame = spark.read.parquet(str(to))
    assert frame.count() == len(bucket.rows())
    assert dict(frame.dtypes)["day"] == "date"
    assert dict(frame.dtypes)["timestamp"] == "timestamp"


def test_values_are_decoded_and_what_does_not_parse_keeps_its_bytes(
    spark: "SparkSession", tmp_path: Path
) -> None:
    values = [
        b'{"id": 7, "name": "n", "tags": ["a", null]}',
        b"{}",
        None,
        b"no json",
        b'{"id": "7"}',
    ]
    with Bucket(tmp_path / "lake") as bucket:
        bucket.partition().append(*((NOW_MS, b"k", one, []) for one in values)).roll().copy()
        kind = pa.struct(
            [("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))]
        )
        done = export(spark, options_of(bucket, value_type=kind), directory(tmp_path / "export"))
        grow(bucket)
        with pytest.raises(OptionError, match="value="):
            export(spark, options_of(bucket), directory(tmp_path / "export"))
    assert done.unparsed == 2
    table = ds.dataset(tmp_path / "export").to_table().sort_by("offset")
    nothing = {"id": None, "name": None, "tags": None}
    assert table["value"].to_pylist() == [
        {"id": 7, "name": "n", "tags": ["a", None]}, nothing, None, None, None,
    ]  # fmt: skip
    assert table["value_raw"].to_pylist() == [None, None, None, b"no json", b'{"id": "7"}']


def test_a_segment_that_is_gone_is_an_error_by_name_and_commits_nothing(
    spark: "SparkSession", bucket: Bucket, tmp_path: Path
) -> None:
    to = tmp_path / "export"
    for path in (tmp_path / "lake" / "store").rglob("*.log"):
        path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(JobFailedError) as caught:
        export(spark, options_of(bucket), directory(to))
    assert "\n" not in str(caught.value)
    assert "orders" in str(caught.value)
    assert not files_of(to)
    assert not directory(to).has_leftovers()


def test_deleted_offsets_are_an_error_unless_they_are_skipped(
    spark: "SparkSession", bucket: Bucket, tmp_path: Path
) -> None:
    to = tmp_path / "export"
    export(spark, options_of(bucket), directory(to))
    end = bucket.partitions[0].end
    bucket.partitions[0].batches(3).roll().batches(3).roll().copy()
    from kafka_protocol.types import TopicPartition

    start = {TopicPartition("orders", 0): end + 5}
    where = replace(Where(store=bucket.address), log_starts=start)
    with pytest.raises(DataLossError, match="were deleted before"):
        export(spark, options_of(bucket, where=where), directory(to))
    where = replace(where, fail_on_data_loss=False)
    done = export(spark, options_of(bucket, where=where), directory(to))
    assert done.lost >= 5
    offsets = [row.offset for row in rows_in(to) if row.partition == 0]
    assert end + 4 not in offsets
    assert end + 5 in offsets


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    (tmp_path / "warehouse").mkdir()
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__EXPORTS__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once a process
    opened = load_catalog("exports", **properties)
    yield opened
    opened.close()


def test_an_iceberg_table_is_appended_to_without_duplicates(
    spark: "SparkSession", bucket: Bucket, catalog: Any
) -> None:
    def run() -> Exported:
        target = open_target(Target(iceberg="exports.lake.orders"), "orders")
        try:
            return export(spark, options_of(bucket), target)
        finally:
            target.close()

    def rows() -> list[Row]:
        # pyiceberg itself reads a list that is null as an empty one
        tasks = catalog.load_table("lake.orders").scan().plan_files()
        paths = [task.file.file_path.removeprefix("file://") for task in tasks]
        table = pa.concat_tables(pq.read_table(path, partitioning=None) for path in paths)
        ordered = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
        return list(rows_of_arrow(ordered.to_batches()))

    run()
    assert rows() == bucket.rows()
    assert run().runs == 0
    grow(bucket)
    run()
    assert rows() == bucket.rows()
    table = catalog.load_table("lake.orders")
    said = table.current_snapshot().summary.additional_properties
    held = decode_committed(said["tidemark.export.orders.committed"], "the snapshot")
    assert held.offsets == {one.id.partition: one.end for one in bucket.partitions}
    assert [field.name for field in table.spec().fields] == ["partition", "timestamp_day"]
    only = list(table.scan(row_filter="partition = 1").plan_files())
    assert 0 < len(only) < len(list(table.scan().plan_files()))


def test_a_delta_table_is_appended_to_without_duplicates(
    spark: "SparkSession", bucket: Bucket, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    to = str(tmp_path / "delta")

    def run() -> Exported:
        return export(spark, options_of(bucket), open_target(Target(delta=to), "orders"))

    def rows() -> list[Row]:
        table = deltalake.DeltaTable(to).to_pyarrow_table().drop_columns(["day"])
        ordered = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
        return list(rows_of_arrow(ordered.to_batches()))

    run()
    assert rows() == bucket.rows()
    assert run().runs == 0
    grow(bucket)
    run()
    assert rows() == bucket.rows()
    held = open_target(Target(delta=to), "orders").look()
    assert held is not None
    assert held.offsets == {one.id.partition: one.end for one in bucket.partitions}
