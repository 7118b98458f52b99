"""A broker is drained under load, and gets its share again.

Only real processes show that replicas that leave take their files with them, that nothing is lost
while leaders go, and what the commands say and wait for.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.quorum.controllers import run_to_end
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
SHORT = {"log.segment.delete.delay.ms": "100"}
DRAINED = BROKERS[0]


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


async def test_a_broker_is_drained_and_takes_its_share_again(tmp_path: Path) -> None:
    async with apart(tmp_path, SETTINGS | TWO | SHORT) as cluster:
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

            code, said = await tidemark(cluster, "drain", str(DRAINED), "--at-once", "4")
            assert (code, f"{before} of {before} replica(s) moved" in said) == (0, True), said
            assert said.splitlines()[-1].startswith(f"broker {DRAINED} has no replica"), said
            assert hosted(cluster, DRAINED) == 0
            await until_asked(
                lambda: logs(cluster, DRAINED) == [], "its files are gone", deadline_s=BETWEEN_S
            )
            least = traffic.least
            await until(lambda: traffic.least > least + 20, "records", deadline_s=BETWEEN_S)
            code, said = await tidemark(cluster, "add", str(DRAINED))
            assert (code, f"-> {DRAINED}: " in said) == (0, True), said
            assert hosted(cluster, DRAINED) > 0
        finally:
            await asyncio.to_thread(traffic.stop)
            await asyncio.to_thread(reading.stop)
        reading = Reading(cluster.servers, TOPIC, read=reading.read)
        try:
            await until_read([traffic.acknowledged], reading)
        finally:
            await asyncio.to_thread(reading.stop)
