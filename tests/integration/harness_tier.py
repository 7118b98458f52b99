"""What must hold of store and metadata once nothing is under way: checked from outside.

The store is listed by its file names, the metadata topic is read as any consumer reads it and
folded by the state tables. Neither asks the broker what it believes.
"""

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
from harness_broker import BrokerProcess, until
from harness_clients import read_all

from kafka_protocol.wire.primitives import uuid_to_text
from rlmm import records
from rlmm.fold import Fold
from rlmm.lifecycle import Verdict
from rlmm.store import MemoryStore, Position
from rsm_plugins.segment import SegmentState

METADATA_TOPIC = "__remote_log_metadata"
METADATA_PARTITIONS = 3
KINDS = ("indexes", "log", "manifest")
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


def listed(broker: BrokerProcess) -> set[str]:
    """Every file in the store."""
    return {path.name for path in broker.remote_directory.rglob("*") if path.is_file()}


def finished(broker: BrokerProcess) -> tuple[set[str], list[str]]:
    """Names of the objects of all FINISHED segments, and the segments in another live state."""
    store = MemoryStore()
    for number in range(METADATA_PARTITIONS):
        fold = Fold(store, number)
        for offset, _, value in read_all(broker, METADATA_TOPIC, number):
            verdict = fold.take(records.decode(value), order=offset, seen_ms=0)
            assert isinstance(verdict, Verdict)
        store.write(number, fold.changes, Position(0, 0))
    names: set[str] = set()
    under_way: list[str] = []
    for number in range(METADATA_PARTITIONS):
        for facts in store.all_facts(number):
            key = facts.topic_id_partition.topic_id, facts.topic_id_partition.partition
            for entry in store.entries(number, key):
                metadata = entry.metadata
                stem = f"{metadata.start_offset:020d}-{uuid_to_text(metadata.id.id)}"
                if metadata.state is SegmentState.COPY_SEGMENT_FINISHED:
                    names |= {f"{stem}.{kind}" for kind in KINDS}
                else:
                    under_way.append(f"{facts.topic_id_partition.topic} {stem} {metadata.state}")
    return names, under_way


def disagreements(broker: BrokerProcess) -> list[str]:
    """What is in the store and in no FINISHED segment, the other way round, or still under way."""
    in_store = listed(broker)
    names, under_way = finished(broker)
    return [
        *(f"only in the store: {name}" for name in sorted(in_store - names)),
        *(f"only in the metadata: {name}" for name in sorted(names - in_store)),
        *under_way,
    ]


def agreed(broker: BrokerProcess) -> None:
    """Wait until the store holds the objects of FINISHED segments, exactly."""
    last: list[str] = []

    def agree() -> bool:
        last[:] = disagreements(broker)
        return not last

    try:
        until(agree, "store and metadata agree")
    except AssertionError as error:
        raise AssertionError(f"{error}\n" + "\n".join(last)) from None
