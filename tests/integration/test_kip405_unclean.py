"""KIP-405's scenario 5 with real processes: lineages that diverge in the store, and one comes back.

The states step by step are those of `tests/simulation/test_kip405_scenarios.py`; scenario 4 is in
`test_tiered_replicas.py`. Only real processes show that the controller's unclean elections reach
the tiers, and that a tier which starts anew tells lineages apart by what it reads of the metadata
topic.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.clients import Read, Sent, end_offsets, produce, read_all
from tests.support.brokers.raw_client import RawClient
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.serving import admin, leaders, until_true
from tests.support.quorum.tiering import Cluster, Tiering, audited, tiers_combined

pytestmark = [pytest.mark.lasts(seconds=90), pytest.mark.patience(seconds=300)]

UNCLEAN = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1"}
LATEST_TIERED = -5
PATIENCE_S = 120
SHARED, OLD, NEW = 500, 4_000, 3_000
"""Records that both replicas have; all of the first lineage; the end of the next one."""


def records(lineage: bytes, first: int, end: int) -> list[Sent]:
    return [(b"%s-%d" % (lineage, n), (b"%d " % n) * 200) for n in range(first, end)]


def as_read(sent: list[Sent]) -> list[Read]:
    return [(offset, key, value) for offset, (key, value) in enumerate(sent)]


def copied_through(node: Tiering) -> int:
    """The last offset that a leader has in the store, of its own lineage."""
    one = {"partition_index": 0, "timestamp": LATEST_TIERED}
    fields = {"replica_id": -1, "topics": [{"name": "t", "partitions": [one]}]}
    with RawClient(node, int(node.address.split(":")[1])) as client:
        found = client.ask(ApiKey.LIST_OFFSETS, 9, fields).topics[0].partitions[0]
    return int(found.offset) if found.error_code == 0 else -1


async def until_copied(node: Tiering, end: int) -> None:
    """The leader has this offset in the store."""
    await until_asked(
        lambda: copied_through(node) >= end,
        f"{node.node_id} has copied offset {end}",
        deadline_s=PATIENCE_S,
    )


async def leads_alone(node: Tiering, before: Tiering, end: int) -> None:
    """The only other replica is killed, and this one started: it leads uncleanly, up to `end`."""
    before.kill()
    await node.start()
    await until_it_leads(node, end)


async def until_it_leads(node: Tiering, end: int) -> None:
    def leads() -> bool:
        with suppress(KafkaException):  # the metadata are a little ahead of the partition
            return end_offsets(node, "t") == (0, end)
        return False

    await until_true(lambda: leaders(node.address, "t") == {0: node.node_id}, "it leads")
    await until_true(leads, f"it serves up to {end}")


async def until_both_are_in_sync(cluster: Cluster) -> None:
    def are() -> bool:
        found = admin(cluster.servers).list_topics("t", timeout=10).topics["t"].partitions[0]
        return len(found.isrs) == 2

    await until_true(are, "both replicas are in sync")


async def diverged(cluster: Cluster) -> tuple[Tiering, Tiering, list[Sent]]:
    """Two lineages are in the store: that of the first leader, and that of the replica which leads.

    Returns:
        Both of them, the first one is killed; and what the second one has acknowledged.
    """
    first = cluster.node((await cluster.create("t", replicas=2, **UNCLEAN))[0])
    found = admin(cluster.servers).list_topics("t", timeout=10).topics["t"].partitions[0]
    second = next(cluster.node(one) for one in found.replicas if one != first.node_id)
    old = records(b"old", 0, OLD)
    await asyncio.to_thread(produce, first, "t", old[:SHARED])
    await until_both_are_in_sync(cluster)
    second.kill()
    await asyncio.to_thread(produce, first, "t", old[SHARED:])
    await until_copied(first, NEW)
    await leads_alone(second, first, SHARED)
    new = records(b"new", SHARED, NEW)
    await asyncio.to_thread(produce, second, "t", new)
    await until_copied(second, NEW // 2)
    return first, second, old[:SHARED] + new


async def test_a_lineage_that_leads_again_has_its_segments_back(tmp_path: Path) -> None:
    """K405-33, 75: the first leader, elected uncleanly, never hears of the lineage in between."""
    async with tiers_combined(tmp_path) as cluster:
        first, second, sent = await diverged(cluster)
        ranges = cluster.remote_ranges("t")
        assert cluster.copied_end("t", start=NEW) > NEW, "the first one has copied more"
        assert await asyncio.to_thread(read_all, second, "t") == as_read(sent)
        await leads_alone(first, second, OLD)
        sent = records(b"old", 0, OLD) + records(b"more", OLD, 2 * OLD)
        await asyncio.to_thread(produce, first, "t", sent[OLD:])
        await until_copied(first, OLD + NEW)
        await until_asked(
            lambda: first.local_segments("t")[0] > OLD,
            "what the second one lacks is in the store alone",
            deadline_s=PATIENCE_S,
        )
        await second.start()
        await until_both_are_in_sync(cluster)
        assert second.local_segments("t")[0] > OLD, "all that it had gave way"
        first.kill()
        await until_it_leads(second, 2 * OLD)
        assert await asyncio.to_thread(read_all, second, "t") == as_read(sent)
        await first.start()
        await until_both_are_in_sync(cluster)
        await cluster.until_green()
        assert set(ranges) <= set(cluster.remote_ranges("t")), "the old segments are kept"
        await audited(second, "--deep")
