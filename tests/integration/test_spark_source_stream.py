"""`spark.readStream.format("tidemark")` on a generated bucket: offsets, limits, kills, losses."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.lake.bucket import Bucket
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=60), pytest.mark.timeout(900)]

SECRET = "hush-hush"


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    with spark_session() as session:
        yield session


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """Partitions of 60 and 20 records."""
    with Bucket(tmp_path / "bucket") as made:
        made.partition("orders", 0).batches(20).roll().copy()
        made.partition("orders", 1).batches(10, 2).roll().copy()
        yield made


def number_of(path: Path) -> int:
    """The batch of a file of the checkpoint, or of its checksum."""
    return int(path.name.removeprefix(".").removesuffix(".crc"))


class Query:
    """A stream into Parquet that stops when all is read."""

    def __init__(self, spark: "SparkSession", bucket: Bucket, place: Path) -> None:
        self._spark, self._bucket, self._place = spark, bucket, place
        self.progress: list[dict[str, Any]] = []

    def run(self, **options: str) -> "Query":
        rows = (
            self._spark.readStream.format("tidemark")
            .option("tidemark.bucket", self._bucket.address.settings["dir"])
            .options(**{"subscribePattern": "orders", **options})
            .load()
        )
        query = (
            rows.writeStream.option("checkpointLocation", str(self._place / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self._place / "rows"), "parquet")
        )
        query.awaitTermination(200)
        self.progress = [json.loads(one.json) for one in query.recentProgress]
        return self

    def rows(self) -> list[tuple[int, int]]:
        frame = self._spark.read.parquet(str(self._place / "rows"))
        return sorted((row.partition, row.offset) for row in frame.collect())

    def ends(self) -> list[dict[str, int]]:
        """End of each micro-batch, as the checkpoint has it."""
        return [json.loads(text)["orders"] for text in self.texts()]

    def texts(self) -> list[str]:
        return [
            (self._place / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[-1]
            for batch in range(len(self._batches("offsets")))
        ]

    def forget_the_end_of(self, batch: int) -> None:
        """As if the driver had been killed in that batch."""
        for path in self._place.glob("checkpoint/commits/*"):
            if number_of(path) >= batch:
                path.unlink()
        for path in self._place.glob("checkpoint/offsets/*"):
            if number_of(path) > batch:
                path.unlink()
        if batch == 0:
            shutil.rmtree(self._place / "rows")

    def files(self) -> str:
        return "".join(
            path.read_text("latin-1")
            for path in self._place.glob("checkpoint/**/*")
            if path.is_file()
        )

    def _batches(self, kind: str) -> list[Path]:
        found = (self._place / "checkpoint" / kind).iterdir()
        return [path for path in found if path.name.isdecimal()]


@pytest.fixture
def query(spark: "SparkSession", bucket: Bucket, tmp_path: Path) -> Query:
    return Query(spark, bucket, tmp_path)


def span(partition: int, first: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, end)]


@pytest.mark.smoke
def test_a_limit_cuts_batches_and_a_restart_continues(query: Query, bucket: Bucket) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="limits need PySpark 4.2")
    query.run(startingOffsets="earliest", maxOffsetsPerTrigger="40")
    assert query.ends() == [{"0": 30, "1": 10}, {"0": 60, "1": 20}]
    assert query.texts()[-1] == '{"orders": {"0": 60, "1": 20}}'
    assert query.progress[0]["sources"][0]["latestOffset"] == {"orders": {"0": 60, "1": 20}}
    bucket.partitions[0].batches(5).roll().copy()
    bucket.partition("orders", 2).batches(1, 7).roll().copy()
    query.run(startingOffsets="latest")
    assert query.ends()[2:] == [{"0": 75, "1": 20, "2": 7}]
    assert query.rows() == span(0, 0, 75) + span(1, 0, 20) + span(2, 0, 7)


def test_a_stream_from_the_latest_offsets_keeps_its_start_through_a_kill(
    query: Query, bucket: Bucket
) -> None:
    query.run()
    assert query.ends() == [{"0": 60, "1": 20}]
    query.forget_the_end_of(0)
    bucket.partitions[1].batches(1).roll().copy()
    query.run()
    query.run()  # before 4.2 a run that repeats a batch ends with it
    assert query.ends() == [{"0": 60, "1": 20}, {"0": 60, "1": 23}]
    assert query.rows() == span(1, 20, 23)


def test_a_batch_that_was_killed_is_read_again_as_it_was(query: Query, bucket: Bucket) -> None:
    query.run(startingOffsets="earliest")
    query.forget_the_end_of(0)
    bucket.partitions[0].batches(1).roll().copy()
    bucket.partition("orders", 2).batches(1, 7).roll().copy()
    query.run(startingOffsets="earliest")
    query.run(startingOffsets="earliest")
    assert query.ends() == [{"0": 60, "1": 20}, {"0": 63, "1": 20, "2": 7}]
    assert query.rows() == span(0, 0, 63) + span(1, 0, 20) + span(2, 0, 7)


def test_offsets_that_went_back_are_a_loss(query: Query, bucket: Bucket) -> None:
    from pyspark.errors import StreamingQueryException

    query.run(startingOffsets="earliest", **{"kafka.sasl.jaas.config": SECRET})
    assert SECRET not in query.files()
    assert SECRET not in json.dumps(query.progress)
    for part in ("offsets", "commits"):
        for path in query._place.glob(f"checkpoint/{part}/.*.crc"):
            path.unlink()
    for path in query._place.glob("checkpoint/offsets/0"):
        path.write_text(path.read_text().replace("60", "66"))
    with pytest.raises(StreamingQueryException, match="orders-0 went back from offset 66 to 60"):
        query.run()
    assert query.run(failOnDataLoss="false").ends()[-1] == {"0": 60, "1": 20}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batches only"),
        ({"startingOffsets": '{"orders":{"0":5}}'}, "missing orders-1"),
        ({"subscribePattern": "a&&[", "failOnDataLoss": "true"}, "a \\[ is not closed"),
    ],
)
def test_a_stream_that_cannot_be_says_why(query: Query, options: dict[str, str], said: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=said):
        query.run(**options)
