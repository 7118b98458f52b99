"""`spark.read.format("tidemark")` on a generated bucket: rows, bounds, filters, refusals."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import register
from tests.support.lake.bucket import Bucket
from tests.support.spark.frames import frame_rows
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=60), pytest.mark.timeout(900)]

BEGIN_MS = 1_700_000_000_000
SECRET = "hush-hush"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """Two partitions of `orders` with four segments each, and two other topics."""
    with Bucket(tmp_path_factory.mktemp("bucket")) as made:
        for number in range(2):
            partition = made.partition("orders", number)
            for segment in range(4):
                for batch in range(5):
                    first_ms = BEGIN_MS + segment * 60_000 + batch * 1000
                    partition.append(
                        (first_ms, b"key", b"value", ()),
                        (first_ms + 1, None, None, (("h", b"1"), ("h", None))),
                        (first_ms + 2, b"", b"", (("", b""),)),
                        codec=segment,
                    )
                partition.roll().copy()
        made.partition("other").batches(2).roll().copy()
        made.partition("cut", log_start=40).batches(5).roll().copy()
        yield made


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    with spark_session(spark_sql_python_filterPushdown_enabled="true") as session:
        yield session


@pytest.fixture
def read(spark: "SparkSession", bucket: Bucket) -> Any:
    """A reader of the bucket alone; options have `_` for `.`."""

    def reader(**options: str) -> Any:
        named = {key.replace("_", "."): value for key, value in options.items()}
        directory = bucket.address.settings["dir"]
        return spark.read.format("tidemark").options(**{"tidemark.bucket": directory, **named})

    return reader


def offsets_of(frame: "DataFrame") -> list[tuple[int, int]]:
    return sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )


def both(first: int, end: int) -> list[tuple[int, int]]:
    return [(number, offset) for number in range(2) for offset in range(first, end)]


@pytest.mark.smoke
def test_rows_are_those_that_were_written(read: Any, bucket: Bucket) -> None:
    rows = frame_rows(read(subscribePattern="or.*|oth\\p{Lower}+", includeHeaders="TRUE").load())
    assert rows == sorted(row for row in bucket.rows() if row.topic != "cut")
    assert {row.headers for row in rows} >= {None, (("h", b"1"), ("h", None)), (("", b""),)}


def test_columns_are_those_of_sparks_kafka_source(read: Any) -> None:
    assert read(subscribe="orders").load().dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    with_headers = read(subscribe="orders", includeHeaders="true").load()
    assert with_headers.dtypes[7] == ("headers", "array<struct<key:string,value:binary>>")


def test_only_named_columns_are_built(read: Any) -> None:
    headers = "headers array<struct<key:string,value:binary>>"
    by_schema = read(subscribe="orders").schema(f"offset bigint, {headers}")
    assert by_schema.load().columns == ["offset", "headers"]
    assert by_schema.load().where("headers is not null").count() == 80
    by_option = read(subscribe="orders", columns="partition, offset").load()
    assert by_option.columns == ["partition", "offset"]
    assert offsets_of(by_option) == both(0, 60)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"orders":{"0":10,"1":-2}}'}, [*both(0, 60)[10:]]),
        (
            {
                "startingOffsets": '{"orders":{"0":7,"1":7}}',
                "endingOffsets": '{"orders":{"0":9,"1":9}}',
            },
            both(7, 9),
        ),
        (
            {
                "startingTimestamp": str(BEGIN_MS + 60_000),
                "endingTimestamp": str(BEGIN_MS + 61_000),
            },
            both(15, 18),
        ),
        (
            {
                "startingTimestamp": str(BEGIN_MS + 10**9),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [],
        ),
        ({"endingTimestamp": str(BEGIN_MS + 10**9)}, both(0, 60)),
        ({"startingTimestamp": "0", "startingOffsets": '{"orders":{"0":59,"1":59}}'}, both(0, 60)),
    ],
)
def test_a_batch_reads_between_its_bounds(
    read: Any, options: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    assert offsets_of(read(subscribe="orders", **options).load()) == expected


def test_assigned_partitions_are_read_alone(read: Any) -> None:
    assert offsets_of(read(assign='{"orders":[1]}').load()) == both(0, 60)[60:]


def test_splits_are_cut_where_the_user_asks_for_more(read: Any) -> None:
    assert read(subscribe="orders").load().rdd.getNumPartitions() == 2
    more = read(subscribe="orders", maxRecordsPerPartition="25").load()
    assert more.rdd.getNumPartitions() >= 6
    assert offsets_of(more) == both(0, 60)
    assert offsets_of(read(subscribe="orders", minPartitions="5").load()) == both(0, 60)


def test_no_match_is_an_empty_frame(read: Any) -> None:
    assert read(subscribePattern="nothing-.*").load().count() == 0


@pytest.mark.parametrize(
    ("condition", "tasks"),
    [
        ("partition = 1 and offset >= 50", 1),
        ("partition in (0, 1) and offset < 20 and offset > 2", 2),
        ("topic = 'nonsense'", 1),
        ("timestamp >= timestamp_millis(1700000180000)", 2),
        ("key is null or offset = 3", 2),
    ],
)
def test_pushed_filters_prune_and_change_no_row(read: Any, condition: str, tasks: int) -> None:
    if not hasattr(pytest.importorskip("pyspark.sql.datasource"), "Filter"):
        pytest.skip("filters are pushed from PySpark 4.1 on")
    pushed = read(subscribe="orders", pushFilters="true").load().where(condition)
    assert offsets_of(pushed) == offsets_of(read(subscribe="orders").load().where(condition))
    assert pushed.rdd.getNumPartitions() == tasks


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "orderz"}, "there is no topic 'orderz'; did you mean orders?"),
        ({"subscribe": "orders", "startingOfsets": "x"}, "did you mean startingOffsets?"),
        ({"startingOffsets": "earliest"}, "exactly one of assign, subscribe, subscribePattern"),
        ({"assign": '{"orders":[0,9]}'}, "partitions that are not there: orders-9"),
        ({"subscribe": "orders", "startingOffsets": "latest"}, "a batch cannot start there"),
        ({"subscribe": "orders", "startingOffsets": '{"orders":{"0":1}}'}, "missing orders-1"),
        ({"subscribe": "orders", "endingOffsets": '{"orders":{"0":1,"1":1,"2":1}}'}, "orders-2"),
        ({"subscribe": "orders", "startingTimestamp": str(BEGIN_MS * 2)}, "Strategy=latest starts"),
        ({"subscribe": "cut", "startingOffsets": '{"cut":{"0":0}}'}, "failOnDataLoss"),
        ({"subscribe": "cut", "startingOffsets": '{"cut":{"0":999}}'}, "failOnDataLoss"),
    ],
)
def test_what_cannot_be_read_fails_by_name(read: Any, options: dict[str, str], said: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        read(**options).load().count()
    assert said in str(caught.value)
    errors = [line for line in str(caught.value).splitlines() if line.startswith("pipeline.")]
    assert len(errors) == 1


def test_lost_offsets_are_skipped_where_that_is_asked_for(read: Any) -> None:
    low = read(subscribe="cut", startingOffsets='{"cut":{"0":0}}', failOnDataLoss="false").load()
    assert offsets_of(low) == [(0, offset) for offset in range(40, 55)]
    high = read(subscribe="cut", startingOffsets='{"cut":{"0":99}}', failOnDataLoss="false").load()
    assert offsets_of(high) == []


def test_a_plan_shows_no_setting(read: Any, capfd: pytest.CaptureFixture[str]) -> None:
    frame = read(subscribe="orders", **{"kafka.sasl.jaas.config": SECRET}).load()
    frame.explain(extended=True)
    frame.count()
    assert SECRET not in str(frame._jdf.queryExecution())
    assert SECRET not in "".join(capfd.readouterr())


def test_a_view_and_a_registered_source_read_the_same(
    spark: "SparkSession", bucket: Bucket, read: Any
) -> None:
    spark.sql(
        "create or replace temporary view orders using tidemark options"
        f" (`tidemark.bucket` '{bucket.address.settings['dir']}', subscribe 'orders')"
    )
    assert spark.table("orders").count() == 120
    register(spark)
    assert read(subscribe="orders").load().count() == 120


def test_a_damaged_option_of_a_store_is_named(read: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="cannot be used from host"):
        read(subscribe="orders", tidemark_bucket=str(tmp_path / "missing")).load().count()
