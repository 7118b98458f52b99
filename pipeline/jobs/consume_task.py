"""The work of one task of a verification on its executor: read a partition as any consumer does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pipeline.errors import PipelineError
from pipeline.jobs.record_hash import Digest, hash_record
from pipeline.values import OffsetRange

_SILENCE_S: Final = 120.0
_AT_ONCE: Final = 5000


class ConsumerError(PipelineError):
    """The Kafka client could not read what it was to be compared with."""


@dataclass(frozen=True, slots=True)
class ConsumeTask:
    """Offsets of one partition.

    Attributes:
        client: properties of the consumer. May hold secrets: never shown.
    """

    topic: str
    partition: int
    range: OffsetRange
    client: Mapping[str, str] = field(repr=False)


def bounds(topic: str, client: Mapping[str, str]) -> dict[int, OffsetRange]:
    """The offsets that a consumer may read of each partition now.

    Raises:
        ConsumerError: the brokers do not answer, or there is no such topic.
    """
    from confluent_kafka import KafkaException, TopicPartition

    consumer = _consumer(client)
    try:
        about = consumer.list_topics(topic, timeout=30).topics[topic]
        if about.error is not None:
            raise ConsumerError(f"topic {topic}: {about.error.str()}")
        return {
            number: OffsetRange(
                *consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            )
            for number in sorted(about.partitions)
        }
    except KafkaException as error:
        raise ConsumerError(f"topic {topic}: {error.args[0].str()}") from None
    finally:
        consumer.close()


def consume_task(task: ConsumeTask) -> tuple[int, Digest]:
    """The digest of what a consumer gets of a partition's range.

    Raises:
        ConsumerError: it fails, or hears nothing for two minutes.
    """
    from confluent_kafka import TopicPartition

    digest = Digest()
    if task.range.start >= task.range.end:
        return task.partition, digest
    consumer = _consumer(task.client)
    try:
        consumer.assign([TopicPartition(task.topic, task.partition, task.range.start)])
        while _take(consumer, task, digest):
            pass
    finally:
        consumer.close()
    return task.partition, digest


def _take(consumer: Any, task: ConsumeTask, digest: Digest) -> bool:
    """Add some records; whether there may be more. Markers at the end give no record."""
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError

    where = f"{task.topic}-{task.partition}"
    messages = consumer.consume(1, _SILENCE_S) + consumer.consume(_AT_ONCE, 0)
    if not messages:
        raise ConsumerError(f"{where}: the consumer heard nothing for {_SILENCE_S:.0f} s")
    for message in messages:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return False
            raise ConsumerError(f"{where}: {error.str()}")
        if message.offset() >= task.range.end:
            return False
        kind, at_ms = message.timestamp()
        place = (message.offset(), at_ms, int(kind == TIMESTAMP_LOG_APPEND_TIME))
        digest.add(hash_record(place, message.key(), message.value(), message.headers()))
    return bool(messages[-1].offset() < task.range.end - 1)


def _consumer(client: Mapping[str, str]) -> Any:
    from confluent_kafka import Consumer, KafkaException

    own = {
        "group.id": "tidemark-verify",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "check.crcs": True,
    }
    try:
        return Consumer({**client, **own})
    except KafkaException as error:
        name = next((one for one in client if f'"{one}"' in error.args[0].str()), "one of them")
        raise ConsumerError(f"the Kafka client refuses a setting: {name}") from None
