"""Rows of a topic that is mostly remote, read in every way: those of a confluent-kafka consumer."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark
from pipeline.columns import TYPES
from pipeline.opening import open_log
from pipeline.values import SplitLimits, Where
from tests.support.brokers.process import BrokerProcess
from tests.support.lake.cluster import Filling, epochs_of, fill, store_of, tiered_cluster, where
from tests.support.lake.consumer import rows_of_consumer
from tests.support.lake.reading import rows_of_log, whole_ranges
from tests.support.lake.rows import Row, digests, rows_of_arrow
from tests.support.spark.frames import frame_digests, source_frame
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=45), pytest.mark.timeout(900)]
FILLING = Filling(partitions=2, epochs=3, records=2_500, deleted=100)
TINY = SplitLimits(target_bytes=50_000)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with tiered_cluster(tmp_path_factory.mktemp("filled")) as broker:
        fill(broker, "orders", FILLING)
        yield broker


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    with spark_session("local[2]") as session:
        yield session


@pytest.fixture(scope="module")
def consumed(filled: BrokerProcess) -> list[Row]:
    """What a consumer gets; nothing is produced after."""
    return list(rows_of_consumer(filled.bootstrap, "orders"))


def test_the_topic_is_what_readers_should_be_tried_with(
    filled: BrokerProcess, consumed: list[Row]
) -> None:
    assert [each.count for each in digests(consumed).values()] == [7_400, 7_400]
    assert consumed[0].offset == 100
    assert {row.key for row in consumed} > {None, b""} < {row.value for row in consumed}
    assert any(row.headers and len(row.headers) > 1 for row in consumed)
    for number in range(2):
        assert len(epochs_of(filled, "orders", number)) >= 3
        assert len(filled.remote_segments("orders", number)) > 2
    with closing(open_log(where(filled))) as log:
        partitions = log.partitions(["orders"])
        ends = log.remote_ends(partitions)
        assert all(0 < ends[one] < end for one, end in log.latest(partitions).items())


def test_scan_gives_the_rows_of_a_consumer(filled: BrokerProcess, consumed: list[Row]) -> None:
    reader = tidemark.scan("orders", bootstrap_servers=filled.bootstrap, columns=list(TYPES))
    assert list(rows_of_arrow(reader)) == consumed


@pytest.mark.parametrize("limits", [SplitLimits(), TINY], ids=["whole", "tiny"])
def test_splits_of_any_size_give_the_rows_of_a_consumer(
    filled: BrokerProcess, consumed: list[Row], limits: SplitLimits
) -> None:
    assert rows_of_log(where(filled), "orders", limits=limits) == consumed


def test_the_bucket_alone_gives_the_rows_below_the_remote_end(
    filled: BrokerProcess, consumed: list[Row]
) -> None:
    alone = Where(store=store_of(filled), log_starts=starts_of(filled))
    with closing(open_log(where(filled))) as log:
        ends = log.remote_ends(log.partitions(["orders"]))
    below = [row for row in consumed if row.offset < ends[row.topic, row.partition]]  # type: ignore[index]
    assert rows_of_log(alone, "orders", limits=TINY) == below


def starts_of(broker: BrokerProcess) -> dict[object, int]:
    with closing(open_log(where(broker))) as log:
        return {place: asked.start for place, asked in whole_ranges(log, ["orders"]).items()}


def test_spark_counts_and_hashes_what_a_consumer_does(
    filled: BrokerProcess, consumed: list[Row], spark: "SparkSession"
) -> None:
    frame = source_frame(spark, kafka_bootstrap_servers=filled.bootstrap, subscribe="orders")
    assert frame_digests(frame) == digests(consumed)


def test_a_partition_map_that_misses_or_invents_one_is_refused(
    filled: BrokerProcess, spark: "SparkSession"
) -> None:
    for starts in ({"0": 200}, {"0": 200, "1": 200, "2": 200}):
        frame = source_frame(
            spark,
            kafka_bootstrap_servers=filled.bootstrap,
            subscribe="orders",
            startingOffsets=json.dumps({"orders": starts}),
        )
        with pytest.raises(Exception, match=r"orders-[12]|orders.*[12]") as refused:
            frame.count()
        assert any("startingOffsets" in line for line in str(refused.value).splitlines())


def test_executors_that_cannot_reach_the_store_say_so_in_one_line(
    filled: BrokerProcess, spark: "SparkSession", tmp_path: Path
) -> None:
    frame = source_frame(
        spark,
        kafka_bootstrap_servers=filled.bootstrap,
        subscribe="orders",
        tidemark_bucket=str(tmp_path / "not mounted"),
    )
    with pytest.raises(Exception, match="StoreUnreachableError") as unreachable:
        frame.count()
    lines = [line for line in str(unreachable.value).splitlines() if "not mounted" in line]
    assert any("cannot be used from host" in line for line in lines)


def test_many_partitions_of_spark_give_the_same(
    filled: BrokerProcess, consumed: list[Row], spark: "SparkSession"
) -> None:
    frame = source_frame(
        spark,
        kafka_bootstrap_servers=filled.bootstrap,
        subscribe="orders",
        minPartitions="20",
        maxRecordsPerPartition="700",
    )
    assert frame.rdd.getNumPartitions() >= 20
    assert frame_digests(frame) == digests(consumed)
