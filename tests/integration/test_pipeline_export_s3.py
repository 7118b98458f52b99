"""An export by Spark to S3: its workers write there, another reader finds every row."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from pipeline.jobs.export import ExportOptions, Target, export, open_target
from pipeline.values import Where
from tests.support.lake.bucket import Bucket
from tests.support.lake.rows import rows_of_arrow
from tests.support.spark.session import spark_session
from tests.support.stores.s3 import CREDENTIALS, REGION, S3Endpoint

pytestmark = [pytest.mark.slow, pytest.mark.long(seconds=90), pytest.mark.timeout(600)]


def test_two_tasks_export_to_s3(
    tmp_path: Path, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3fs = pytest.importorskip("s3fs")
    settings = {"AWS_ENDPOINT_URL": s3.url, "AWS_DEFAULT_REGION": REGION, **CREDENTIALS}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    place = f"{s3.new_bucket()}/some/export"
    with Bucket(tmp_path / "lake") as bucket, spark_session("local[2]") as spark:
        for number in range(2):
            bucket.partition("orders", number).batches(30).roll().copy()
        spark.sparkContext.environment.update(settings)  # of its workers, whenever the JVM began
        options = ExportOptions("orders", Where(store=bucket.address))
        for rows in (180, 30):  # the second time only what came since
            target = open_target(Target(directory=f"s3://{place}"), "orders")
            lines: list[str] = []
            assert export(spark, options, target, lines.append).rows == rows
            assert any("of 2 tasks" in line for line in lines), lines
            again = s3fs.S3FileSystem(skip_instance_cache=True)  # it keeps listings
            found = ds.dataset(place, filesystem=again, partitioning="hive")
            table = found.to_table().drop_columns(["day"])
            assert sorted(rows_of_arrow(table.to_batches())) == sorted(bucket.rows())
            for one in bucket.partitions:
                one.batches(5).roll().copy()
