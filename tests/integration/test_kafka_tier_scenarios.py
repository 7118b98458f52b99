"""What Kafka's own tests of tiered storage do to several brokers, done to three of ours.

Source: org.apache.kafka.tiered.storage.integration in `storage/src/test` of Apache Kafka;
docs/kip-matrix.md has a row for each of its tests, with the others that cover them. Kafka counts
batches to a segment; here three records of 300 kB fill one of a megabyte.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic, ResourceType

import tidemark
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.wire.api_keys import ApiKey
from local_log.manager.log_dir import CLEAN_SHUTDOWN
from tests.support.brokers.clients import end_offsets, read_all
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import RawClient
from tests.support.brokers.tiered_topics import TIERED, alter, delete_records

pytestmark = [pytest.mark.lasts(seconds=90), pytest.mark.slow]

IDS = (11, 12, 13)
PATIENCE_S = 60
VALUE_BYTES = 300_000
EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -4, -5
COPY_NO_MORE = {
    "remote_log_copy_disable": "true",
    "local_retention_bytes": "-2",
    "local_retention_ms": "-2",
}
COPY_AGAIN = {"remote_log_copy_disable": "false", "local_retention_bytes": "1"}


@pytest.fixture(scope="module")
def nodes() -> Iterator[tidemark.Broker]:
    with tidemark.Broker(brokers=3) as started:
        yield started


@pytest.fixture
def cluster(nodes: tidemark.Broker) -> tidemark.Broker:
    nodes.restore()
    return nodes


class Tiered:
    """A tiered topic with three replicas of each partition, and what was produced to it."""

    def __init__(self, cluster: tidemark.Broker, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.at: Any = SimpleNamespace(bootstrap=cluster.bootstrap_servers)
        self._values: dict[int, list[bytes]] = {}
        settings = TIERED | {"segment.bytes": "1048576"}
        admin = cluster.admin()  # it must outlive its request
        admin.create_topics([NewTopic(name, 1, 3, config=settings)])[name].result(PATIENCE_S)

    def produce(self, count: int, partition: int = 0, *, first_ms: int = 0) -> None:
        """One batch a record, so that segments end where Kafka's do."""
        there = self._values.setdefault(partition, [])
        producer: Producer = self.cluster.producer(enable_idempotence=True)
        for number in range(count):
            value = (b"%d/%d " % (partition, len(there))).ljust(VALUE_BYTES, b".")
            there.append(value)
            timestamp = first_ms and first_ms + number
            producer.produce(self.name, value, partition=partition, timestamp=timestamp)
            assert producer.flush(PATIENCE_S) == 0

    def reads_all(self, partition: int = 0, *, start: int = 0) -> bool:
        """Whether a consumer gets every record from `start` on, which is the first one."""
        found = read_all(self.at, self.name, partition)
        values = self._values[partition]
        return found == [(n, None, values[n]) for n in range(start, len(values))]

    @property
    def leader(self) -> Any:
        """The broker that leads the first partition, as clients know it; has id and port."""
        found = self.cluster.admin().list_topics(self.name, timeout=PATIENCE_S)
        return found.brokers.get(found.topics[self.name].partitions[0].leader)

    def local(self, partition: int = 0) -> list[list[int]]:
        """Base offsets of the segments of each replica."""
        places = self.cluster.data_dir.glob(f"broker*/logs/{self.name}-{partition}")
        return [sorted(int(path.stem) for path in place.glob("*.log")) for place in places]

    def remote(self, partition: int = 0) -> list[int]:
        """Base offsets of the complete segments in the store."""
        found = self.cluster.data_dir.glob(f"remote-tier/{self.name}-*/{partition}/*.manifest")
        return sorted(int(path.name.split("-")[0]) for path in found)

    def until_tiered(self, remote: list[int], local: int, partition: int = 0) -> None:
        """Wait until these segments are in the store, and no replica has one below `local`."""
        until(
            lambda: self.remote(partition) == remote and self.local(partition) == [[local]] * 3,
            f"{remote} of {self.name}-{partition} are in the store, {local} alone is local",
        )

    def lose_leader(self) -> None:
        """Have another replica lead, under another leader epoch."""
        lost = self.leader.id
        self.cluster.kill(lost)
        until(lambda: self.leader and self.leader.id != lost, "another one leads")
        self.cluster.restore()

    def listed(self, timestamp: int) -> tuple[int, int]:
        """(leader epoch, offset) that the leader lists for a timestamp."""
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        fields = {"replica_id": -1, "topics": [{"name": self.name, "partitions": [partition]}]}
        with RawClient(self.at, self.leader.port) as client:
            found = client.ask(ApiKey.LIST_OFFSETS, 9, fields).topics[0].partitions[0]
        assert found.error_code == 0, found
        return found.leader_epoch, found.offset


def test_partitions_that_are_added_are_tiered_beside_the_first(cluster: tidemark.Broker) -> None:
    """PartitionsExpandTest. Else tiers know nothing of partitions that come later: they map to
    metadata partitions that their brokers do not read yet."""
    topic = Tiered(cluster, "expanded")
    topic.produce(7)
    topic.until_tiered([0, 3], 6)
    admin = cluster.admin()
    admin.create_partitions([NewPartitions("expanded", 3)])["expanded"].result(PATIENCE_S)
    assert topic.reads_all()
    for partition in (1, 2):
        topic.produce(7, partition)
        topic.until_tiered([0, 3], 6, partition)
    topic.produce(6)
    topic.until_tiered([0, 3, 6, 9], 12)
    for partition in range(3):
        assert topic.reads_all(partition)


