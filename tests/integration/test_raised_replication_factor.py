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

from kafka_client.blocking import BlockingClient
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.quorum import until
from tests.support.quorum.reading import Reading, until_read
from tests.support.quorum.replica_rounds import (
    BETWEEN_S,
    BROKERS,
    OFFSETS,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    Replicated,
    apart,
    create,
    validate,
)
from tests.support.quorum.serving import admin, until_true
from tests.support.quorum.tier_rounds import Traffic
from tidemark.cluster.asking import Cluster, Reassigning, TargetReplicas

pytestmark = [pytest.mark.lasts(seconds=90), pytest.mark.patience(seconds=400)]

OLD = SETTINGS | {"default.replication.factor": "1", "offsets.topic.replication.factor": "1"}
WRONG = [
    (("brokers", "safe-to-stop", "77"), 2, "there is no broker 77; the cluster has 11, 12, 13"),
    (("topics", "replicate", "--factor", "3", "nope"), 1, "there is no topic nope"),
    (("topics", "replicate", "--factor", "3"), 2, "name topics, or --all"),
    (("topics", "replicate", "--factor", "4", TOPIC), 1, "or ask for 3 at most"),
    (("features", "upgrade", "kraft.version=9"), 1, "INVALID_UPDATE_VERSION"),
]


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
        reading = Reading(cluster.servers, TOPIC)
        try:
            await until(
                lambda: traffic[0].least > 50 and len(reading.read) > 50,
                "there are records, and a group",
                deadline_s=BETWEEN_S,
            )
            code, said = await tidemark(cluster, "brokers", "safe-to-stop", "11")
            assert (code, "it has one replica" in said) == (1, True), said

            for arguments, exit_code, text in WRONG:
                code, said = await tidemark(cluster, *arguments)
                assert (code, text in said) == (exit_code, True), said

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
        reading = Reading(cluster.servers, TOPIC, read=reading.read)
        try:
            await until_read([traffic[0].acknowledged], reading)
        finally:
            await asyncio.to_thread(reading.stop)
        await validate(cluster, traffic)


async def test_a_cancelled_addition_leaves_nothing(tmp_path: Path) -> None:
    """One of the added replicas is in sync, the other's broker is paused all the time."""
    async with apart(tmp_path, OLD | {"log.segment.delete.delay.ms": "100"}) as cluster:
        await create(cluster, copies=1)
        there = replicas(cluster, TOPIC)
        lost = cluster.nodes[2]
        index = next(one for one, old in enumerate(there) if lost.node_id not in old)
        (leader,), others = there[index], {*BROKERS} - there[index]
        lost.pause()
        with BlockingClient(cluster.nodes[0].address) as client:
            asked = Cluster(client)
            wanted = TargetReplicas(TOPIC, index, (leader, *sorted(others)))
            assert await asyncio.to_thread(asked.reassign, [wanted]) == []
            here = cluster.nodes[0]
            await until_true(
                lambda: len(cluster.in_sync(here).get(index, ())) == 2, "one is in sync"
            )
            assert await asyncio.to_thread(asked.reassigning) == {
                (TOPIC, index): Reassigning(tuple(sorted(others)))
            }
            cls = request(ApiKey.ALTER_PARTITION_REASSIGNMENTS).cls
            part = cls.Topics.Partitions(partition_index=index, replicas=None)
            cancel = cls(topics=[cls.Topics(name=TOPIC, partitions=[part])])
            await asyncio.to_thread(client.ask_any, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, cancel)
            assert await asyncio.to_thread(asked.reassigning) == {}
        lost.resume()
        assert replicas(cluster, TOPIC)[index] == {leader}

        def hosts() -> set[int]:
            """Brokers with a directory of the partition, or one that is going."""
            name = f"{TOPIC}-{index}*"
            return {one.node_id for one in cluster.nodes if [*one.directory.rglob(name)]}

        await until(lambda: hosts() == {leader}, "the others have gone", deadline_s=BETWEEN_S)


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

        feature, server = "eligible.leader.replicas.version", cluster.nodes[0].address
        at = ("features", "--bootstrap-server", server)
        await asyncio.to_thread(kafka_tool, *at, "downgrade", "--feature", f"{feature}=0")
        code, said = await tidemark(cluster, "features", "upgrade")
        assert (code, said) == (0, f"{feature}: 0 -> 1\n")
        code, said = await tidemark(cluster, "features", "upgrade")
        assert (code, said.startswith("nothing to upgrade")) == (0, True), said
        code, said = await tidemark(cluster, "features", "describe")
        (line,) = (one.split() for one in said.splitlines() if one.startswith(feature))
        assert (code, line) == (0, [feature, "0", "1", "1"])
