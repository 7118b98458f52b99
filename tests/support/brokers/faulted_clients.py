"""Three client libraries behind one face, for tests of how they take faults."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

import aiokafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

PATIENCE_S = 30
Values = list[bytes]
Failed = dict[str, int]
"""Error codes by topic; 0: all went well."""


def confluent_send(servers: str, topics: list[str], values: Values) -> Failed:
    failed = dict.fromkeys(topics, 0)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "log_level": 3})
    for value in values:
        for topic in topics:

            def done(error: object, _: object, topic: str = topic) -> None:
                if error is not None:
                    failed[topic] = error.code()  # type: ignore[attr-defined]

            producer.produce(topic, value, partition=0, on_delivery=done)
    assert producer.flush(PATIENCE_S) == 0
    return failed


def confluent_read(servers: str, topic: str, count: int) -> Values:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "log_level": 3,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: Values = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), PATIENCE_S)
            assert messages, f"{len(found)} of {count} records within {PATIENCE_S} s"
            # Where a partition fails librdkafka says so, and continues.
            found += [one.value() for one in messages if one.error() is None]
        return found
    finally:
        consumer.close()


def aiokafka_send(servers: str, topics: list[str], values: Values) -> Failed:
    async def send() -> Failed:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, linger_ms=50)
        await producer.start()
        failed = dict.fromkeys(topics, 0)
        try:
            sent = [
                (topic, await producer.send(topic, value, partition=0))
                for value in values
                for topic in topics
            ]
            for topic, future in sent:
                try:
                    await asyncio.wait_for(future, PATIENCE_S)
                except aiokafka.errors.KafkaError as error:
                    failed[topic] = error.errno
        finally:
            await producer.stop()
        return failed

    return asyncio.run(send())


def aiokafka_read(servers: str, topic: str, count: int) -> Values:
    async def read() -> Values:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            async with asyncio.timeout(PATIENCE_S):
                return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


def kafka_python_send(servers: str, topics: list[str], values: Values) -> Failed:
    # With idempotence an error of one topic is the end of its producer.
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=50, enable_idempotence=False)
    failed = dict.fromkeys(topics, 0)
    try:
        sent = [
            (topic, producer.send(topic, value, partition=0))
            for value in values
            for topic in topics
        ]
        for topic, future in sent:
            try:
                future.get(PATIENCE_S)
            except Exception as error:
                failed[topic] = getattr(error, "errno", -1)
    finally:
        producer.close(10)
    return failed


def kafka_python_read(servers: str, topic: str, count: int) -> Values:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    try:
        consumer.assign([KafkaPythonPartition(topic, 0)])
        return [record.value for _, record in zip(range(count), consumer, strict=False)]
    finally:
        consumer.close()


SENDERS: Mapping[str, Callable[[str, list[str], Values], Failed]] = MappingProxyType(
    {
        "confluent-kafka": confluent_send,
        "aiokafka": aiokafka_send,
        "kafka-python": kafka_python_send,
    }
)
READERS: Mapping[str, Callable[[str, str, int], Values]] = MappingProxyType(
    {
        "confluent-kafka": confluent_read,
        "aiokafka": aiokafka_read,
        "kafka-python": kafka_python_read,
    }
)
LIBRARIES = list(SENDERS)


def admin_error(call: Callable[[], object]) -> tuple[int, str]:
    """Code and text of what an admin client of confluent-kafka is answered."""
    try:
        call()
    except KafkaException as failure:
        return failure.args[0].code(), failure.args[0].str()
    raise AssertionError("nothing failed")
