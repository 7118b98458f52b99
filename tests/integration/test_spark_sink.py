"""Writing to topics by Spark: rows of a DataFrame and of a stream, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.tiered_topics import create
from tests.support.lake.consumer import rows_of_consumer
from tests.support.lake.rows import Row
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=40), pytest.mark.timeout(900)]
SCHEMA = (
    "topic string, partition int, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    with spark_session() as session:
        yield session


def frame(spark: "SparkSession", *rows: tuple[Any, ...]) -> "DataFrame":
    return spark.createDataFrame(list(rows), SCHEMA)


def write(data: "DataFrame", broker: BrokerProcess, **options: str) -> None:
    writer = data.write.format("tidemark").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).save()


def rows_of(broker: BrokerProcess, topic: str) -> list[Row]:
    return sorted(rows_of_consumer(broker.bootstrap, topic))


def said(caught: pytest.ExceptionInfo[Exception]) -> str:
    return str(caught.value)


def test_rows_arrive_with_keys_headers_and_partitions(
    spark: "SparkSession", broker: BrokerProcess
) -> None:
    create(broker, "sink-a", 3)
    create(broker, "sink-b", 3)
    header = [("h", b"1"), ("h", None)]
    write(
        frame(
            spark,
            ("sink-a", 2, b"k", b"v", header),
            ("sink-b", 1, None, None, None),
            ("sink-b", 0, b"", b"", []),
        ),
        broker,
    )
    a, b = rows_of(broker, "sink-a"), rows_of(broker, "sink-b")
    assert [(one.partition, one.key, one.value, one.headers) for one in a] == [
        (2, b"k", b"v", (("h", b"1"), ("h", None)))
    ]
    assert [(one.partition, one.key, one.value, one.headers) for one in b] == [
        (0, b"", b"", None),
        (1, None, None, None),
    ]


def test_strings_are_utf_8_and_a_key_goes_where_the_java_client_sends_it(
    spark: "SparkSession", broker: BrokerProcess
) -> None:
    create(broker, "sink-keys", 5)
    keys = [f"schlüssel {number}" for number in range(40)]
    data = spark.createDataFrame([(key, "wert ü") for key in keys], "key string, value string")
    write(data, broker, topic="sink-keys")
    found = rows_of(broker, "sink-keys")
    assert {one.value for one in found} == {"wert ü".encode()}
    assert {one.key: one.partition for one in found} == {
        key.encode(): java_partition(key.encode(), 5) for key in keys
    }


def test_the_topic_option_wins_over_the_column(
    spark: "SparkSession", broker: BrokerProcess
) -> None:
    create(broker, "sink-option")
    write(frame(spark, ("elsewhere", None, None, b"v", None)), broker, topic="sink-option")
    assert [one.value for one in rows_of(broker, "sink-option")] == [b"v"]


def test_what_cannot_be_written_is_said_in_one_line(
    spark: "SparkSession", broker: BrokerProcess
) -> None:
    create(broker, "sink-wrong")
    good = ("sink-wrong", None, None, b"v", None)
    with pytest.raises(Exception) as caught:
        write(frame(spark, (None, None, None, b"v", None)), broker)
    assert "a row has a null topic" in said(caught)
    with pytest.raises(Exception) as caught:
        write(frame(spark, ("sink-wrong", 7, None, b"v", None)), broker)
    assert "a record was not written to sink-wrong-7: " in said(caught)
    with pytest.raises(Exception) as caught:
        write(frame(spark, good).drop("value"), broker)
    assert "there is no column `value`" in said(caught)
    with pytest.raises(Exception) as caught:
        write(frame(spark, good), broker, **{"kafka.compresion.type": "hunter22"})
    assert "has no such property; did you mean kafka.compression.type?" in said(caught)
    assert "in stage" not in said(caught)  # no task has run
    assert "hunter22" not in said(caught)
    with pytest.raises(Exception) as caught:
        frame(spark, good).write.format("tidemark").mode("overwrite").option(
            "kafka.bootstrap.servers", broker.bootstrap
        ).save()
    assert "cannot be overwritten" in said(caught)
    assert rows_of(broker, "sink-wrong") == []


def test_brokers_that_are_away_are_an_error_within_the_deadline(spark: "SparkSession") -> None:
    from tests.support.brokers.process import free_ports

    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    data = frame(spark, ("t", 0, None, b"v", None))
    writer = data.write.format("tidemark").mode("append")
    options = {"kafka.bootstrap.servers": nobody, "kafka.delivery.timeout.ms": "1500"}
    with pytest.raises(Exception) as caught:
        writer.options(**options).save()
    assert "a record was not written to t" in said(caught)


def test_acks_0_is_the_users_choice(spark: "SparkSession", broker: BrokerProcess) -> None:
    create(broker, "sink-acks")
    write(frame(spark, ("sink-acks", None, None, b"v", None)), broker, **{"kafka.acks": "0"})
    assert len(rows_of(broker, "sink-acks")) == 1


def test_a_stream_writes_each_batch(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    create(broker, "sink-stream", 2)
    source = tmp_path / "in"
    source.mkdir()
    for number in range(3):
        lines = "\n".join(f"{number}-{line}" for line in range(100))
        (source / f"{number}.txt").write_text(lines)
    query = (
        spark.readStream.option("maxFilesPerTrigger", "1")
        .text(str(source))
        .writeStream.format("tidemark")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", "sink-stream")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    values = sorted(one.value or b"" for one in rows_of(broker, "sink-stream"))
    assert values == sorted(b"%d-%d" % (a, b) for a in range(3) for b in range(100))


def test_the_mode_complete_appends_the_whole_result_again(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    create(broker, "sink-complete")
    source = tmp_path / "in"
    source.mkdir()
    for number, line in enumerate(("a", "b")):
        (source / f"{number}.txt").write_text(line)
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(source))
    counts = lines.groupBy("value").count()
    writer = counts.writeStream.format("tidemark").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "topic": " sink-complete "}
    )
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.outputMode("complete").trigger(availableNow=True).start().awaitTermination(120)
    values = [one.value for one in rows_of(broker, "sink-complete")]
    assert sorted(values) in ([b"a", b"a", b"b"], [b"a", b"b", b"b"])  # files have no order


def java_partition(key: bytes, count: int) -> int:
    """Kafka's DefaultPartitioner: murmur2 of the key, without its sign, modulo the partitions."""
    seed, m, mask = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF
    h = (seed ^ len(key)) & mask
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    rest = key[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return ((h ^ (h >> 15)) & 0x7FFFFFFF) % count
