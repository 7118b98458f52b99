"""200 MB through the remote tier and back, record by record; then with kill -9 in between."""

import os
import signal
import sysconfig
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.clients import end_offsets
from tests.support.brokers.process import BrokerProcess, until

pytestmark = pytest.mark.lasts(seconds=20)

TOTAL_BYTES = 200_000_000
CHUNK_BYTES = 8_000
SEGMENT_BYTES = 8_000_000
FIRST_TIMESTAMP_MS = 1_700_000_000_000
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "message.timestamp.before.max.ms": str(2**63 - 1),
}


def corpus() -> Iterator[tuple[bytes, bytes]]:
    """Keys and values without end: the standard library's sources, every key different."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    chunks = [
        (path.name, position, text[position : position + CHUNK_BYTES])
        for path in sources
        for text in [path.read_bytes()]
        for position in range(0, len(text), CHUNK_BYTES)
    ]
    lap = 0
    while True:
        for name, position, chunk in chunks:
            yield f"{lap}/{name}@{position}".encode(), chunk
        lap += 1


def records() -> Iterator[tuple[bytes, bytes]]:
    """The corpus up to the total size."""
    size = 0
    for key, value in corpus():
        yield key, value
        size += len(key) + len(value)
        if size >= TOTAL_BYTES:
            return


def create(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=TIERED)])[topic].result(30)


def produce_all(broker: BrokerProcess, topic: str, failures: list[object]) -> None:
    """Send everything, record n with timestamp FIRST_TIMESTAMP_MS + n, over restarts too."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 500,
            "queue.buffering.max.kbytes": 65_536,
        }
    )

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for n, (key, value) in enumerate(records()):
        while True:
            try:
                producer.produce(
                    topic,
                    key=key,
                    value=value,
                    partition=0,
                    timestamp=FIRST_TIMESTAMP_MS + n,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(180):
        failures.append("records left in the producer's queue")


def compare_from(broker: BrokerProcess, topic: str, start: int) -> int:
    """Read from `start` to the end and compare every record with the corpus; return how many."""
    _, high = end_offsets(broker, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    expected = islice(enumerate(records()), start, None)
    position = start
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        while position < high:
            messages = consumer.consume(min(2_000, high - position), 60)
            assert messages, f"nothing more after offset {position} of {high}"
            for message in messages:
                assert message.error() is None, message.error()
                n, (key, value) = next(expected)
                found = (message.offset(), message.key(), message.value(), message.timestamp()[1])
                assert found == (n, key, value, FIRST_TIMESTAMP_MS + n)
                position += 1
    finally:
        consumer.close()
    assert next(expected, None) is None, "the topic ends before the corpus"
    return position - start


def wait_until_only_active_is_local(broker: BrokerProcess, topic: str) -> None:
    """All but the active segment are remote, and their local copies are gone."""

    def settled() -> bool:
        local, remote = broker.local_segments(topic), broker.remote_segments(topic)
        return len(local) == 1 and bool(remote) and remote[-1] < local[0]

    until(settled, "all closed segments are remote and locally gone", deadline_s=120)


def offset_at(broker: BrokerProcess, topic: str, timestamp_ms: int) -> int:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=60)
        assert found[0].error is None
        return int(found[0].offset)
    finally:
        consumer.close()


def check_everything(broker: BrokerProcess, topic: str) -> None:
    wait_until_only_active_is_local(broker, topic)
    total = compare_from(broker, topic, 0)
    assert total * CHUNK_BYTES > TOTAL_BYTES / 4
    middle = total // 2
    assert compare_from(broker, topic, middle) == total - middle
    for n in (0, 1, middle, total - 1):
        assert offset_at(broker, topic, FIRST_TIMESTAMP_MS + n) == n


def ids_in_store_and_metadata_agree(broker: BrokerProcess, topic: str) -> bool:
    """Every segment directory entry in the store is whole: log, indexes and manifest together."""
    kinds: dict[str, set[str]] = {}
    for path in broker.remote_directory.glob(f"**/{topic}-*/0/*"):
        kinds.setdefault(path.stem, set()).add(path.suffix)
    return all(found == {".log", ".indexes", ".manifest"} for found in kinds.values())


@pytest.mark.slow
def test_200_mb_come_back_from_the_remote_tier_record_by_record(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    create(shared_tiered_broker, topic)
    failures: list[object] = []
    produce_all(shared_tiered_broker, topic, failures)
    assert not failures, failures[:3]
    check_everything(shared_tiered_broker, topic)


def kill_broker(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def kill_tier(broker: BrokerProcess) -> None:
    pid = broker.tier_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: broker.tier_pid() not in (None, pid), "the broker starts a new tier")


def kill_both(broker: BrokerProcess) -> None:
    pid = broker.tier_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    broker.kill()
    broker.start()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kill", [kill_broker, kill_tier, pytest.param(kill_both, marks=pytest.mark.long)]
)
def test_kill_9_in_the_midst_of_copying_loses_and_doubles_nothing(
    shared_tiered_broker: BrokerProcess, topic: str, kill: Callable[[BrokerProcess], None]
) -> None:
    create(shared_tiered_broker, topic)
    failures: list[object] = []
    producing = threading.Thread(target=produce_all, args=(shared_tiered_broker, topic, failures))
    producing.start()
    try:
        for copied in (2, 6):
            until(
                lambda copied=copied: len(shared_tiered_broker.remote_segments(topic)) >= copied,
                f"{copied} segments are remote",
                deadline_s=120,
            )
            kill(shared_tiered_broker)
    finally:
        producing.join(240)
    assert not producing.is_alive()
    assert not failures, failures[:3]
    check_everything(shared_tiered_broker, topic)
    until(
        lambda: ids_in_store_and_metadata_agree(shared_tiered_broker, topic),
        "half copies are cleaned out of the store",
        deadline_s=90,
    )
