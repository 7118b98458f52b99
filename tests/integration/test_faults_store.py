"""Faults of the remote store on demand: copies and reads survive them, and nothing is left."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from confluent_kafka.admin import NewTopic

import tidemark
from tests.support.brokers.faulted_clients import confluent_read
from tests.support.brokers.process import until

pytestmark = pytest.mark.lasts(seconds=15)

VALUES = [b"%05d" % number + b"." * 2_000 for number in range(600)]
_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[tidemark.Broker]:
    with tidemark.Broker() as running:
        yield running


@pytest.fixture
def topic(broker: tidemark.Broker) -> Iterator[str]:
    """A tiered topic with records in two segments; no fault is left for the next test."""
    name = f"stored-{next(_numbers)}"
    admin, config = broker.admin(), {"remote.storage.enable": "true", "segment.bytes": "1048576"}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    yield name
    broker.faults.clear()


def fill(broker: tidemark.Broker, topic: str) -> None:
    producer = broker.producer(batch_size=16_384)
    for value in VALUES:
        producer.produce(topic, value, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def read(broker: tidemark.Broker, topic: str) -> list[bytes]:
    return confluent_read(broker.bootstrap_servers, topic, len(VALUES))


def objects(broker: tidemark.Broker, topic: str) -> list[str]:
    """Segments of a topic in the store."""
    root = broker.data_dir
    return sorted(
        str(path) for path in root.rglob("*.log") if "remote" in str(path) and topic in str(path)
    )


def is_remote(broker: tidemark.Broker, topic: str) -> None:
    (partition,) = broker.tier(topic)
    assert partition["local_log_start_offset"] == len(VALUES)


def test_a_copy_survives_lost_answers_and_leaves_nothing_behind(
    broker: tidemark.Broker, topic: str
) -> None:
    fault = broker.faults.store.add("lose_put_answer", topic=topic, count=3)
    fill(broker, topic)
    is_remote(broker, topic)
    assert fault.hits == 3
    assert {(hit["call"], hit["topic"]) for hit in fault.last_hits} == {("copy", topic)}
    assert read(broker, topic) == VALUES
    # Each copy has objects of its own; those whose answers were lost are deleted.
    until(lambda: len(objects(broker, topic)) == 2, "no more objects than segments")


def test_reads_survive_refusals_and_slowness(broker: tidemark.Broker, topic: str) -> None:
    fill(broker, topic)
    is_remote(broker, topic)
    refused = broker.faults.store.add("refuse", call="read", topic=topic, count=3)
    slow = broker.faults.store.add("slow", call="index", topic=topic, delay_ms=50)
    assert read(broker, topic) == VALUES
    assert refused.is_over
    assert slow.hits >= 1


def test_a_copy_hangs_until_its_fault_is_removed(broker: tidemark.Broker, topic: str) -> None:
    hang = broker.faults.store.add("hang", call="copy", topic=topic)
    fill(broker, topic)
    with ThreadPoolExecutor(1) as beside:
        tiering = beside.submit(is_remote, broker, topic)
        hang.wait(1)
        assert objects(broker, topic) == []
        assert not tiering.done()
        assert read(broker, topic) == VALUES, "what is not copied is read here"
        hang.remove()
        tiering.result(30)
    assert read(broker, topic) == VALUES


def test_a_store_that_refuses_refuses_also_the_next_tier(
    broker: tidemark.Broker, topic: str
) -> None:
    refuse = broker.faults.store.add("refuse", topic=topic)
    fill(broker, topic)
    pid = broker.status()["tier"]["pid"]
    refuse.wait(1)
    os.kill(pid, signal.SIGKILL)
    until(lambda: broker.status()["tier"]["pid"] not in (None, pid), "another tier process")
    before = refuse.hits
    refuse.wait(before + 2)
    assert objects(broker, topic) == []
    refuse.remove()
    is_remote(broker, topic)
    assert refuse.hits >= before + 2
    assert read(broker, topic) == VALUES


def test_what_a_store_cannot_suffer_is_said(broker: tidemark.Broker) -> None:
    with pytest.raises(tidemark.BrokerError, match="slow, refuse, hang, lose_put_answer"):
        broker.faults.store.add("explode")
    with pytest.raises(tidemark.BrokerError, match="slow needs delay_ms"):
        broker.faults.store.add("slow")
