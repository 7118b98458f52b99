"""Faults on demand, met by real clients: each is seen by them, survived, and gone afterwards."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec

import tidemark
from tests.support.brokers.faulted_clients import LIBRARIES, READERS, SENDERS, admin_error

pytestmark = pytest.mark.lasts(seconds=25)

VALUES = [b"value %d" % number for number in range(30)]
SURVIVED: dict[str, dict[str, Any]] = {
    "retriable error": {"error": "NOT_LEADER_OR_FOLLOWER"},
    "delay": {"delay_ms": 150},
    "delay and error": {"delay_ms": 50, "error": "KAFKA_STORAGE_ERROR"},
    "cut before": {"cut": "before_serving"},
    "cut after": {"cut": "after_serving"},
}
LEAN = ("retriable error", "cut after")
"""What `make test` takes of these with each client."""
CASES = [
    pytest.param(library, kind, marks=() if kind in LEAN else pytest.mark.long(seconds=2))
    for library in LIBRARIES
    for kind in SURVIVED
]

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[tidemark.Broker]:
    settings = {"remote.log.storage.system.enable": "false"}
    with tidemark.Broker(settings=settings) as running:
        yield running


@pytest.fixture
def topic(broker: tidemark.Broker) -> Iterator[str]:
    """A topic of this test alone; no fault is left for the next one."""
    yield new_topic(broker)
    broker.faults.clear()


def new_topic(broker: tidemark.Broker) -> str:
    name = f"faulted-{next(_numbers)}"
    admin = broker.admin()
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


@pytest.mark.parametrize(("library", "kind"), CASES)
def test_a_producer_survives(broker: tidemark.Broker, topic: str, library: str, kind: str) -> None:
    with broker.faults.add(api="Produce", topic=topic, count=2, **SURVIVED[kind]) as fault:
        sent = SENDERS[library](broker.bootstrap_servers, [topic], VALUES)
        assert 1 <= fault.hits <= 2
        if kind not in ("delay", "cut after"):  # those serve: one request may do
            assert fault.is_over
        assert {hit["api"] for hit in fault.last_hits} == {"Produce"}
    assert sent == {topic: 0}
    found = READERS["confluent-kafka"](broker.bootstrap_servers, topic, len(VALUES))
    assert set(found) == set(VALUES)


@pytest.mark.parametrize(("library", "kind"), CASES)
def test_a_consumer_survives(broker: tidemark.Broker, topic: str, library: str, kind: str) -> None:
    SENDERS["confluent-kafka"](broker.bootstrap_servers, [topic], VALUES)
    with broker.faults.add(api="Fetch", topic=topic, count=2, **SURVIVED[kind]) as fault:
        found = READERS[library](broker.bootstrap_servers, topic, len(VALUES))
        assert fault.hits >= 1
    assert found == VALUES


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_error_for_good_is_seen_for_its_topic_alone(
    broker: tidemark.Broker, topic: str, library: str
) -> None:
    other = new_topic(broker)
    with broker.faults.add(api="Produce", topic=topic, error="TOPIC_AUTHORIZATION_FAILED"):
        sent = SENDERS[library](broker.bootstrap_servers, [topic, other], VALUES[:3])
        assert sent == {topic: 29, other: 0}
    assert SENDERS[library](broker.bootstrap_servers, [topic], VALUES[:3])[topic] == 0
    low, high = broker.consumer().get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    assert (low, high) == (0, 3), "what was answered with an error was not written"


def test_an_answer_that_was_lost_was_served(broker: tidemark.Broker, topic: str) -> None:
    """Without idempotence the retry of what was written is written once more."""
    with broker.faults.add(api="Produce", topic=topic, cut="after_serving", count=1) as fault:
        producer = broker.producer(**{"enable.idempotence": False})
        producer.produce(topic, b"once")
        assert producer.flush(30) == 0
        assert fault.hits == 1
    _, high = broker.consumer().get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    assert high == 2
    producer = broker.producer(**{"enable.idempotence": True})
    with broker.faults.add(api="Produce", topic=topic, cut="after_serving", count=1) as fault:
        producer.produce(topic, b"once")
        assert producer.flush(30) == 0
        assert fault.hits == 1
    _, high = broker.consumer().get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    assert high == 3


def test_what_was_cut_before_was_not_served(broker: tidemark.Broker, topic: str) -> None:
    producer = broker.producer(**{"enable.idempotence": False})
    with broker.faults.add(api="Produce", topic=topic, cut="before_serving", count=1) as fault:
        producer.produce(topic, b"once")
        assert producer.flush(30) == 0
        assert fault.hits == 1
    _, high = broker.consumer().get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    assert high == 1


@pytest.mark.smoke
def test_admin_clients_are_told_the_error_and_who_made_it(
    broker: tidemark.Broker, topic: str
) -> None:
    admin, add = broker.admin(), broker.faults.add
    new = NewTopic("faulted-never", 1, 1)
    with add(api="CreateTopics", topic="faulted-never", error="POLICY_VIOLATION") as fault:
        refused = admin_error(lambda: admin.create_topics([new])["faulted-never"].result(30))
        assert refused == (44, f"fault {fault.id}, which a test asked for")
    assert "faulted-never" not in admin.list_topics(timeout=30).topics
    with add(api="DescribeConfigs", topic=topic, error="CLUSTER_AUTHORIZATION_FAILED"):
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        code, _ = admin_error(lambda: admin.describe_configs([resource])[resource].result(30))
        assert code == 31
    with add(api="DeleteTopics", topic=topic, error="TOPIC_DELETION_DISABLED"):
        code, _ = admin_error(lambda: admin.delete_topics([topic])[topic].result(30))
        assert code == 73
    with add(api="Metadata", topic=topic, error="TOPIC_AUTHORIZATION_FAILED"):
        found = admin.list_topics(timeout=30)
        assert found.topics[topic].error.code() == 29
        assert len(found.brokers) == 1, "the rest of the answer is as ever"
    assert admin.list_topics(topic, timeout=30).topics[topic].error is None
    partition = TopicPartition(topic, 0)
    with add(api="ListOffsets", topic=topic, error="TOPIC_AUTHORIZATION_FAILED"):
        asked = admin.list_offsets({partition: OffsetSpec.latest()})[partition]
        assert admin_error(lambda: asked.result(30))[0] == 29


def test_faults_are_listed_removed_and_forgotten_by_a_restart(topic: str) -> None:
    settings = {"remote.log.storage.system.enable": "false"}
    with tidemark.Broker(settings=settings, topics=[topic]) as broker:
        one = broker.faults.add(api="Produce", delay_ms=5)
        two = broker.faults.add(cut="after_serving", client_id="nobody")
        assert [fault.id for fault in broker.faults.list()] == [one.id, two.id]
        one.remove()
        one.remove()
        assert one.is_over
        with pytest.raises(TimeoutError, match="was not hit 1 times"):
            two.wait(timeout_s=0.01)
        broker.restart()
        assert broker.faults.list() == []
        with pytest.raises(tidemark.BrokerError, match="started again since"):
            two.remove()


def test_what_cannot_be_is_said(broker: tidemark.Broker) -> None:
    with pytest.raises(tidemark.BrokerError, match=r"api='Prodoce'.*served are Produce"):
        broker.faults.add(api="Prodoce", delay_ms=5)
    with pytest.raises(tidemark.BrokerError, match="there is no remote store"):
        broker.faults.store.add("refuse")


async def test_the_async_broker_has_them_too() -> None:
    settings = {"remote.log.storage.system.enable": "false"}
    async with tidemark.AsyncBroker(settings=settings, topics=["a"]) as broker:
        async with await broker.faults.add(api="Produce", error=6, count=2) as fault:
            producer = broker.producer()
            producer.produce("a", b"x")
            producer.poll(0)
            await fault.wait(2)
            assert (await fault.hits(), await fault.is_over()) == (2, True)
            assert [hit["api"] for hit in await fault.last_hits()] == ["Produce"] * 2
        assert await broker.faults.list() == []
        await broker.faults.add(delay_ms=1)
        await broker.faults.clear()
        assert producer.flush(30) == 0
