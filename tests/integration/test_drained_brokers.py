"""A broker is drained under load, and gets its share again.

Only real processes show that replicas that leave take their files with them, that nothing is lost
while leaders go, what the commands say and wait for, and that an interrupted one leaves no throttle
behind and can be given again.
"""

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from tests.support.quorum.controllers import ROOT, environment, run_to_end
from tests.support.quorum.quorum import until, until_asked
from tests.support.quorum.reading import Reading, until_read
from tests.support.quorum.replica_rounds import (
    BETWEEN_S,
    BROKERS,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    Replicated,
    apart,
    create,
)
from tests.support.quorum.serving import admin
from tests.support.quorum.tier_rounds import Traffic

pytestmark = [pytest.mark.lasts(seconds=90), pytest.mark.patience(seconds=400)]

TWO = {"default.replication.factor": "2", "offsets.topic.replication.factor": "2"}
SHORT = {"log.segment.delete.delay.ms": "100", "offsets.topic.num.partitions": "4"}
SMALL_FETCHES = {"replica.fetch.max.bytes": "8192"}  # the first one of a replica is not held back
RATE, REPLICAS = "follower.replication.throttled.rate", "follower.replication.throttled.replicas"
SET_HERE = {"DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG"}
DRAINED, KILLED = BROKERS[0], BROKERS[1]


async def tidemark(cluster: Replicated, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `tidemark brokers`."""
    servers = ("--bootstrap-server", cluster.servers)
    return await run_to_end([sys.executable, "-m", "tidemark.cli", "brokers", *arguments, *servers])


def hosted(cluster: Replicated, broker_id: int) -> int:
    """How many replicas of all topics a broker has, by the metadata."""
    topics = admin(cluster.servers).list_topics(timeout=10).topics.values()
    return sum(broker_id in one.replicas for topic in topics for one in topic.partitions.values())


def logs(cluster: Replicated, broker_id: int) -> list[str]:
    """Directories of partitions that lie on a broker's disk."""
    (node,) = (one for one in cluster.nodes if one.node_id == broker_id)
    found = (path.parent.name for path in (node.directory / "logs").rglob("*.log"))
    return sorted({name for name in found if "__cluster_metadata" not in name})


def throttles(cluster: Replicated, topic: str) -> set[str]:
    """What brokers and a topic have set of a throttle."""
    resources = [ConfigResource(ResourceType.TOPIC, topic)]
    resources += [ConfigResource(ResourceType.BROKER, str(one)) for one in BROKERS]
    tools, found = admin(cluster.servers), set()
    for resource in resources:
        (asked,) = tools.describe_configs([resource]).values()
        for name in {RATE, REPLICAS} & set(entries := asked.result(10)):
            if ConfigSource(entries[name].source).name in SET_HERE:
                found.add(f"{resource.name}: {name}")
    return found


async def interrupted_throttled_drain(cluster: Replicated) -> None:
    """It moves next to nothing until Ctrl-C, and then leaves no throttle behind."""
    command = [sys.executable, "-m", "tidemark.cli", "brokers", "drain", str(DRAINED)]
    options = ["--throttle", "1", "--bootstrap-server", cluster.servers]
    process = await asyncio.create_subprocess_exec(
        *command, *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT, env=environment(),
    )  # fmt: skip
    try:
        await until_asked(
            lambda: len(throttles(cluster, TOPIC)) > 1, "it is throttled", deadline_s=BETWEEN_S
        )
        process.send_signal(signal.SIGINT)
        said, _ = await asyncio.wait_for(process.communicate(), BETWEEN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = said.decode()
    assert process.returncode == 130, text
    assert text.splitlines()[-1].startswith("interrupted: what has begun continues"), text
    assert throttles(cluster, TOPIC) == set()


async def test_a_broker_is_drained_and_takes_its_share_again(tmp_path: Path) -> None:
    async with apart(tmp_path, SETTINGS | TWO | SHORT | SMALL_FETCHES, voters=1) as cluster:
        await create(cluster, copies=2)
        traffic = Traffic(cluster.servers, TOPIC, PARTITIONS, record_bytes=2_000)
        reading = Reading(cluster.servers, TOPIC)
        try:
            await until(
                lambda: traffic.least > 50 and len(reading.read) > 50,
                "there are records, and a group",
                deadline_s=BETWEEN_S,
            )
            before = hosted(cluster, DRAINED)
            assert before > 0
            code, said = await tidemark(cluster, "drain", "77")
            assert (code, "there is no broker 77" in said) == (1, True), said
            code, said = await tidemark(cluster, "drain", str(DRAINED), "--dry-run")
            assert (code, f"broker {DRAINED} -> " in said) == (0, True), said
            assert hosted(cluster, DRAINED) == before

            await interrupted_throttled_drain(cluster)
            code, said = await tidemark(cluster, "drain", str(DRAINED), "--at-once", "4")
            assert code == 0, said
            assert said.splitlines()[-1].startswith(f"broker {DRAINED} has no replica"), said
            assert hosted(cluster, DRAINED) == 0
            await until_asked(
                lambda: logs(cluster, DRAINED) == [], "its files are gone", deadline_s=BETWEEN_S
            )
            least = traffic.least
            await until(lambda: traffic.least > least + 20, "records", deadline_s=BETWEEN_S)
            code, said = await tidemark(cluster, "add", str(DRAINED), "--throttle", "100000000")
            assert (code, f"-> {DRAINED}: " in said) == (0, True), said
            assert hosted(cluster, DRAINED) > 0
            assert throttles(cluster, TOPIC) == set()
            (killed,) = (one for one in cluster.nodes if one.node_id == KILLED)
            killed.kill()
            code, said = await tidemark(cluster, "drain", str(KILLED))
            assert code == 0, said
            assert said.splitlines()[-1].startswith(f"broker {KILLED} has no replica"), said
            assert hosted(cluster, KILLED) == 0
        finally:
            await asyncio.to_thread(traffic.stop)
            await asyncio.to_thread(reading.stop)
        reading = Reading(cluster.servers, TOPIC, read=reading.read)
        try:
            await until_read([traffic.acknowledged], reading)
        finally:
            await asyncio.to_thread(reading.stop)
