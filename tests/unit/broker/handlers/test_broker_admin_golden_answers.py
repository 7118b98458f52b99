"""Our answers to the requests of the golden frames are Kafka's, byte for byte.

The cluster is built from Kafka's own answer, so what is tested is everything between: which topics
are named, in which order, with which error, fields and flags.
"""

import asyncio
import json
from dataclasses import replace
from inspect import iscoroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.handlers.describe_cluster import DescribeClusterHandler
from broker.handlers.describe_log_dirs import DescribeLogDirsHandler
from broker.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.handlers.elect_leaders import ElectLeadersHandler
from broker.handlers.list_config_resources import ListConfigResourcesHandler
from broker.handlers.metadata import MetadataHandler
from broker.handlers.unregister_broker import UnregisterBrokerHandler
from broker.handlers.update_features import UpdateFeaturesHandler
from broker.network.registry import Handler, RequestContext
from broker.replica.manager import ReplicaManager
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.framing import read_request_header
from local_log.config import LogConfig
from local_log.manager.log_dirs import LogManager
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.result import result_of
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import (
    DIRECTORY_UNASSIGNED,
    BrokerImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from metadata_topic.image.sorted_map import SortedMap
from metadata_topic.raft.voters import VoterSet
from runtime.executors import InlinePool
from runtime.work import at_once
from tests.support.sim.memory_disk import MemoryDisk
from tests.support.sim.memory_machine import MemoryMachine
from tests.support.sim.ports import simulated
from tests.support.worlds.data_plane import NOW_MS, batch

FRAMES = Path(__file__).resolve().parents[3] / "golden" / "frames"
LISTENER = "PLAINTEXT"


def frames(api: str) -> list[Any]:
    lines = (FRAMES / f"{api}.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [pytest.param(f, id=f"v{f['version']}-{n}") for n, f in enumerate(found)]


class Exchange:
    """One golden request with Kafka's answer, decoded."""

    def __init__(self, frame: dict[str, Any]) -> None:
        self.key, self.version = frame["api_key"], frame["version"]
        raw = bytes.fromhex(frame["request_hex"])
        header = read_request_header(raw)
        self.request = request(self.key).decode(raw, self.version, header.body_offset)[0]
        self.answer_bytes = bytes.fromhex(frame["response_hex"])
        skip = 4 + (header_versions(self.key, self.version)[1] == 1)
        self.body = self.answer_bytes[skip:]
        self.answer = response(self.key).decode(self.body, self.version)[0]

    def answered_by(self, handler: Handler) -> bytes:
        context = RequestContext(self.key, self.version, 1, "golden", LISTENER, ("127.0.0.1", 1), 0)
        answer = handler.handle(context, self.request)
        if iscoroutine(answer):
            answer = asyncio.run(answer)
        if isinstance(answer, list):
            return b"".join(answer)
        return response(self.key).encode(answer, self.version)


def partition_image(partition: Any) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=0,
        elr=tuple(getattr(partition, "eligible_leader_replicas", None) or ()),
        last_known_elr=tuple(getattr(partition, "last_known_elr", None) or ()),
    )


def cluster_of(answer: Any, brokers: dict[int, BrokerImage], cluster_id: str) -> ClusterView:
    topics = [
        TopicImage(
            topic.name,
            topic.topic_id if any(topic.topic_id) else topic.name.encode().ljust(16, b"\0")[:16],
            {p.partition_index: partition_image(p) for p in topic.partitions},
        )
        for topic in answer.topics
        if topic.error_code == ErrorCode.NONE
    ]
    image = MetadataImage(
        topics_by_name=SortedMap.of({topic.name: topic for topic in topics}),
        topics_by_id=SortedMap.of({topic.id: topic for topic in topics}),
        brokers=brokers,
    )
    return ClusterView(min(brokers), cluster_id, lambda: image)


def broker(id: int, host: str, port: int, rack: str | None) -> BrokerImage:
    endpoints = (Endpoint("OTHER", "elsewhere", 1), Endpoint(LISTENER, host, port))
    return BrokerImage(id, 0, bytes(16), endpoints, rack=rack, fenced=False)


@pytest.mark.parametrize("frame", frames("Metadata"))
def test_metadata_is_answered_as_kafka_does(frame: dict[str, Any]) -> None:
    exchange = Exchange(frame)
    brokers = {
        b.node_id: broker(b.node_id, b.host, b.port, b.rack) for b in exchange.answer.brokers
    }
    view = cluster_of(exchange.answer, brokers, exchange.answer.cluster_id or "unused")
    if exchange.version < 10:
        ids = [topic.topic_id for topic in exchange.answer.topics]
        assert not any(any(topic_id) for topic_id in ids)
    if not exchange.request.topics:  # all of them: Kafka's order is that of a hash map
        exchange.answer.topics.sort(key=lambda topic: topic.name)
        exchange.body = response(exchange.key).encode(exchange.answer, exchange.version)
    assert exchange.answered_by(MetadataHandler(view, None)) == exchange.body


@pytest.mark.parametrize("frame", frames("DescribeCluster"))
def test_describe_cluster_is_answered_as_kafka_does(frame: dict[str, Any]) -> None:
    exchange = Exchange(frame)
    brokers = {
        b.broker_id: broker(b.broker_id, b.host, b.port, b.rack) for b in exchange.answer.brokers
    } or {1: broker(1, "127.0.0.1", 31092, None)}
    image = MetadataImage(brokers=brokers)
    view = ClusterView(min(brokers), exchange.answer.cluster_id, lambda: image)
    assert exchange.answered_by(DescribeClusterHandler(view)) == exchange.body


@pytest.mark.parametrize("frame", frames("DescribeTopicPartitions"))
def test_describe_topic_partitions_is_answered_as_kafka_does(frame: dict[str, Any]) -> None:
    exchange = Exchange(frame)
    replicas = {
        replica
        for topic in exchange.answer.topics
        for partition in topic.partitions
        for replica in (*partition.replica_nodes, partition.leader_id)
    }
    offline = {
        replica
        for topic in exchange.answer.topics
        for partition in topic.partitions
        for replica in partition.offline_replicas
    }
    brokers = {r: broker(r, "127.0.0.1", 9092, None) for r in replicas - offline if r >= 0}
    view = cluster_of(exchange.answer, brokers, "unused")
    cursor = exchange.answer.next_cursor
    if cursor is not None:  # what did not fit on the page must exist, too
        topic = view.image().topics_by_name[cursor.topic_name]
        topic.partitions[cursor.partition_index] = topic.partitions[0]
    if exchange.request.cursor is not None:
        first = exchange.answer.topics[0]
        topic = view.image().topics_by_name[first.name]
        for index in range(first.partitions[0].partition_index):
            topic.partitions[index] = topic.partitions[first.partitions[0].partition_index]
    handler = DescribeTopicPartitionsHandler(view, 2_000, lambda _partition: False)
    assert exchange.answered_by(handler) == exchange.body


@pytest.mark.parametrize("frame", frames("ListConfigResources"))
def test_config_resources_are_listed_as_kafka_does(frame: dict[str, Any]) -> None:
    exchange = Exchange(frame)
    listed = [(one.resource_type, one.resource_name) for one in exchange.answer.config_resources]
    topics = {n: TopicImage(n, n.encode(), {}) for kind, n in listed if kind == ResourceType.TOPIC}
    numbers = {int(name) for kind, name in listed if kind == ResourceType.BROKER}
    with_settings = (ResourceType.GROUP, ResourceType.CLIENT_METRICS)
    image = MetadataImage(
        topics_by_name=SortedMap.of(topics),
        brokers={number: broker(number, "127.0.0.1", 9092, None) for number in numbers},
        configs=SortedMap.of({key: {"a": "b"} for key in listed if key[0] in with_settings}),
    )
    exchange.answer.config_resources.sort(  # of a type, Kafka's order is that of a hash map
        key=lambda one: (-one.resource_type, one.resource_name)
    )
    expected = response(exchange.key).encode(exchange.answer, exchange.version)
    view = ClusterView(1, "unused", lambda: image)
    assert exchange.answered_by(ListConfigResourcesHandler(view)) == expected


@pytest.mark.parametrize("frame", frames("UnregisterBroker"))
def test_unregistrations_are_answered_as_kafka_does(frame: dict[str, Any]) -> None:
    exchange = Exchange(frame)
    image = MetadataImage(brokers={5: broker(5, "127.0.0.1", 9092, None)})
    fenced = replace(image, brokers={5: replace(image.brokers[5], fenced=True)})

    async def submit(decide: Any) -> None:
        at_once(result_of(decide(fenced)))

    assert exchange.answered_by(UnregisterBrokerHandler(submit)) == exchange.body


def is_of_named_partitions(frame: Any) -> bool:
    """Where all are meant, Kafka's order is that of a hash map."""
    return frame.values[0]["request_json"]["body"]["topicPartitions"] is not None


@pytest.mark.parametrize("frame", [*filter(is_of_named_partitions, frames("ElectLeaders"))])
def test_elections_are_answered_as_kafka_does(frame: dict[str, Any]) -> None:
    exchange = Exchange(frame)
    topic = TopicImage("plain", b"p" * 16, {0: PartitionImage((1,), (1,), 1, 0, 0)})
    image = MetadataImage(topics_by_name=SortedMap.of({"plain": topic}))

    async def submit(decide: Any, **_: Any) -> Any:
        return at_once(result_of(decide(image))).response

    assert exchange.answered_by(ElectLeadersHandler(submit, ElectionRules())) == exchange.body


def is_refused(frame: Any) -> bool:
    return frame.values[0]["response_json"]["body"]["errorCode"] != 0


@pytest.mark.parametrize("frame", [*filter(is_refused, frames("UpdateFeatures"))])
def test_updates_of_features_are_refused_as_kafka_does(frame: dict[str, Any]) -> None:
    exchange = Exchange(frame)

    async def submit(decide: Any, **_: Any) -> None:
        decide(MetadataImage())

    registration = Registration(1, bytes(16), (), SUPPORTED_FEATURES)
    quorum: Any = SimpleNamespace(
        submit=submit,
        registration=registration,
        kraft_version=1,
        voters=VoterSet(()),
        brokers=SimpleNamespace(election_defaults=ElectionRules()),
    )
    assert exchange.answered_by(UpdateFeaturesHandler(quorum)) == exchange.body


@pytest.mark.parametrize("frame", frames("DescribeLogDirs"))
def test_log_directories_are_described_as_kafka_does(frame: dict[str, Any]) -> None:
    exchange = Exchange(frame)
    results = exchange.answer.results
    sizes = {}
    for result in results:
        for topic in result.topics:
            for one in topic.partitions:
                sizes[TopicPartition(topic.name, one.partition_index)] = one.partition_size
        if exchange.version >= 4:
            result.total_bytes = result.usable_bytes = 1 << 40  # the memory's
    logs, replicas = logs_of([Path(result.log_dir) for result in results], sizes)
    asked = [topic.topic for topic in exchange.request.topics]
    for result in results:  # Kafka's order is that of a hash map
        result.topics.sort(key=lambda topic: asked.index(topic.name))
        for topic in result.topics:
            topic.partitions.sort(key=lambda one: one.partition_index)
    expected = response(exchange.key).encode(exchange.answer, exchange.version)
    handler = DescribeLogDirsHandler(logs, replicas, InlinePool())
    assert exchange.answered_by(handler) == expected


def logs_of(
    paths: list[Path], sizes: dict[TopicPartition, int]
) -> tuple[LogManager, ReplicaManager]:
    """Partitions of these sizes, in the last directory of one or two."""
    ports = simulated(disk=MemoryDisk(MemoryMachine()))
    config = LogConfig(segment_index_bytes=64)
    logs = LogManager(paths, lambda _: config, ports)
    logs.load()
    for number, _ in enumerate(paths[1:]):  # a new log is begun where the fewest are
        logs.create("other", number, bytes(16))
    replicas = ReplicaManager(logs=logs, node_id=1, config_for=lambda _: config, ports=ports)
    topics: dict[str, TopicImage] = {}
    for name, index in sizes:
        topic = topics.setdefault(name, TopicImage(name, name.encode().ljust(16)[:16], {}))
        topic.partitions[index] = PartitionImage((1,), (1,), 1, 0, 0)
    by_id = {topic.id: topic for topic in topics.values()}
    image = MetadataImage(topics_by_name=SortedMap.of(topics), topics_by_id=SortedMap.of(by_id))
    replicas.apply(image, None)
    for tp, size in sizes.items():
        if size:
            log = replicas.require(*tp).log
            log.append_as_leader(batch_of(size), leader_epoch=0, now_ms=NOW_MS)
    return logs, replicas


def batch_of(size_bytes: int) -> bytearray:
    batches = (batch(bytes(size_bytes - overhead)) for overhead in range(60, 80))
    return next(one for one in batches if len(one) == size_bytes)


@pytest.mark.parametrize(
    ("directory", "offline"),
    [(bytes([1]) * 16, []), (bytes([2]) * 16, [1]), (DIRECTORY_UNASSIGNED, [])],
)
def test_a_replica_in_a_directory_that_is_not_registered_is_offline(
    directory: bytes, offline: list[int]
) -> None:
    registered = replace(broker(1, "127.0.0.1", 9092, None), log_dirs=(bytes([1]) * 16,))
    view = ClusterView(1, "id", lambda: MetadataImage(brokers={1: registered}))
    partition = PartitionImage((1,), (1,), 1, 0, 0, (directory,))
    assert view.partition(partition, LISTENER, old=False).offline == offline


@pytest.mark.parametrize(
    ("version", "leader", "error", "shown"),
    [
        (0, 1, ErrorCode.REPLICA_NOT_AVAILABLE, [1]),
        (1, 1, ErrorCode.NONE, [1, 2, 3, 4]),
        (0, -1, ErrorCode.LEADER_NOT_AVAILABLE, [1]),
        (1, -1, ErrorCode.LEADER_NOT_AVAILABLE, [1, 2, 3, 4]),
    ],
)
def test_metadata_0_has_no_replica_of_a_broker_that_it_does_not_list(
    version: int, leader: int, error: ErrorCode, shown: list[int]
) -> None:
    live, fenced = broker(1, "127.0.0.1", 9092, None), broker(2, "127.0.0.1", 9093, None)
    elsewhere = BrokerImage(3, 0, bytes(16), (Endpoint("OTHER", "elsewhere", 1),), fenced=False)
    ids = (1, 2, 3, 4)  # 4 is not registered
    topic = TopicImage("t", bytes(16), {0: PartitionImage(ids, ids, leader, 5, 5)})
    image = MetadataImage(
        brokers={1: live, 2: replace(fenced, fenced=True), 3: elsewhere},
        topics_by_name=SortedMap.of({"t": topic}),
        topics_by_id=SortedMap.of({topic.id: topic}),
    )
    handler = MetadataHandler(ClusterView(1, "id", lambda: image), None)
    context = RequestContext(ApiKey.METADATA, version, 1, "c", LISTENER, ("127.0.0.1", 1), 0)
    asked = request(ApiKey.METADATA).cls(topics=None if version else [])
    parts = b"".join(handler.handle(context, asked))
    answer = response(ApiKey.METADATA).decode(parts, version)[0]
    (one,) = answer.topics[0].partitions
    assert [each.node_id for each in answer.brokers] == [1]
    assert (one.error_code, one.leader_id) == (error, leader)
    assert one.replica_nodes == one.isr_nodes == shown


def test_every_api_is_served_in_kafkas_versions() -> None:
    image = MetadataImage()
    view = ClusterView(1, "id", lambda: image)
    served = [MetadataHandler(view, None), DescribeClusterHandler(view)]
    assert [(h.api_key, *h.versions) for h in served] == [
        (ApiKey.METADATA, 0, 13),
        (ApiKey.DESCRIBE_CLUSTER, 0, 2),
    ]
