"""Measures the cost of the controller's decisions, and how long each holds the event loop.

    python -m benchmarks.decisions [--topics 10000] [--only images|node|answers]

One metadata node in this process, without partitions on a disk. Each row: milliseconds in all, and
the longest stretch in which nothing else on the event loop could run.
"""

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.describe_configs import DescribeConfigsHandler
from broker.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.handlers.metadata import MetadataHandler
from broker.network.registry import Handler, RequestContext
from broker.observe.cluster_metrics import register_metadata_metrics
from broker.topics.cluster import ClusterView
from broker.topics.creation import TopicCreation
from kafka_protocol.wire.codec import message, response
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.leader_epochs import UsedEpoch
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import Endpoint, Provenance
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.image.replay import replay_all
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.node import MetadataNode, NodeIdentity, NodeSettings
from metadata_topic.quorum.start.format import FormatPlan, format_directory
from metadata_topic.raft.voters import VoterEndpoint
from runtime.metrics import Registry
from runtime.ports import Ports, system_ports
from tests.support.worlds.own_life import own_life

DIRECTORY_ID = b"D" * 16
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


class Meter:
    """Longest time between two iterations of the event loop."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def _run(self) -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.longest_ms = max(self.longest_ms, (now - before) * 1000)
            before = now

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._run())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        self._task.cancel()


async def measured(label: str, work: Callable[[], Awaitable[object]]) -> None:
    """Run `work` once and print its row."""
    gc.collect()
    async with Meter() as meter:
        began = time.perf_counter()
        await work()
        total_ms = (time.perf_counter() - began) * 1000
    print(f"{label:58} {total_ms:10.1f} {meter.longest_ms:10.1f}", flush=True)


def timed(label: str, work: Callable[[], object], runs: int = 5) -> None:
    """Print the shortest of some runs of a step that is one stretch by its nature."""
    took = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    print(f"{label:58} {min(took):10.3f} {max(took):10.3f}", flush=True)


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def topic_records(number: int, *, config: bool = True) -> Iterator[MetadataRecord]:
    name = f"area.topic-{number}"
    yield make("TopicRecord", name=name, topic_id=topic_id(number))
    if config:
        yield make(
            "ConfigRecord",
            resource_type=int(ResourceType.TOPIC),
            resource_name=name,
            name="retention.ms",
            value="1000",
        )
    yield make(
        "PartitionRecord",
        2,
        partition_id=0,
        topic_id=topic_id(number),
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY_ID],
    )


def registration(life: int) -> Registration:
    return Registration(
        1,
        bytes([life]) * 16,
        (Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
        SUPPORTED_FEATURES,
        None,
        (DIRECTORY_ID,),
        keeps_directories=True,
    )


async def started_node(home: Path, ports: Ports) -> MetadataNode:
    identity = NodeIdentity(node_id=1, cluster_id="bench", directory_id=DIRECTORY_ID)
    config = MetadataLogConfig(max_record_bytes_between_snapshots=1 << 40)
    node = MetadataNode(home, identity, ports, NodeSettings(log=config))
    await node.begin()
    return node


def images(image: MetadataImage) -> None:
    """Small changes, as the replay makes them."""
    first = next(iter(image.topics_by_id.values()))
    at = Provenance(image.provenance.end_offset, 1, 0)
    change = make("PartitionChangeRecord", 2, partition_id=0, topic_id=first.id, leader=1)
    config = make(
        "ConfigRecord",
        resource_type=int(ResourceType.TOPIC),
        resource_name=first.name,
        name="retention.ms",
        value="2000",
    )
    created = list(topic_records(10**9, config=False))
    timed("image: one PartitionChange (min, max)", lambda: replay_all(image, [change], at))
    timed("image: one topic created", lambda: replay_all(image, created, at))
    timed("image: one config set", lambda: replay_all(image, [config], at))
    names = list(image.topics_by_name)[:: max(1, len(image.topics_by_name) // 1000)]
    timed("image: 1000 look-ups by name", lambda: [image.topics_by_name.get(n) for n in names])
    timed("image: partition count", lambda: image.partition_count)


async def decisions(node: MetadataNode, live: LiveConfig, home: Path, ports: Ports) -> None:
    """Large decisions on the node."""
    cluster = ClusterView(1, "bench", lambda: node.image)
    creation = TopicCreation(
        node.submit,
        defaults=live.topic_defaults,
        validate_config=live.validate_new_topic,
        rng=ports.rng,
    )
    broker = own_life(node, registration(2), ports)
    found = {
        ReplicaId(topic.id, 0): DIRECTORY_ID
        for topic, _ in zip(image_topics(node), range(10_000), strict=False)
    }
    await measured("register, 10,000 replicas found", lambda: broker.register(found))
    await measured("unfence", broker.unfence)
    wrong = dict.fromkeys(list(found)[:5000], b"E" * 16)
    await measured("assign 5,000 directories", lambda: broker._assign(wrong))
    epochs = {}
    for replica in list(found)[:500]:
        now = node.image.topics_by_id[replica.topic_id].partitions[0].leader_epoch
        epochs[replica] = UsedEpoch(now, now + 5)
    await measured("raise 500 leader epochs", lambda: broker.raise_leader_epochs(epochs))
    create = CreateTopicsHandler(creation, live)
    asked = message("CreateTopicsRequest").cls
    handle = answerer(create)

    def creating(names: list[str], partitions: int) -> Callable[[], Awaitable[object]]:
        topics = [
            asked.Topics(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        ]
        return lambda: handle(asked(topics=topics, timeout_ms=60_000))

    await measured("CreateTopics, 1 topic", creating(["one.more"], 1))
    await measured("CreateTopics, 1 topic of 3,000 partitions", creating(["a.wide.one"], 3_000))
    await measured("CreateTopics, 1,000 plain names", creating([f"p{n}" for n in range(1_000)], 1))
    names = [f"new.dotted-{n}" for n in range(10_000)]
    await measured("CreateTopics, 10,000 dotted names", creating(names, 1))
    gone = message("DeleteTopicsRequest").cls
    wanted = [gone.Topics(name=f"p{n}") for n in range(1_000)]
    delete = answerer(DeleteTopicsHandler(cluster, node.submit, enabled=True))
    await measured(
        "DeleteTopics, 1,000 names", lambda: delete(gone(topics=wanted, timeout_ms=60_000))
    )
    await measured("controlled shutdown", broker.leave)
    await measured("snapshot", node.snapshot)


def image_topics(node: MetadataNode) -> Iterator[Any]:
    return iter(node.image.topics_by_id.values())


def answerer(handler: Handler) -> Callable[[Any], Awaitable[object]]:
    """Ask a handler as the network does: the answer ends as bytes."""

    async def ask(request: Any) -> object:
        version = handler.versions.last
        context = RequestContext(
            handler.api_key, version, 1, "bench", "PLAINTEXT", ("127.0.0.1", 1), 0
        )
        answer = handler.handle(context, request)
        if hasattr(answer, "__await__"):
            answer = await answer
        if isinstance(answer, list):
            return answer
        return response(handler.api_key).encode_parts(answer, version)

    return ask


async def answers(node: MetadataNode, live: LiveConfig) -> None:
    """Answers that describe many topics."""
    cluster = ClusterView(1, "bench", lambda: node.image)
    metadata = answerer(MetadataHandler(cluster, None))
    request = message("MetadataRequest").cls
    await measured("Metadata of all topics, first", lambda: metadata(request(topics=None)))
    await measured("Metadata of all topics, again", lambda: metadata(request(topics=None)))
    first = next(image_topics(node))
    records = [make("PartitionChangeRecord", 2, partition_id=0, topic_id=first.id, leader=1)]
    await node.submit(lambda image: ControllerResult(tuple(records), None))
    await measured("Metadata of all topics, after a change", lambda: metadata(request(topics=None)))
    pages = answerer(DescribeTopicPartitionsHandler(cluster, 2_000, lambda tp: False))
    page = message("DescribeTopicPartitionsRequest").cls
    await measured(
        "DescribeTopicPartitions, a page of 2,000",
        lambda: pages(page(topics=[], response_partition_limit=2_000)),
    )
    configs = answerer(DescribeConfigsHandler(cluster, live))
    asked = message("DescribeConfigsRequest").cls
    resources = [
        asked.Resources(resource_type=2, resource_name=topic.name, configuration_keys=None)
        for topic, _ in zip(image_topics(node), range(1_000), strict=False)
    ]
    await measured("DescribeConfigs of 1,000 topics", lambda: configs(asked(resources=resources)))
    registry = Registry()
    register_metadata_metrics(registry, lambda: node.image, node)
    timed("metadata gauges of one scrape", lambda: list(registry.samples()))


async def run(options: argparse.Namespace, home: Path) -> None:
    ports = system_ports(asyncio.get_running_loop())
    endpoint = VoterEndpoint("CONTROLLER", "localhost", 9093)
    plan = FormatPlan("bench", 1, (home,), home, endpoint, directory_ids={home: DIRECTORY_ID})
    format_directory(plan, disk=ports.disk, clock=ports.clock, rng=ports.rng)
    node = await started_node(home, ports)
    broker = own_life(node, registration(1), ports)
    await broker.register({})
    await broker.unfence()
    for start in range(0, options.topics, 5_000):
        records = [
            record
            for number in range(start, min(start + 5_000, options.topics))
            for record in topic_records(number)
        ]
        await node.submit(lambda image, made=tuple(records): ControllerResult(made, None))
    await node.close()
    config, _ = BrokerConfig.load(SETTINGS | {"log.dirs": str(home)})
    print(f"{options.topics} topics {'':44} {'total ms':>10} {'longest':>10}")
    node = await started_node(home, ports)
    gc.collect()
    gc.freeze()
    live = LiveConfig(config, lambda: node.image)
    if options.only in (None, "images"):
        images(node.image)
    if options.only in (None, "answers"):
        await answers(node, live)
    if options.only in (None, "node"):
        await decisions(node, live, home, ports)
    await node.close()
    again: list[MetadataNode] = []

    async def starting() -> None:
        again.append(await started_node(home, ports))

    await measured("start of the node (one stretch)", starting)
    await again[0].close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--only", choices=("images", "node", "answers"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        asyncio.run(run(options, Path(scratch)))


if __name__ == "__main__":
    main()
