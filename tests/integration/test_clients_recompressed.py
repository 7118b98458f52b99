"""Batches that a busy thread compresses again: each record once, in the order in which it was sent.

The pool is slow by what it is there for: the topic has a costly level of its codec, and other
producers keep both threads busy with long batches.
"""

import random
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_protocol.records.batch import Codec, iter_batches
from tests.support.brokers.clients import read_all
from tests.support.brokers.process import BrokerProcess, until

TOPIC = "again"
OTHERS = 3
METRICS = "kafka_server_BrokerTopicMetrics_{}RequestsPerSec_total"
COSTLY = {"compression.type": "zstd", "compression.zstd.level": "19"}
SIZES = (10, 10, 200, 30_000)
"""Short batches are opened by the event loop, long ones by a thread: they must not overtake."""

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=45)]


def text(rng: random.Random, size: int) -> bytes:
    return bytes(rng.choices(b"abcdefgh ", k=size))


@pytest.fixture(scope="module")
def busy_broker(broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """A broker that always has another long batch to open."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(TOPIC, 2, 1, config=COSTLY), NewTopic("others", OTHERS, 1, config=COSTLY)]
    for created in client.create_topics(topics).values():
        created.result(30)
    stop = threading.Event()

    def keep_busy(partition: int) -> None:
        value = text(random.Random(partition), 400_000)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        while not stop.is_set():
            producer.produce("others", value, partition=partition)
            producer.flush(60)

    threads = [threading.Thread(target=keep_busy, args=(n,)) for n in range(OTHERS)]
    for thread in threads:
        thread.start()
    try:
        until(
            lambda: broker.metric("tidemark_pool_waiting_calls", pool="batch-opening"),
            "a batch waits for a thread",
        )
        yield broker
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.smoke
@pytest.mark.parametrize(("partition", "idempotent"), [(0, True), (1, False)])
def test_many_in_flight_stay_in_order(
    busy_broker: BrokerProcess, partition: int, idempotent: bool
) -> None:
    rng = random.Random(partition)
    sent = [b"%04d " % n + text(rng, rng.choice(SIZES)) for n in range(60)]
    answered: list[tuple[int, bytes | None]] = []
    refused: list[str] = []

    def on_delivery(error: object, message: Message) -> None:
        if error is None:
            answered.append((message.offset(), message.value()))
        else:
            refused.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": busy_broker.bootstrap,
            "enable.idempotence": idempotent,
            "max.in.flight.requests.per.connection": 5,
            "compression.type": "lz4",
            "batch.num.messages": 2,
            "linger.ms": 0,
        }
    )
    for value in sent:
        producer.produce(TOPIC, value, partition=partition, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert refused == []
    assert [value for _, value in answered] == sent
    found = read_all(busy_broker, TOPIC, partition)
    assert [(offset, value) for offset, _, value in found] == answered
    # A client sends what was refused out of order once more: only the broker knows of it.
    assert busy_broker.metric(METRICS.format("TotalProduce"), topic=TOPIC) > 0
    assert busy_broker.metric(METRICS.format("FailedProduce"), topic=TOPIC) == 0
    [file] = busy_broker.partition_directory(TOPIC, partition).glob("*.log")
    batches = [header for _, header in iter_batches(file.read_bytes())]
    assert {header.codec for header in batches} == {Codec.ZSTD}
    assert len(batches) > len(sent) // 4, "there was not much in flight"
