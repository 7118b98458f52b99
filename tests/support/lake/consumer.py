"""The rows that a confluent-kafka consumer gets: the validator of every other reader."""

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as Place

from kafka_protocol.types import TopicPartition
from pipeline.values import OffsetRange
from tests.support.lake.rows import Digest, Row, digests

_SILENCE_S = 60.0


def rows_of_consumer(
    bootstrap: str,
    topic: str,
    *,
    committed: bool = False,
    ranges: Mapping[TopicPartition, OffsetRange] | None = None,
) -> Iterator[Row]:
    """All rows of a topic, partition by partition, ascending by offset within each.

    Args:
        bootstrap: `host:port` of a broker.
        topic: its name.
        committed: read_committed.
        ranges: offsets to be read, and of which partitions; by default all there is now.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    try:
        for partition, wanted in sorted((ranges or _all_of(consumer, topic)).items()):
            yield from _rows_of_partition(consumer, partition, wanted)
    finally:
        consumer.close()


def consumer_digests(bootstrap: str, topic: str, **how: Any) -> dict[TopicPartition, Digest]:
    """Count and hash of each partition; arguments as of `rows_of_consumer`."""
    return digests(rows_of_consumer(bootstrap, topic, **how))


def _all_of(consumer: Consumer, topic: str) -> dict[TopicPartition, OffsetRange]:
    numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    return {
        TopicPartition(topic, number): OffsetRange(
            *consumer.get_watermark_offsets(Place(topic, number), timeout=30)
        )
        for number in numbers
    }


def _rows_of_partition(
    consumer: Consumer, partition: TopicPartition, wanted: OffsetRange
) -> Iterator[Row]:
    """Rows up to the range's end, or up to the end of what the consumer may see."""
    if wanted.start >= wanted.end:
        return
    consumer.assign([Place(*partition, wanted.start)])
    while True:
        messages = consumer.consume(1, _SILENCE_S) + consumer.consume(5_000, 0)
        assert messages, f"nothing of {partition} for {_SILENCE_S} s"
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
            if message.offset() >= wanted.end:
                return
            yield row_of_message(message)
            if message.offset() == wanted.end - 1:
                return


def row_of_message(message: Message) -> Row:
    """A message of confluent-kafka as a row."""
    kind, at_ms = message.timestamp()
    headers = message.headers()
    return Row(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        at_ms,
        int(kind == TIMESTAMP_LOG_APPEND_TIME),
        tuple(headers) if headers else None,
    )
