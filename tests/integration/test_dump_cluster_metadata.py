"""Log and snapshots of the metadata node, read by Kafka's own dump tool without complaint."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from metadata_topic.controller.brokers import fence_broker, register_broker, unfence_broker
from metadata_topic.controller.directories import ReplicaId, assign_directories
from metadata_topic.controller.producer_ids import allocate_producer_ids
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_deletion import (
    RemoteDataWish,
    delete_topics,
    note_emptied,
    wish_for_remote_data,
)
from metadata_topic.controller.topic_specs import Config, TopicDefaults, TopicSpec
from metadata_topic.controller.topics import create_topics
from metadata_topic.image.model import RemoteStore
from metadata_topic.image.records import make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.node import MetadataNode, NodeIdentity
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, FormatPlan, format_directory
from metadata_topic.raft.voters import VoterEndpoint
from runtime.clock import SystemClock
from runtime.disk import Disk
from runtime.ports import system_ports
from runtime.rng import SystemRng
from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.samples.metadata import registration_of
from tests.support.sim.executors import SimExecutors
from tests.support.worlds.one_node import sole_voter

pytestmark = pytest.mark.jvm
COMPLAINTS = ("mismatches", "corrupt", "isvalid: false", "Exception", "Could not", "not ending")


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    require_kafka_tools()


def a_busy_life(home: Path, *, standalone: bool) -> Path:
    """Format, then start twice and change everything that can be changed."""
    disk, clock, rng = Disk(), SystemClock(), SystemRng()
    endpoint = VoterEndpoint("CONTROLLER", "127.0.0.1", 9093) if standalone else None
    plan = FormatPlan("tidemarkDumpCluster001", 1, (home,), home, endpoint)
    ids = format_directory(plan, disk=disk, clock=clock, rng=rng)

    async def live(life: int) -> None:
        node = MetadataNode(
            home,
            NodeIdentity(node_id=1, cluster_id=plan.cluster_id, directory_id=ids[home]),
            replace(system_ports(asyncio.get_running_loop()), executors=SimExecutors()),
            sole_voter(MetadataLogConfig(segment_bytes=20_000), static=not standalone),
        )
        await node.begin()
        # With our own tagged fields: the directories it keeps, and one of them that is away.
        directory = bytes([100 + life]) * 16
        registration = replace(
            registration_of(1, life=life, store=RemoteStore("rsm:Store", b"p" * 32)),
            keeps_directories=True,
            log_dirs=(directory,),
        )
        epoch = await node.submit(lambda image: register_broker(image, registration))
        await node.submit(lambda i: unfence_broker(i, broker_id=1, broker_epoch=epoch))
        configs = (Config("retention.ms", "1000"), Config("remote.storage.enable", "true"))
        for n in range(3):
            spec = TopicSpec(f"topic-{life}-{n}", 100, 1, configs=configs)
            await node.submit(
                lambda image, spec=spec: create_topics(
                    image,
                    [spec],
                    defaults=TopicDefaults(),
                    topic_ids=[rng.uuid()],
                    validate_config=lambda _name, _configs: None,
                )
            )
        assigned = {ReplicaId(node.image.topics_by_name[f"topic-{life}-1"].id, 0): directory}
        await node.submit(
            lambda image: assign_directories(
                image, broker_id=1, broker_epoch=epoch, assignments=assigned
            )
        )
        assert node.image.brokers[1].directories_assigned_from >= 0
        assert len(node.image.brokers[1].absent_directories) == life - 1
        await remove_tiered_topics(node, life)
        await node.submit(
            lambda image: allocate_producer_ids(image, broker_id=1, broker_epoch=epoch)
        )
        assert await node.snapshot() is not None
        await node.submit(lambda i: fence_broker(i, broker_id=1, broker_epoch=epoch))
        await node.close()

    for life in (1, 2):
        asyncio.run(live(life))
    return home / METADATA_DIRECTORY


async def remove_tiered_topics(node: MetadataNode, life: int) -> None:
    """With our own tagged fields: what is removed, what was tiered, what is gone from the store."""
    removed = node.image.topics_by_name[f"topic-{life}-0"].id
    await node.submit(lambda image: delete_topics(image, [(None, removed)]))
    no_more = make("ConfigRecord", resource_type=2, resource_name=f"topic-{life}-1",
                   name="remote.storage.enable", value=None)  # fmt: skip
    await node.submit(lambda image: ControllerResult((no_more,), None))
    gone, forget = bytes([7]) * 16, RemoteDataWish.FORGET
    await node.submit(lambda image: wish_for_remote_data(image, gone, forget))
    await node.submit(lambda image: note_emptied(image, [gone]))
    assert removed in node.image.removed_tiered_topics


@pytest.mark.parametrize("standalone", [True, False])
def test_kafka_reads_what_the_metadata_node_wrote(tmp_path: Path, standalone: bool) -> None:
    directory = a_busy_life(tmp_path, standalone=standalone)
    logs = sorted(directory.glob("*.log"))
    snapshots = sorted(directory.glob("*.checkpoint"))
    assert len(logs) >= 2
    assert len(snapshots) >= 2
    indexes = [*sorted(directory.glob("*.index")), *sorted(directory.glob("*.timeindex"))]
    data = [*logs, *snapshots, tmp_path / "bootstrap.checkpoint"]
    shown = kafka_tool(
        "dump-log",
        "--cluster-metadata-decoder",
        "--deep-iteration",
        "--files",
        ",".join(str(file) for file in [*data, *indexes]),
    )
    for complaint in COMPLAINTS:
        assert complaint not in shown, shown[shown.index(complaint) - 300 :][:1000]
    payloads = [
        json.loads(line.partition(" payload: ")[2])
        for line in shown.splitlines()
        if " payload: " in line
    ]
    kinds = {payload["type"] for payload in payloads}
    assert {
        "REGISTER_BROKER_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "FEATURE_LEVEL_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "PARTITION_CHANGE_RECORD",
        "CONFIG_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PRODUCER_IDS_RECORD",
        "BEGIN_TRANSACTION_RECORD",
        "END_TRANSACTION_RECORD",
    } <= kinds
    assert shown.count("LeaderChange:") == 2
    assert ("KRaftVoters" in shown) == standalone
