"""A tiered partition of a broker, and what health and a consumer say of it."""

from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.tiered_topics import create, tiered_away

MakeBroker = Callable[..., BrokerProcess]
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
}


def reasons(broker: BrokerProcess) -> list[str]:
    found: list[str] = broker.health()["reasons"]
    return found


def fill(broker: BrokerProcess, topic: str = "orders", **config: str) -> int:
    create(broker, topic, **TIERED, **config)
    produce(broker, topic, [(None, b"%d" % n + bytes(100_000)) for n in range(45)])
    tiered_away(broker, topic)
    return 45


def first_value(broker: BrokerProcess, topic: str = "orders") -> object:
    """Code of the error that a consumer's application sees at offset 0, or the value it gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.error.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(2)
        if message is None:
            return None
        error = message.error()
        return error.code() if error is not None else message.value()
    finally:
        consumer.close()
