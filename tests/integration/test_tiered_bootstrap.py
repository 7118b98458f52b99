"""Followers that lack what their leader has in the remote tier alone, over three real nodes.

Only real processes show that a follower's own tier finds the segments that another broker's tier
has copied, and that clients continue with the follower when it leads.
"""

import asyncio
import sys
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, Message, Producer, TopicPartition

from tests.support.brokers.clients import read_all
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.serving import admin, leaders, until_true
from tests.support.quorum.tiering import Cluster, Tiering, audited, tiers_combined

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=300)]

SAFE = {"min_insync_replicas": "1"}
VALUE = b"v" * 600
PATIENCE_S = 120


class Source:
    """One idempotent producer, whose sequences continue whoever leads; keys are the offsets."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.size": 10_000,
                "topic.metadata.refresh.interval.ms": 2_000,
            }
        )
        self.sent = 0
        self._failed: list[str] = []

    def send(self, count: int) -> None:
        """Send so many more; each is acknowledged at the offset that its key says."""
        for number in range(self.sent, self.sent + count):
            self._producer.produce("t", VALUE, b"%d" % number, 0, on_delivery=self._took)
            self._producer.poll(0)
        self.sent += count
        assert self._producer.flush(120) == 0
        assert not self._failed, self._failed[:3]

    def _took(self, error: object, message: Message) -> None:
        if error is not None:
            self._failed.append(str(error))
        elif message.offset() is not None and message.key() != b"%d" % message.offset():
            self._failed.append(f"{message.key()!r} is at {message.offset()}")

    def as_read(self) -> list[tuple[int, bytes, bytes]]:
        return [(number, b"%d" % number, VALUE) for number in range(self.sent)]


def in_sync(cluster: Cluster) -> set[int]:
    found = admin(cluster.servers).list_topics("t", timeout=10).topics["t"].partitions[0]
    return set(found.isrs)


async def until_in_sync(cluster: Cluster, replicas: set[int]) -> None:
    await until_true(lambda: in_sync(cluster) == replicas, f"{replicas} are in sync")


async def until_local_begins_above(node: Tiering, offset: int) -> None:
    await until_asked(
        lambda: node.local_segments("t")[0] > offset,
        f"the local log of {node.node_id} begins above {offset}",
        deadline_s=PATIENCE_S,
    )


async def leads(cluster: Cluster, node: Tiering) -> None:
    """It is the preferred leader, and leads."""
    tools = admin(cluster.servers)
    elected = tools.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)])
    await asyncio.to_thread(elected.result, 30)
    await until_true(lambda: leaders(node.address, "t") == {0: node.node_id}, "it leads")


async def test_a_follower_that_was_away_begins_above_and_then_leads(tmp_path: Path) -> None:
    """K405-65, 68, 69, 72: it fetches the leader's local tail alone, and knows its producers."""
    async with tiers_combined(tmp_path) as cluster:
        away = cluster.node((await cluster.create("t", replicas=3, **SAFE))[0])
        source = Source(cluster.servers)
        await asyncio.to_thread(source.send, 2_000)
        await until_in_sync(cluster, cluster.ids)
        away.kill()
        await asyncio.to_thread(source.send, 4_000)
        for node in cluster.nodes:
            if node is not away:
                await until_local_begins_above(node, 4_000)
        await away.start()
        await until_in_sync(cluster, cluster.ids)
        assert away.local_segments("t")[0] > 4_000
        assert not [*away.logs.glob("t-0*future")]
        await leads(cluster, away)
        await asyncio.to_thread(source.send, 500)
        assert await asyncio.to_thread(read_all, away, "t") == source.as_read()
        await cluster.until_replicas_have_the_active_alone("t")
        assert await asyncio.to_thread(read_all, away, "t") == source.as_read()
        await cluster.until_green()
        await audited(away, "--deep")


async def test_new_followers_begin_above_and_lead_when_the_first_is_lost(tmp_path: Path) -> None:
    """K405-71: their tiers have never heard of the partition."""
    async with tiers_combined(tmp_path) as cluster:
        first = cluster.node((await cluster.create("t"))[0])
        source = Source(cluster.servers)
        await asyncio.to_thread(source.send, 4_000)
        await until_local_begins_above(first, 3_000)
        command = [sys.executable, "-m", "tidemark.cli", "topics", "replicate", "--factor", "3"]
        code, said = await run_to_end([*command, "t", "--bootstrap-server", cluster.servers])
        assert (code, said.splitlines()[-1]) == (0, "all replicas are in sync"), said
        for node in cluster.nodes:
            assert node.local_segments("t")[0] > 3_000
        first.kill()
        other = next(one for one in cluster.nodes if one is not first)
        await until_true(
            lambda: leaders(other.address, "t").get(0) not in (None, -1, first.node_id),
            "another leads",
        )
        await asyncio.to_thread(source.send, 500)
        assert await asyncio.to_thread(read_all, other, "t") == source.as_read()
        await first.start()
        await until_in_sync(cluster, cluster.ids)
        await cluster.until_green()
        await audited(other, "--deep")
