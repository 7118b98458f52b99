"""A tiered broker with a topic of every kind of record, most of it in the store alone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import Message, Producer, TopicPartition

from kafka_protocol.files import epoch_checkpoint
from pipeline.values import ClusterAddress, StoreAddress, Where
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import admin_of, create
from tests.support.stores.hdfs import Hdfs

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TOPIC = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "index.interval.bytes": "4096",
    "retention.ms": "-1",
}
_PLUGIN = "remote.log.storage.manager.class.name"
_SETTING = "rsm.config."
NOW_MS = 1_700_000_000_000


class Filling(NamedTuple):
    """How a topic is filled.

    Attributes:
        partitions: how many.
        epochs: leader epochs; between them the broker is restarted.
        records: of each partition in each epoch.
        value_bytes: of a value, about.
        noise_bytes: of these; they cannot be compressed.
        deleted: records deleted at the begin of each partition.
        segment_bytes: of a segment, at most.
    """

    partitions: int = 2
    epochs: int = 3
    records: int = 2_500
    value_bytes: int = 1_000
    noise_bytes: int = 500
    deleted: int = 100
    segment_bytes: int = 1 << 20


@contextmanager
def tiered_cluster(
    directory: Path, *, store: dict[str, str] | None = None, **settings: str
) -> Iterator[BrokerProcess]:
    """A running broker that tiers to a directory, or to `store` (its broker settings)."""
    own = {"log.segment.bytes": "1048576", **settings}
    broker = BrokerProcess(directory, tiered=True, store=store, settings=own)
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.log_tail(100))


def make_topic(broker: BrokerProcess, topic: str, filling: Filling) -> None:
    """Make an empty tiered topic that keeps what it was given, most of it in the store alone."""
    sizes = {"segment.bytes": str(filling.segment_bytes)}
    create(broker, topic, filling.partitions, **_TOPIC, **sizes)


def fill(broker: BrokerProcess, topic: str, filling: Filling = Filling()) -> None:  # noqa: B008 - frozen
    """Make a topic and fill it; returns once what can be is in the store, and there only."""
    make_topic(broker, topic, filling)
    rng = Random(topic)
    for epoch in range(filling.epochs):
        if epoch:
            broker.terminate()
            broker.start()
        produce_more(broker, topic, filling, rng)
    numbers = range(filling.partitions)
    if filling.epochs > 1:
        chains = [epochs_of(broker, topic, number) for number in numbers]
        assert all(len(chain) >= filling.epochs for chain in chains), chains
    for number in numbers:
        settle(broker, topic, number)
    delete_prefix(broker, topic, dict.fromkeys(numbers, filling.deleted))


def produce_more(broker: BrokerProcess, topic: str, filling: Filling, rng: Random) -> None:
    """Add `filling.records` to each partition, in all codecs."""
    for codec in CODECS:
        _produce(broker, topic, rng, filling, codec)


def _produce(broker: BrokerProcess, topic: str, rng: Random, filling: Filling, codec: str) -> None:
    failures: list[str] = []

    def on_delivery(error: object, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 20,
            "batch.size": 65_536,
            "compression.type": codec,
            "enable.idempotence": True,
        }
    )
    for number in range(filling.partitions):
        for record in range(filling.records // len(CODECS)):
            key, value, headers = made_up(rng, record, filling)
            at_ms = NOW_MS + record
            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        key,
                        number,
                        on_delivery,
                        timestamp=at_ms,
                        headers=headers,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
    left = producer.flush(120)
    assert left == 0, f"{left} records were not acknowledged:\n{broker.log_tail()}"
    assert not failures, failures[:3]


def made_up(
    rng: Random, number: int, filling: Filling
) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and headers of a record: nulls, empty ones and repeated names among them."""
    key = (None, b"", b"key of %d" % number)[min(number % 10, 2)]
    noise = rng.randbytes(filling.noise_bytes)
    filler = b"x" * (filling.value_bytes - filling.noise_bytes + number % 37)
    value = (noise + filler, None, b"")[max(0, number % 50 - 47)]
    headers: list[tuple[str, bytes | None]] = []
    if number % 7 == 0:
        headers = [("trace", b"%d" % number), ("trace", None), ("näme", b"")][: 1 + number % 3]
    return key, value, headers


def epochs_of(broker: BrokerProcess, topic: str, partition: int = 0) -> list[tuple[int, int]]:
    """The epoch chain of a partition as the broker keeps it: (epoch, first offset)."""
    path = broker.partition_directory(topic, partition) / "leader-epoch-checkpoint"
    return [tuple(entry) for entry in epoch_checkpoint.parse(path.read_bytes())]


def settle(broker: BrokerProcess, topic: str, partition: int = 0) -> None:
    """Wait until only the active segment of a partition is local."""
    until(
        lambda: len(broker.local_segments(topic, partition)) == 1,
        f"all but the active segment of {topic}-{partition} are remote, and local no more",
        deadline_s=300,
    )


def delete_prefix(broker: BrokerProcess, topic: str, before: dict[int, int]) -> None:
    """Raise the log starts of partitions, by DeleteRecords."""
    wanted = [TopicPartition(topic, number, offset) for number, offset in before.items()]
    admin = admin_of(broker)
    for future in admin.delete_records(wanted).values():
        future.result(30)


def store_of(broker: BrokerProcess) -> StoreAddress:
    """The address of the broker's store."""
    return address_of(broker.properties())


def address_of(properties: Mapping[str, str]) -> StoreAddress:
    """The address of the store that a broker's settings name."""
    own = {
        key.removeprefix(_SETTING): value
        for key, value in properties.items()
        if key.startswith(_SETTING)
    }
    return StoreAddress(properties[_PLUGIN], own)


def hdfs_settings(hdfs: Hdfs) -> dict[str, str]:
    """Settings of a broker that tiers to a folder of its own in HDFS."""
    return {
        _PLUGIN: "rsm_plugins.hdfs:HdfsRemoteStorageManager",
        f"{_SETTING}url": f"{hdfs.rpc}{hdfs.new_root()}",
    }


def where(broker: BrokerProcess, **more: object) -> Where:
    """The broker's cluster as a user names it; the store is to be asked for."""
    return Where(cluster=ClusterAddress(broker.bootstrap), **more)  # type: ignore[arg-type]
