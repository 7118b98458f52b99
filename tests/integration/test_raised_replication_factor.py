"""Topics of one replica get three while they are written and read, and then lose their leader.

Only real processes show that a leader takes followers under the epoch that it leads already, that
their logs are copied from the start, and how commands and Kafka's tools find it.
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.quorum import until
from tests.support.quorum.replica_rounds import (
    BETWEEN_S,
    BROKERS,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    Reading,
    Replicated,
    apart,
    create,
    judge,
    until_read,
)
from tests.support.quorum.serving import admin
from tests.support.quorum.tier_rounds import Traffic

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=300)]

OLD = SETTINGS | {"default.replication.factor": "1", "offsets.topic.replication.factor": "1"}
OFFSETS = "__consumer_offsets"


async def tidemark(cluster: Replicated, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command."""
    servers = ("--bootstrap-server", cluster.servers)
    return await run_to_end([sys.executable, "-m", "tidemark.cli", *arguments, *servers])


def replicas(cluster: Replicated, topic: str) -> list[set[int]]:
    found = admin(cluster.servers).list_topics(topic, timeout=10).topics[topic]
    return [set(one.replicas) for one in found.partitions.values()]


def committed(cluster: Replicated) -> dict[int, int]:
    """What the group has committed; nothing where the coordinator is not there yet."""
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": "readers"})
    try:
        asked = [TopicPartition(TOPIC, one) for one in range(PARTITIONS)]
        return {one.partition: one.offset for one in consumer.committed(asked, timeout=30)}
    finally:
        consumer.close()


async def test_the_factor_is_raised_and_the_leader_is_lost(tmp_path: Path) -> None:
    async with apart(tmp_path, OLD) as cluster:
        await create(cluster, copies=1)
        traffic = [Traffic(cluster.servers, TOPIC, PARTITIONS, record_bytes=2_000)]
        reading = Reading(cluster)
        try:
            await until(
                lambda: traffic[0].least > 50 and len(reading.read) > 50,
                "there are records, and a group",
                deadline_s=BETWEEN_S,
            )
            code, said = await tidemark(cluster, "brokers", "safe-to-stop", "11")
            assert (code, "it has one replica" in said) == (1, True), said

            code, said = await tidemark(cluster, "topics", "replicate", "--factor", "3", "--all")
            assert (code, said.splitlines()[-1]) == (0, "all replicas are in sync"), said
            await cluster.until_whole()
            for topic in (TOPIC, OFFSETS):
                assert all(one == set(BROKERS) for one in replicas(cluster, topic)), topic
            code, said = await tidemark(cluster, "topics", "replicate", "--factor", "3", TOPIC)
            assert (code, said.splitlines()[-1]) == (0, "all replicas are in sync"), said

            await asyncio.to_thread(reading.stop)
            offsets = await asyncio.to_thread(committed, cluster)
            assert all(one > 0 for one in offsets.values()), offsets
            code, said = await tidemark(cluster, "brokers", "safe-to-stop", "11")
            assert code == 0, said
            leader = admin(cluster.servers).list_topics(TOPIC).topics[TOPIC].partitions[0].leader
            (lost,) = (one for one in cluster.nodes if one.node_id == leader)
            before = traffic[0].least
            lost.kill()
            await until(
                lambda: traffic[0].least > before + 10,
                "records are acknowledged by the others",
                deadline_s=BETWEEN_S,
            )
            other = next(one for one in BROKERS if one != leader)
            code, said = await tidemark(cluster, "brokers", "safe-to-stop", str(other))
            assert (code, "min.insync.replicas=2" in said) == (1, True), said
            assert await asyncio.to_thread(committed, cluster) == offsets
            await lost.start()
        finally:
            await asyncio.to_thread(traffic[0].stop)
            await asyncio.to_thread(reading.stop)
        reading = Reading(cluster, read=reading.read)
        try:
            await until_read(traffic, reading)
        finally:
            await asyncio.to_thread(reading.stop)
        await judge(cluster, traffic)


@pytest.mark.jvm
async def test_kafkas_tool_adds_replicas(tmp_path: Path) -> None:
    require_kafka_tools()
    async with apart(tmp_path, OLD) as cluster:
        await create(cluster, copies=1)
        wanted = [
            {"topic": TOPIC, "partition": one, "replicas": [*old, *sorted({*BROKERS} - old)]}
            for one, old in enumerate(replicas(cluster, TOPIC))
        ]
        file = tmp_path / "replicas.json"
        file.write_text(json.dumps({"version": 1, "partitions": wanted}))

        def tool(*arguments: str) -> str:
            server = ("--bootstrap-server", cluster.nodes[0].address)
            return kafka_tool("reassign-partitions", *server, *arguments)

        of_file = ("--reassignment-json-file", str(file))
        said = await asyncio.to_thread(tool, *of_file, "--execute")
        started = ",".join(f"{TOPIC}-{one}" for one in range(PARTITIONS))
        assert f"Successfully started partition reassignments for {started}" in said
        await cluster.until_whole()
        assert "No partition reassignments found." in await asyncio.to_thread(tool, "--list")
        verified = await asyncio.to_thread(tool, *of_file, "--verify")
        assert verified.count("is completed.") == PARTITIONS, verified
