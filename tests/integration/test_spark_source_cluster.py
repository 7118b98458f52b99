"""A stream of a running broker: it catches up from the remote tier and goes on at the tail."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import admin_of, create
from tests.support.lake.cluster import Filling, fill, tiered_cluster
from tests.support.lake.consumer import consumer_digests
from tests.support.spark.frames import frame_digests
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=60), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with tiered_cluster(tmp_path_factory.mktemp("broker")) as started:
        fill(started, "orders", Filling(epochs=2, records=800, deleted=50))
        yield started


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    with spark_session() as session:
        yield session


def produce(broker: BrokerProcess, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(records):
        producer.produce(topic, b"value %d" % number, partition=number % 2)
    assert producer.flush(60) == 0


def started(spark: "SparkSession", broker: BrokerProcess, place: Path, **options: str) -> Any:
    """A stream into Parquet that continues until it is stopped."""
    rows = (
        spark.readStream.format("tidemark")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .options(includeHeaders="true", **options)
        .load()
    )
    return rows.writeStream.option("checkpointLocation", str(place / "checkpoint")).start(
        str(place / "rows"), "parquet"
    )


def all_read(query: "StreamingQuery", rows: int) -> bool:
    assert query.exception() is None, query.exception()
    return sum(one.numInputRows for one in query.recentProgress) >= rows


def test_a_stream_goes_from_the_remote_tier_to_the_tail(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    query = started(spark, broker, tmp_path, subscribe="orders", startingOffsets="earliest")
    try:
        until(lambda: all_read(query, 3_100), "the history is read", deadline_s=120)
        produce(broker, "orders", 300)
        until(lambda: all_read(query, 3_400), "the tail is read", deadline_s=60)
    finally:
        query.stop()
    read = spark.read.parquet(str(tmp_path / "rows"))
    assert frame_digests(read) == consumer_digests(broker.bootstrap, "orders")


def test_new_topics_of_a_pattern_are_read_and_deleted_ones_are_a_loss(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    create(broker, "news-1", 2)
    query = started(spark, broker, tmp_path, subscribePattern="news-.*")
    try:
        until(lambda: query.lastProgress is not None, "it is started", deadline_s=120)
        create(broker, "news-2", 2)
        produce(broker, "news-2", 20)
        until(lambda: all_read(query, 20), "the new topic is read", deadline_s=60)
        admin = admin_of(broker)  # it must live until it has its answer
        admin.delete_topics(["news-2"])["news-2"].result(30)
        until(lambda: query.exception() is not None, "the stream fails", deadline_s=120)
        assert "news-2-0 is gone" in str(query.exception())
        assert "failOnDataLoss=false" in str(query.exception())
    finally:
        query.stop()
    again = started(spark, broker, tmp_path, subscribePattern="news-.*", failOnDataLoss="false")
    try:
        produce(broker, "news-1", 10)
        until(lambda: all_read(again, 10), "it continues without the topic", deadline_s=120)
    finally:
        again.stop()
