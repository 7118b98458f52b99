"""Apache Kafka and our metadata node take turns in one directory.

Each continues where it stopped.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from metadata_topic.controller.brokers import (
    Registration,
    fence_broker,
    register_broker,
    unfence_broker,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_deletion import delete_topics
from metadata_topic.controller.topic_specs import Config, TopicDefaults, TopicSpec
from metadata_topic.controller.topics import create_topics
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import RemoteStore
from metadata_topic.image.records import make
from metadata_topic.quorum.node import MetadataNode, NodeIdentity
from runtime.ports import system_ports
from tests.support.brokers.process import free_ports
from tests.support.kafka.tools import PEERS, kafka_tool, require_kafka_tools
from tests.support.sim.executors import SimExecutors
from tests.support.worlds.one_node import sole_voter

pytestmark = [pytest.mark.lasts(seconds=20), pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    require_kafka_tools()


@contextlib.contextmanager
def kafka_in(data: Path, port: int) -> Iterator[str]:
    """Apache Kafka on `data`; it formats the directory the first time."""
    program = str(PEERS / "kafka")
    start = [program, "start", "--data", str(data), "--port", str(port), "--heap", "300m"]
    try:
        done = subprocess.run(start, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        yield f"127.0.0.1:{port}"
    finally:
        stop = [program, "stop", "--data", str(data)]
        subprocess.run(stop, capture_output=True, timeout=60, check=False)


async def one_life_of_ours(log_dir: Path) -> MetadataImage:
    """Take over, lead everything, create a topic, write a snapshot, leave."""
    meta = parse_meta_properties((log_dir / META_PROPERTIES).read_bytes())
    assert meta.directory_id is not None
    ports = replace(system_ports(asyncio.get_running_loop()), executors=SimExecutors())
    node = MetadataNode(
        log_dir,
        NodeIdentity(
            node_id=meta.node_id, cluster_id=meta.cluster_id, directory_id=meta.directory_id
        ),
        ports,
        sole_voter(node_id=meta.node_id, static=True),
    )
    await node.begin()
    old = node.image.brokers[meta.node_id]
    registration = Registration(
        old.id, ports.rng.uuid(), old.endpoints, old.features, old.rack, old.log_dirs,
        remote_store=RemoteStore("rsm:Store", b"p" * 32),
    )  # fmt: skip
    epoch = await node.submit(lambda image: register_broker(image, registration))
    await node.submit(lambda i: unfence_broker(i, broker_id=old.id, broker_epoch=epoch))
    tiered = (Config("remote.storage.enable", "true"),)
    specs = [
        TopicSpec("from-tidemark", 3, 1, configs=(Config("retention.ms", "123456"),)),
        TopicSpec("tiered", 1, 1, configs=tiered),
        TopicSpec("tiered-once", 1, 1, configs=tiered),
    ]
    await node.submit(
        lambda image: create_topics(
            image,
            specs,
            defaults=TopicDefaults(),
            topic_ids=[ports.rng.uuid() for _ in specs],
            validate_config=lambda _name, _configs: None,
        )
    )
    await leave_our_own_fields(node)
    assert await node.snapshot() is not None
    image = node.image
    await node.submit(lambda i: fence_broker(i, broker_id=old.id, broker_epoch=epoch))
    await node.close()
    return image


async def leave_our_own_fields(node: MetadataNode) -> None:
    """In log and snapshot: the list of removed tiered topics, a topic that was tiered once."""
    await node.submit(lambda image: delete_topics(image, [("tiered", bytes(16))]))
    no_more = make("ConfigRecord", resource_type=2, resource_name="tiered-once",
                   name="remote.storage.enable", value=None)  # fmt: skip
    await node.submit(lambda image: ControllerResult((no_more,), None))
    assert len(node.image.removed_tiered_topics) == 1


def test_kafka_then_tidemark_then_kafka_on_one_directory(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with kafka_in(tmp_path, port) as bootstrap:
        kafka_tool(
            "topics", "--bootstrap-server", bootstrap, "--create", "--topic", "from-kafka",
            "--partitions", "2",
        )  # fmt: skip
    log_dir = next(tmp_path.rglob(META_PROPERTIES)).parent

    image = asyncio.run(one_life_of_ours(log_dir))
    partition = image.partition("from-kafka", 1)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 2, (1,))

    with kafka_in(tmp_path, port) as bootstrap:
        shown = kafka_tool("topics", "--bootstrap-server", bootstrap, "--describe")
    assert "retention.ms=123456" in shown
    for topic, count in (("from-kafka", 2), ("from-tidemark", 3), ("tiered-once", 1)):
        led = [
            line
            for line in shown.splitlines()
            if f"Topic: {topic}\t" in line and "\tLeader: 1\t" in line
        ]
        assert len(led) == count, shown
