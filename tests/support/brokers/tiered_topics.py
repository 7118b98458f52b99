"""Tiered topics for tests: made, changed, cut, deleted, and waited for."""

from collections.abc import Iterable

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.brokers.process import BrokerProcess, until

TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
QUICK = {"log.segment.bytes": "1048576", "tidemark.remote.copy.max.ms": "1500"}
"""Small segments, and deletions that are final after a moment."""


def values(count: int, first: int = 0) -> list[tuple[bytes, bytes]]:
    """Records of about 4.5 kB, each with a value of its own: 230 of them fill a segment."""
    return [(b"%d" % n, (b"%09d/" % n) * 450) for n in range(first, first + count)]


def as_read(records_made: Iterable[tuple[bytes, bytes]], first: int = 0) -> list[object]:
    """What a consumer gets for records that begin at offset `first`."""
    return [(first + n, key, value) for n, (key, value) in enumerate(records_made)]


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, partitions, 1, config=settings)
    admin = admin_of(broker)  # it must outlive its request
    admin.create_topics([new])[topic].result(30)


def delete_topic(broker: BrokerProcess, topic: str) -> None:
    admin = admin_of(broker)
    admin.delete_topics([topic])[topic].result(30)


def alter(broker: BrokerProcess, kind: ResourceType, name: str, **config: str) -> None:
    changes = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=changes)
    admin = admin_of(broker)
    admin.incremental_alter_configs([resource])[resource].result(30)


def delete_records(broker: BrokerProcess, topic: str, before: int) -> int:
    """Delete what is below `before` (-1: all that is committed); returns the new log start."""
    partition = TopicPartition(topic, 0, before)
    admin = admin_of(broker)
    low: int = admin.delete_records([partition])[partition].result(30).low_watermark
    return low


def tiered_away(broker: BrokerProcess, topic: str, partition: int = 0) -> None:
    """Wait until all but the active segment are in the store, and there only."""
    until(
        lambda: (
            len(broker.local_segments(topic, partition)) == 1
            and len(broker.remote_segments(topic, partition)) > 1
        ),
        f"all but the active segment of {topic}-{partition} are remote, and local no more",
    )
