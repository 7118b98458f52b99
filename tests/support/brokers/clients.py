"""Producing and reading back with confluent-kafka, as most end-to-end tests need it."""

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.brokers.process import BrokerProcess, until

Sent = tuple[bytes | None, bytes | None]
Read = tuple[int, bytes | None, bytes | None]

LEADER_CHANGES = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,  # no follower has confirmed its high watermark yet (KIP-207)
}


def produce(
    broker: BrokerProcess, topic: str, records: Iterable[Sent], partition: int = 0, **config: object
) -> None:
    """Send all records to one partition in order, and wait for every acknowledgement."""
    failures: list[str] = []

    def on_delivery(error: object, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20} | config)
    for key, value in records:
        while True:
            try:
                producer.produce(
                    topic, key=key, value=value, partition=partition, on_delivery=on_delivery
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(120)
    assert left == 0, f"{left} records were not acknowledged:\n{broker.log_tail()}"
    assert not failures, failures[:3]


def end_offsets(broker: BrokerProcess, topic: str, partition: int = 0) -> tuple[int, int]:
    """First offset, and the one after the last.

    Where the leader changes, Kafka's consumer asks again; librdkafka 2.16 does not.
    """
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )

    def asked() -> tuple[int, int] | None:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        except KafkaException as error:
            if error.args[0].code() not in LEADER_CHANGES:
                raise
            return None

    try:
        return until(asked, f"the high watermark of {topic}-{partition} is known")
    finally:
        consumer.close()


def read_all(
    broker: BrokerProcess,
    topic: str,
    partition: int = 0,
    *,
    start: int | None = None,
    silence_s: float = 60,
    **config: object,
) -> list[Read]:
    """Every record from `start` (default: the first) to the end seen at the call."""
    low, high = end_offsets(broker, topic, partition)
    position = low if start is None else start
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        | config
    )
    found: list[Read] = []
    try:
        consumer.assign([TopicPartition(topic, partition, position)])
        heard = time.monotonic()
        while position < high:
            # Not all at once: where offsets are missing there are fewer than it would wait for.
            messages = consumer.consume(min(1_000, high - position), min(1, silence_s))
            silent_s = time.monotonic() - heard
            assert messages or silent_s < silence_s, f"nothing after offset {position} of {high}"
            if messages:
                heard = time.monotonic()
            for message in messages:
                assert message.error() is None, message.error()
                found.append((message.offset(), message.key(), message.value()))
                position = message.offset() + 1
    finally:
        consumer.close()
    return found