def test_offsets_are_listed_across_tiers_leaders_and_deletions(cluster: tidemark.Broker) -> None:
    """ListOffsetsTest, DeleteSegmentsDueToLogStartOffsetBreachTest. Else a new leader lists what
    the former one copied under its own leader epoch, or keeps segments of the former one below the
    log start, which the next one knows again."""
    topic = Tiered(cluster, "listed")
    first_ms = int(time.time() * 1_000)
    topic.produce(4, first_ms=first_ms)
    topic.until_tiered([0], 3)
    before, _ = topic.listed(LATEST)
    topic.lose_leader()
    topic.produce(5, first_ms=first_ms + 4)
    topic.until_tiered([0, 3], 6)
    after, end = topic.listed(LATEST)
    assert (end, after > before) == (9, True)

    assert topic.listed(EARLIEST) == (before, 0)
    assert topic.listed(EARLIEST_LOCAL) == (after, 6)
    assert topic.listed(LATEST_TIERED) == (after, 5)
    assert topic.listed(first_ms - 1) == (before, 0)
    for offset in range(9):
        assert topic.listed(first_ms + offset) == (before if offset < 4 else after, offset)
    assert topic.listed(first_ms + 9) == (-1, -1)

    delete_records(topic.at, "listed", 2)
    assert topic.listed(EARLIEST) == (before, 2)
    assert topic.remote() == [0, 3], "the log start lies in the first one"
    delete_records(topic.at, "listed", 4)
    until(lambda: topic.remote() == [3], "the segment below the log start goes")
    assert topic.listed(EARLIEST) == (after, 4)
    assert topic.reads_all(start=4)
    delete_records(topic.at, "listed", 6)
    until(lambda: topic.remote() == [], "nothing is left in the store")
    assert topic.listed(EARLIEST) == topic.listed(EARLIEST_LOCAL) == (after, 6)
    topic.lose_leader()
    assert topic.listed(EARLIEST) == topic.listed(EARLIEST_LOCAL) == (after, 6)
    assert topic.reads_all(start=6)


def test_copying_is_switched_off_and_on_and_all_is_dropped(cluster: tidemark.Broker) -> None:
    """DisableRemoteLogOnTopicTest. Else followers continue dropping what their leader copies no
    more, or begin elsewhere than the leader when the remote part is dropped."""
    topic = Tiered(cluster, "switched")
    topic.produce(7)
    topic.until_tiered([0, 3], 6)
    alter(topic.at, ResourceType.TOPIC, "switched", **COPY_NO_MORE)
    topic.produce(6)
    until(lambda: topic.local() == [[6, 9, 12]] * 3, "all replicas have it")
    cluster.advance("1s")  # each broker has looked what to copy and to drop
    assert (topic.remote(), topic.local()) == ([0, 3], [[6, 9, 12]] * 3)
    assert topic.reads_all()
    alter(topic.at, ResourceType.TOPIC, "switched", **COPY_AGAIN)
    topic.until_tiered([0, 3, 6, 9], 12)
    alter(topic.at, ResourceType.TOPIC, "switched", **COPY_NO_MORE)
    assert topic.reads_all()
    delete_records(topic.at, "switched", 3)
    until(lambda: topic.remote() == [3, 6, 9], "what is deleted leaves the store all the same")
    dropped = {"remote_storage_enable": "false", "remote_log_delete_on_disable": "true"}
    alter(topic.at, ResourceType.TOPIC, "switched", **dropped)
    until(lambda: topic.remote() == [], "nothing is left in the store")
    assert end_offsets(topic.at, "switched") == (12, 13)
    topic.lose_leader()
    assert end_offsets(topic.at, "switched") == (12, 13)
    assert topic.reads_all(start=12)


def test_a_leader_that_lost_its_checkpoints_serves_both_tiers(cluster: tidemark.Broker) -> None:
    """FetchFromLeaderWithCorruptedCheckpointTest. Else the leader that stopped last is refused:
    without its marks nothing but the settings says that what it lacks at its begin is remote."""
    topic = Tiered(cluster, "forgetful")
    topic.produce(7)
    topic.until_tiered([0, 3], 6)
    leader = topic.leader.id
    for one in sorted(IDS, key=lambda one: one == leader):
        cluster.stop(one)
    logs = log_directory(cluster, leader)
    erased = (offset_checkpoint.HIGH_WATERMARKS, offset_checkpoint.RECOVERY_POINTS, CLEAN_SHUTDOWN)
    for name in erased:
        (logs / name).unlink()
    cluster.start(leader)
    cluster.restore()
    assert topic.reads_all()
    topic.produce(6)
    topic.until_tiered([0, 3, 6, 9], 12)
    assert topic.reads_all()


def log_directory(cluster: tidemark.Broker, node_id: int) -> Path:
    (found,) = (
        path.parent
        for path in cluster.data_dir.glob("broker*/logs/meta.properties")
        if f"node.id={node_id}\n" in path.read_text()
    )
    return found
