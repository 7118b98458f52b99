"""One log, cleaned by Apache Kafka and by us: the same is left, and each opens the other's."""

import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.files.offset_checkpoint import CLEANER_OFFSETS
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import iter_records
from kafka_protocol.types import TopicPartition
from tests.support.brokers.clients import Read, end_offsets, produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.kafka.peer import SMALL_INDEXES, KafkaPeer
from tests.support.kafka.tools import require_kafka_tools

pytestmark = [pytest.mark.long(seconds=70), pytest.mark.jvm, pytest.mark.slow]

TOPIC = "table"
NEVER = "min.cleanable.dirty.ratio", "1"
OFTEN = ("log.cleaner.backoff.ms=100", "log.initial.task.delay.ms=100")
BIG = 1 << 40


@dataclass
class Cleaned:
    """What is left of the log, and where.

    Attributes:
        directory: of the whole broker, which was stopped.
        reads: offset, key and value of each record, as a read_committed consumer gets them.
        batches: offsets, producer, flags and record count of each batch below `end`.
        end: everything below is clean.
    """

    directory: Path
    reads: list[Read]
    batches: list[tuple[object, ...]]
    end: int


def write(bootstrap: str) -> None:
    """Plain, numbered and transactional records, tombstones, codecs; some transactions abort."""
    rng = random.Random(7)

    def records(count: int) -> Iterator[tuple[bytes, bytes | None]]:
        for _ in range(count):
            value = None if rng.random() < 0.1 else rng.randbytes(rng.randrange(10, 300))
            yield b"key-%d" % rng.randrange(400), value

    for turn, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"t{turn}",
                "compression.type": codec,
                "linger.ms": 5,
            }
        )
        producer.init_transactions(30)
        for number in range(4):
            producer.begin_transaction()
            for key, value in records(300):
                producer.produce(TOPIC, key=key, value=value, partition=0)
            if number % 2:
                producer.commit_transaction(30)
            else:
                producer.flush(30)
                producer.abort_transaction(30)
        for idempotent in (False, True):
            settings = {"compression.type": codec, "enable.idempotence": idempotent}
            plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5} | settings)
            for key, value in records(1500):
                plain.produce(TOPIC, key=key, value=value, partition=0)
            assert plain.flush(60) == 0


def configure(bootstrap: str, name: str, value: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(30)


def cleaned_to(logs: Path) -> int:
    path = logs / CLEANER_OFFSETS
    if not path.exists():
        return 0
    return offset_checkpoint.parse(path.read_bytes()).get(TopicPartition(TOPIC, 0), 0)


def active_base(logs: Path) -> int:
    return max(int(path.stem) for path in (logs / f"{TOPIC}-0").glob("*.log"))


def clean(bootstrap: str, logs: Path) -> int:
    configure(bootstrap, "min.cleanable.dirty.ratio", "0.001")
    until(lambda: cleaned_to(logs) == active_base(logs) > 0, f"{logs} is clean")
    return cleaned_to(logs)


def batches_of(logs: Path, end: int) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for path in sorted((logs / f"{TOPIC}-0").glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_batches(data):
            if header.base_offset < end:
                records = [(r.offset, r.timestamp, r.key) for r in iter_records(data, position)]
                found.append(
                    (
                        header.base_offset,
                        header.last_offset,
                        header.attributes,
                        header.max_timestamp,
                        (header.producer_id, header.producer_epoch, header.base_sequence),
                        records,
                    )
                )
    return found


def copied(source: Path, target: Path) -> Path:
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
    return target


def peer_of(directory: Path) -> KafkaPeer:
    return KafkaPeer(directory, (*SMALL_INDEXES, *OFTEN))


@pytest.fixture(scope="module")
def dirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kafka's directory with a log of some segments that was never cleaned."""
    require_kafka_tools()
    peer = peer_of(tmp_path_factory.mktemp("dirty") / "data")
    try:
        peer.start()
        settings = {
            "cleanup.policy": "compact",
            "segment.bytes": "1048576",
            "delete.retention.ms": str(BIG),
            NEVER[0]: NEVER[1],
        }
        client = AdminClient({"bootstrap.servers": peer.bootstrap})
        client.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(60)
        write(peer.bootstrap)
    finally:
        peer.stop()
    assert active_base(peer.data / "logs") > 0
    assert cleaned_to(peer.data / "logs") == 0
    return peer.data


@pytest.fixture(scope="module")
def by_kafka(dirty: Path, tmp_path_factory: pytest.TempPathFactory) -> Cleaned:
    peer = peer_of(copied(dirty, tmp_path_factory.mktemp("kafka") / "data"))
    try:
        peer.start()
        end = clean(peer.bootstrap, peer.data / "logs")
        reads = read_all(peer, TOPIC)  # type: ignore[arg-type]
    finally:
        peer.stop()
    return Cleaned(peer.data, reads, batches_of(peer.data / "logs", end), end)


@pytest.fixture(scope="module")
def by_us(dirty: Path, tmp_path_factory: pytest.TempPathFactory) -> Cleaned:
    broker = ours(copied(dirty, tmp_path_factory.mktemp("ours") / "data"))
    try:
        broker.start()
        end = clean(broker.bootstrap, broker.log_directory)
        reads = read_all(broker, TOPIC)
        broker.terminate()
    finally:
        broker.close()
        print(broker.log_tail(100))
    return Cleaned(broker.directory, reads, batches_of(broker.log_directory, end), end)


def ours(directory: Path) -> BrokerProcess:
    broker = BrokerProcess(directory, settings=dict(pair.split("=") for pair in OFTEN))
    broker.log_file = directory.parent / "ours.log"
    return broker


def test_the_same_records_are_left(by_kafka: Cleaned, by_us: Cleaned) -> None:
    assert by_us.end == by_kafka.end
    assert by_us.reads == by_kafka.reads
    assert len(by_us.reads) < 3_000


def test_the_same_batches_are_left_with_the_same_headers(by_kafka: Cleaned, by_us: Cleaned) -> None:
    assert by_us.batches == by_kafka.batches


def leads(peer: KafkaPeer) -> bool:
    """A broker answers before it leads what it has."""
    try:
        end_offsets(peer, TOPIC)  # type: ignore[arg-type]
    except KafkaException:
        return False
    return True


def test_kafka_opens_what_we_have_cleaned(by_us: Cleaned, tmp_path: Path) -> None:
    peer = peer_of(copied(by_us.directory, tmp_path / "data"))
    try:
        peer.start()
        until(lambda: leads(peer), "Kafka leads the partition")
        assert read_all(peer, TOPIC) == by_us.reads  # type: ignore[arg-type]
        produce(peer, TOPIC, [(b"new", b"1")])  # type: ignore[arg-type]
        last = read_all(peer, TOPIC)[-1]  # type: ignore[arg-type]
        assert last[1:] == (b"new", b"1")
    finally:
        peer.stop()


def test_we_open_what_kafka_has_cleaned(
    by_kafka: Cleaned, tmp_path: Path, take: Callable[[Path], BrokerProcess]
) -> None:
    broker = take(copied(by_kafka.directory, tmp_path / "data"))
    assert read_all(broker, TOPIC) == by_kafka.reads
    assert "damaged" not in broker.log_text()


@pytest.fixture
def take() -> Iterator[Callable[[Path], BrokerProcess]]:
    made: list[BrokerProcess] = []

    def start(directory: Path) -> BrokerProcess:
        made.append(ours(directory))
        return made[-1].start()

    yield start
    for one in made:
        one.close()
