"""What clients see of brokers: which serve, which lead, what is acknowledged, what is read."""

import asyncio
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.quorum.quorum import until_asked

PATIENCE_S = 60


async def until_true(look: Callable[[], bool], what: str) -> None:
    await until_asked(look, what, deadline_s=PATIENCE_S)


def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "socket.timeout.ms": 10_000})


def leaders(address: str, topic: str) -> dict[int, int]:
    """Partition to leader, as this node says; nothing where it does not answer."""
    try:
        found = admin(address).list_topics(topic, timeout=5).topics[topic]
    except KafkaException:
        return {}
    return {index: partition.leader for index, partition in found.partitions.items()}


def brokers(address: str) -> set[int]:
    try:
        return set(admin(address).list_topics(timeout=5).brokers)
    except KafkaException:
        return set()


def topics_of(address: str) -> set[str]:
    """All names that this node knows; the name of a topic in the request could create it."""
    return set(admin(address).list_topics(timeout=10).topics)


def produce(address: str, topic: str, partitions: list[int], values: Iterator[int]) -> set[bytes]:
    """One record to each partition; returns what was acknowledged."""
    acknowledged: set[bytes] = set()

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged.add(message.value())  # type: ignore[attr-defined]

    settings = {"bootstrap.servers": address, "enable.idempotence": True}
    producer = Producer(settings | {"delivery.timeout.ms": 30_000})
    for partition in partitions:
        value = str(next(values)).encode()
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(40) == 0
    return acknowledged


def consume(address: str, topic: str, count: int, group: str = "g") -> set[bytes]:
    """What a group reads from the beginning."""
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: set[bytes] = set()
    try:
        for _ in range(600):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.add(message.value())
            if len(found) >= count:
                break
    finally:
        consumer.close()
    return found


async def delete(address: str, topic: str) -> None:
    tools = admin(address)
    await asyncio.to_thread(tools.delete_topics([topic])[topic].result, 30)


async def create(address: str, topic: str, partitions: int, *, replicas: int = 1) -> dict[int, int]:
    """Create a topic; partition to leader."""
    tools = admin(address)
    made = tools.create_topics([NewTopic(topic, partitions, replicas)])
    await asyncio.to_thread(made[topic].result, 30)
    return await asyncio.to_thread(leaders, address, topic)


async def grow(address: str, topic: str, count: int) -> None:
    """Give a topic more partitions, and wait until this node knows them and all are led."""
    tools = admin(address)
    grown = tools.create_partitions([NewPartitions(topic, count)])
    await asyncio.to_thread(grown[topic].result, 30)

    def are_led() -> bool:
        found = leaders(address, topic)
        return len(found) == count and -1 not in found.values()

    await until_true(are_led, f"the partitions of {topic} are led")
