"""KIP-405's scenarios 3 and 5 with real processes: lineages that diverge in the store.

The states step by step are those of `tests/simulation/test_kip405_scenarios.py`; scenario 4 is in
`test_tiered_replicas.py`. Only real processes show that the controller's unclean elections reach
the tiers, and that a tier which starts again tells lineages apart by what it reads of the metadata
topic.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ResourceType

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.types import TopicPartition as Partition
from kafka_protocol.wire.api_keys import ApiKey
from local_log.manager.log_dir import RUNNING_INCARNATION
from tests.support.brokers.clients import Read, Sent, end_offsets, produce, read_all
from tests.support.brokers.raw_client import RawClient
from tests.support.brokers.tiered_topics import alter
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.serving import admin, leaders, until_true
from tests.support.quorum.tiering import Cluster, Tiering, audited, tiers_combined

pytestmark = [pytest.mark.lasts(seconds=120), pytest.mark.patience(seconds=300)]

UNCLEAN = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1"}
STAYS = {"local_retention_bytes": str(1 << 30)}
SMALL_BATCHES = {"batch.size": 10_000}
IN_ORDER = {"enable.idempotence": True}
"""Also where a leader does not know yet that it leads, and the first batch is sent again."""
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


def lose_power(node: Tiering, least: int) -> int:
    """A killed node's machine loses power: little of its log of `t` had reached the disk.

    Returns:
        Where the log ends, not below `least`.
    """
    (node.logs / RUNNING_INCARNATION).unlink()
    first, *others = sorted((node.logs / "t-0").glob("*.log"))
    data = first.read_bytes()
    position, end = next(
        (at, header.base_offset) for at, header in iter_batches(data) if header.base_offset >= least
    )
    with first.open("r+b") as file:
        file.truncate(position)
    for path in (node.logs / "t-0").iterdir():
        if path.suffix == ".snapshot" or path.stem in {other.stem for other in others}:
            path.unlink()
    for name in (offset_checkpoint.RECOVERY_POINTS, offset_checkpoint.HIGH_WATERMARKS):
        path = node.logs / name
        kept = offset_checkpoint.parse(path.read_bytes())
        kept[Partition("t", 0)] = 0
        path.write_bytes(offset_checkpoint.dump(kept))
    return end


async def test_offsets_lost_in_two_failures_are_given_again_uncleanly(tmp_path: Path) -> None:
    """K405-73: what the store has of them is not served, and the other replica truncates."""
    async with tiers_combined(tmp_path) as cluster:
        first, second = await two_replicas(cluster, **STAYS)
        old = records(b"old", 0, OLD)
        await asyncio.to_thread(produce, first, "t", old, **SMALL_BATCHES, **IN_ORDER)
        await until_copied(first, NEW)
        await until_both_are_in_sync(cluster)
        second.kill()
        first.kill()
        (first.logs / RUNNING_INCARNATION).unlink()
        end = lose_power(second, SHARED)
        assert end < NEW
        await second.start()
        await until_it_leads(second, end)
        sent = old[:end] + records(b"new", end, NEW)
        await asyncio.to_thread(produce, second, "t", sent[end:], **IN_ORDER)
        await until_copied(second, NEW // 2)
        await first.start()
        await until_both_are_in_sync(cluster)
        assert await asyncio.to_thread(read_all, second, "t") == as_read(sent)
        less = {"local_retention_bytes": "1"}
        await asyncio.to_thread(alter, second, ResourceType.TOPIC, "t", **less)
        for node in (first, second):
            await until_asked(
                lambda node=node: len(node.local_segments("t")) == 1,  # type: ignore[misc]
                f"{node.node_id} has the active segment alone",
                deadline_s=PATIENCE_S,
            )
        assert await asyncio.to_thread(read_all, second, "t") == as_read(sent)
        await cluster.until_green()
        await audited(second, "--deep")


async def two_replicas(cluster: Cluster, **config: str) -> tuple[Tiering, Tiering]:
    """Make the topic: its leader, and its other replica."""
    first = cluster.node((await cluster.create("t", replicas=2, **UNCLEAN, **config))[0])
    found = admin(cluster.servers).list_topics("t", timeout=10).topics["t"].partitions[0]
    return first, next(cluster.node(one) for one in found.replicas if one != first.node_id)


async def diverged(cluster: Cluster) -> tuple[Tiering, Tiering, list[Sent]]:
    """Two lineages are in the store: that of the first leader, and that of the replica which leads.

    Returns:
        Both of them, the first one is killed; and what the second one has acknowledged.
    """
    first, second = await two_replicas(cluster)
    old = records(b"old", 0, OLD)
    await asyncio.to_thread(produce, first, "t", old[:SHARED], **IN_ORDER)
    await until_both_are_in_sync(cluster)
    second.kill()
    await asyncio.to_thread(produce, first, "t", old[SHARED:], **IN_ORDER)
    await until_copied(first, NEW)
    await leads_alone(second, first, SHARED)
    new = records(b"new", SHARED, NEW)
    await asyncio.to_thread(produce, second, "t", new, **IN_ORDER)
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
        await asyncio.to_thread(produce, first, "t", sent[OLD:], **IN_ORDER)
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
