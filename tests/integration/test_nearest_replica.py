"""Consumers that librdkafka sends to the replica in their rack (KIP-392).

Only a real client shows that it understands who is named, asks there, and comes back from there.
"""

import asyncio
import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.brokers.clients import produce, read_all
from tests.support.quorum.tiering import Cluster, Tiering, tiers_combined

pytestmark = [pytest.mark.lasts(seconds=90), pytest.mark.patience(seconds=300)]

RECORDS = [(b"%d" % n, (b"%d " % n) * 200) for n in range(4_000)]
MORE = [(b"%d" % n, b"later") for n in range(4_000, 4_100)]
IN_ORDER = {"enable.idempotence": True}
SAFE = {"min_insync_replicas": "2"}
SILENCE_S = 120
_SENT = re.compile(
    r'^kafka_server_BrokerTopicMetrics_BytesOutPerSec_total\{topic="t"\} (\S+)$', re.MULTILINE
)


def sent_bytes(node: Tiering) -> float:
    """What a broker has sent to consumers of the topic."""
    found = _SENT.search(node.page("metrics"))
    return float(found[1]) if found else 0.0


def consumed(consumer: Consumer, start: int, end: int) -> list[tuple[int, bytes]]:
    """Offsets and keys from `start` to `end` (exclusive)."""
    found: list[tuple[int, bytes]] = []
    heard = time.monotonic()
    while start + len(found) < end:
        silent_s = time.monotonic() - heard
        assert silent_s < SILENCE_S, f"nothing after offset {start + len(found)} of {end}"
        for message in consumer.consume(end - start - len(found), 1):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.key()))
            heard = time.monotonic()
    return found


async def roles(cluster: Cluster) -> tuple[Tiering, Tiering, Tiering]:
    """The leader of a tiered topic with all records, and its followers."""
    led = await cluster.create("t", replicas=3, **SAFE)
    leader = cluster.node(led[0])
    near, other = (one for one in cluster.nodes if one is not leader)
    await asyncio.to_thread(produce, leader, "t", RECORDS, **IN_ORDER)
    await cluster.until_replicas_have_the_active_alone("t")
    return leader, near, other


async def test_a_consumer_reads_both_tiers_in_its_rack_and_continues_without_it(
    tmp_path: Path,
) -> None:
    """Else each byte crosses the racks though a copy lies nearby; or a consumer stays without
    records when the replica nearby is killed."""
    async with tiers_combined(tmp_path, have_racks=True) as cluster:
        leader, near, other = await roles(cluster)
        rack = {"client.rack": f"r{near.node_id}"}
        found = await asyncio.to_thread(read_all, leader, "t", **rack)
        assert found == [(n, key, value) for n, (key, value) in enumerate(RECORDS)]
        assert sent_bytes(near) > sum(len(value) for _, value in RECORDS)
        assert sent_bytes(leader) == sent_bytes(other) == 0

        config = {"bootstrap.servers": cluster.servers, "group.id": "unused", **rack}
        consumer = Consumer(config | {"enable.auto.commit": False, "auto.offset.reset": "error"})
        try:
            consumer.assign([TopicPartition("t", 0, 0)])
            await asyncio.to_thread(consumed, consumer, 0, len(RECORDS))
            near.kill()
            await asyncio.to_thread(produce, leader, "t", MORE, **IN_ORDER)
            end = len(RECORDS) + len(MORE)
            last = await asyncio.to_thread(consumed, consumer, len(RECORDS), end)
        finally:
            await asyncio.to_thread(consumer.close)
        assert last == [(n, b"%d" % n) for n in range(len(RECORDS), end)]
        assert sent_bytes(leader) > 0


async def test_a_consumer_without_a_replica_in_its_rack_reads_from_the_leader(
    tmp_path: Path,
) -> None:
    """Else it is sent to a broker far away, or to none."""
    async with tiers_combined(tmp_path, have_racks=True) as cluster:
        leader, near, other = await roles(cluster)
        for rack in ("elsewhere", f"r{leader.node_id}"):
            found = await asyncio.to_thread(read_all, leader, "t", **{"client.rack": rack})
            assert len(found) == len(RECORDS)
        assert sent_bytes(near) == sent_bytes(other) == 0
