"""Pools and caches of a running tier, changed over the wire."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

import tidemark
from tests.support.brokers.process import until

pytestmark = pytest.mark.lasts(seconds=25)

VALUE = b"." * 9_000
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
}
_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[tidemark.Broker]:
    with tidemark.Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def as_before(broker: tidemark.Broker) -> Iterator[None]:
    """No fault and no setting is left for the next test."""
    yield
    broker.faults.clear()
    for name in (
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.reader.threads",
        "remote.log.index.file.cache.total.size.bytes",
    ):
        alter(broker, name, None)


def alter(broker: tidemark.Broker, name: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)


def create(broker: tidemark.Broker, partitions: int = 1, **config: str) -> str:
    topic = f"run-{next(_numbers)}"
    settings = TIERED | {key.replace("_", "."): value for key, value in config.items()}
    admin = broker.admin()
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)
    return topic


def fill(broker: tidemark.Broker, topic: str, partitions: int = 1, values: int = 250) -> None:
    """More than two segments a partition."""
    producer = broker.producer(batch_size=65_536)
    for number in range(values * partitions):
        producer.produce(topic, VALUE, partition=number % partitions)
        producer.poll(0)
    assert producer.flush(30) == 0


def is_remote(broker: tidemark.Broker, topic: str) -> None:
    for partition in broker.tier(topic):
        assert partition["local_log_start_offset"] > 0


def reader(broker: tidemark.Broker, topic: str, partitions: range) -> Consumer:
    """A consumer at the beginning, which asks for little at a time."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 60_000,
            "queued.max.messages.kbytes": 300,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    return consumer


def gets(consumer: Consumer, enough: int) -> int:
    """Consume until there are so many records."""
    got = 0
    while got < enough:
        (message,) = consumer.consume(1, 30) or [None]
        assert message is not None, f"{got} of {enough} records, and no more for 30 s"
        assert message.error() is None
        got += 1
    return got


def test_as_many_copies_run_as_the_pool_has_threads_by_now(broker: tidemark.Broker) -> None:
    alter(broker, "remote.log.manager.copier.thread.pool.size", "5")
    hang = broker.faults.store.add("hang", call="copy")
    topic = create(broker, 12)
    fill(broker, topic, 12, values=130)
    hang.wait(5)
    local = create(broker, remote_storage_enable="false")
    fill(broker, local)
    assert hang.hits == 5, "though twelve partitions have something to copy"
    alter(broker, "remote.log.manager.copier.thread.pool.size", "10")
    hang.wait(10)
    hang.remove()
    is_remote(broker, topic)


def test_as_many_reads_run_as_the_pool_has_threads_by_now(broker: tidemark.Broker) -> None:
    topic = create(broker, 12)
    fill(broker, topic, 12)
    is_remote(broker, topic)
    alter(broker, "remote.log.reader.threads", "5")
    hang = broker.faults.store.add("hang", call="index")
    consumer = reader(broker, topic, range(12))
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(gets, consumer, 12)
        hang.wait(5)
        assert hang.hits == 5
        alter(broker, "remote.log.reader.threads", "10")
        hang.wait(10)
        hang.remove()
        assert reading.result(60) == 12
    consumer.close()


def test_a_smaller_index_cache_gives_up_files_at_once(broker: tidemark.Broker) -> None:
    topic = create(broker)
    fill(broker, topic, values=400)
    is_remote(broker, topic)
    consumer = reader(broker, topic, range(1))
    gets(consumer, 300)
    consumer.close()

    def files() -> list[Path]:
        cache = next(iter(broker.data_dir.rglob("remote-log-index-cache")))
        return [path for path in cache.rglob("*") if path.is_file() and ".index" in path.name]

    assert len(files()) > 1
    alter(broker, "remote.log.index.file.cache.total.size.bytes", "1")
    until(lambda: len(files()) <= 1, "the index files are gone, but for one at most")
