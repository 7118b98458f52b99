"""Tiered topics with three replicas: the leader copies, all expire, and all may lead next.

Only real processes show that the tier of another process continues with the store and the metadata
of one that was killed.
"""

import asyncio
import os
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, ResourceType

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.types import TopicPartition as Partition
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.raw_client import RawClient, fetch_fields
from tests.support.brokers.tiered_topics import alter, delete_records
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.serving import admin, leaders, until_true
from tests.support.quorum.tier_rounds import Traffic, validate_records
from tests.support.quorum.tiering import Cluster, Tiering, audited, tiers_combined

pytestmark = [pytest.mark.lasts(seconds=180), pytest.mark.patience(seconds=300)]

RECORDS = [(b"%d" % n, (b"%d " % n) * 200) for n in range(6_000)]
AS_READ = [(n, key, value) for n, (key, value) in enumerate(RECORDS)]
IN_ORDER = {"enable.idempotence": True}
SAFE = {"min_insync_replicas": "2"}
STAYS = {"local_retention_bytes": str(1 << 30)}
"""A replica that was away finds what it lacks on its leader's disk."""
PATIENCE_S = 120
EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -4, -5


def offset_of(node: Tiering, topic: str, asked: int, partition: int = 0) -> int:
    """What ListOffsets of this node answers."""
    one = {"partition_index": partition, "timestamp": asked}
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": [one]}]}
    with RawClient(node, int(node.address.split(":")[1])) as client:
        found = client.ask(ApiKey.LIST_OFFSETS, 9, fields).topics[0].partitions[0]
    assert found.error_code == 0, found
    return int(found.offset)


def whole(node: Tiering, topic: str, partition: int) -> bytes:
    """All batches that a replica gives a consumer, from offset 0 until it gives no more."""
    found, offset = bytearray(), 0
    with RawClient(node, int(node.address.split(":")[1])) as client:
        while True:
            fields = fetch_fields(topic, offset, partition=partition)
            fields |= {"replica_id": -1, "rack_id": "r1", "max_wait_ms": 500}
            answer = client.ask(ApiKey.FETCH, 12, fields).responses[0].partitions[0]
            batches = [header for _, header in iter_batches(bytes(answer.records or b""))]
            if answer.error_code or not batches:
                return bytes(found)
            found += answer.records
            offset = batches[-1].next_offset


def kept_log_start(node: Tiering, topic: str) -> int:
    """What a replica of partition 0 has on its disk for its log start."""
    path = node.logs / offset_checkpoint.LOG_STARTS
    found = offset_checkpoint.parse(path.read_bytes()) if path.exists() else {}
    return found.get(Partition(topic, 0), 0)


async def until_another_leads(cluster: Cluster, topic: str, lost: Tiering) -> Tiering:
    here = next(one for one in cluster.nodes if one is not lost)
    found: list[int] = []

    def is_led() -> bool:
        found[:] = leaders(here.address, topic).values()
        return found != [] and not {-1, lost.node_id} & set(found)

    await until_true(is_led, f"another than {lost.node_id} leads {topic}")
    node = cluster.node(found[0])

    def serves() -> bool:
        with suppress(KafkaException):  # the metadata are a little ahead of the partition
            return bool(end_offsets(node, topic))
        return False

    await until_true(serves, f"{node.node_id} serves {topic}")
    return node


async def until_in_sync(cluster: Cluster, topic: str, ids: set[int] | None = None) -> None:
    """Wait until the in-sync replicas are these, or all brokers."""
    wanted = cluster.ids if ids is None else ids

    def are() -> bool:
        found = admin(cluster.servers).list_topics(topic, timeout=10).topics[topic]
        return all(set(one.isrs) == wanted for one in found.partitions.values())

    await until_true(are, f"in-sync replicas of {topic} are {wanted}")


async def until_copied(cluster: Cluster, topic: str, end: int) -> None:
    await until_asked(
        lambda: cluster.copied_end(topic) > end,
        f"offset {end} of {topic} is in the store",
        deadline_s=PATIENCE_S,
    )


async def test_followers_drop_what_their_leader_has_copied_and_nothing_else(
    tmp_path: Path,
) -> None:
    """Else followers keep all for ever, or go by local retention alone, and the next one to lead
    has lost what no store holds."""
    async with tiers_combined(tmp_path) as cluster:
        led = await cluster.create("t", 2, replicas=3, **SAFE)
        held, copying = cluster.node(led[0]), cluster.node(led[1])
        assert held is not copying
        tier = held.tier_pid()
        assert tier is not None
        os.kill(tier, signal.SIGSTOP)
        for partition, node in enumerate((held, copying)):
            await asyncio.to_thread(produce, node, "t", RECORDS, partition, **IN_ORDER)
        followers = [one for one in cluster.nodes if one is not held]
        for node in followers:
            await until_asked(
                lambda node=node: len(node.local_segments("t", 1)) == 1,  # type: ignore[misc]
                f"{node.node_id} has the active segment of t-1 alone",
                deadline_s=PATIENCE_S,
            )
        for node in followers:  # their local retention has had a look at both partitions
            there = node.local_segments("t", 0)
            assert there[0] <= cluster.copied_end("t", 0)
            assert len(there) > 1
        with suppress(ProcessLookupError):  # a hung one is killed after a while
            os.kill(tier, signal.SIGCONT)
        for partition, node in enumerate((held, copying)):
            await cluster.until_replicas_have_the_active_alone("t", partition)
            (local_start,) = node.local_segments("t", partition)
            asked = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, LATEST)
            found = [offset_of(node, "t", one, partition) for one in asked]
            assert found == [0, local_start, local_start - 1, len(RECORDS)]
            assert await asyncio.to_thread(read_all, node, "t", partition) == AS_READ
            # Each follower gives the same, from the store and from its own disk.
            led_bytes = await asyncio.to_thread(whole, node, "t", partition)
            assert sum(1 for _ in iter_batches(led_bytes)) > 1
            for other in cluster.nodes:
                await until_asked(
                    lambda other=other, partition=partition, led_bytes=led_bytes: (  # type: ignore[misc]
                        whole(other, "t", partition) == led_bytes
                    ),
                    f"{other.node_id} gives of t-{partition} what the leader gives",
                    deadline_s=PATIENCE_S,
                )
        await cluster.until_green()
        await audited(held, "--deep")


async def test_the_next_leader_copies_on_and_so_does_the_one_that_comes_back(
    tmp_path: Path,
) -> None:
    """Else the next one copies from the start again, waits for a barrier that nobody writes, or
    deletes as dangling what the first one finished. Else, when all were killed, nobody leads: the
    log of each begins above the high watermark that it had noted."""
    async with tiers_combined(tmp_path) as cluster:
        first = cluster.node((await cluster.create("t", replicas=3, **SAFE, **STAYS))[0])
        traffic = Traffic(cluster.servers, "t", 1)
        try:
            await until_copied(cluster, "t", 60)
            first.kill()
            second = await until_another_leads(cluster, "t", first)
            await until_copied(cluster, "t", traffic.least + 60)
            await first.start()
            await until_in_sync(cluster, "t")
            tools = admin(cluster.servers)
            elected = tools.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)])
            await asyncio.to_thread(elected.result, 30)
            await until_true(
                lambda: leaders(second.address, "t") == {0: first.node_id}, "the first leads again"
            )
            await until_copied(cluster, "t", traffic.least + 60)
        finally:
            await asyncio.to_thread(traffic.stop)
        less = {"local_retention_bytes": "1"}
        await asyncio.to_thread(alter, first, ResourceType.TOPIC, "t", **less)
        await cluster.until_replicas_have_the_active_alone("t")
        assert offset_of(first, "t", EARLIEST) == 0
        (local_start,) = first.local_segments("t")
        assert offset_of(first, "t", LATEST_TIERED) == local_start - 1
        for node in cluster.nodes:  # what they find committed is older than what is in the store
            node.kill()
        await asyncio.gather(*(one.start() for one in cluster.nodes))
        await cluster.until_all_serve()
        await until_in_sync(cluster, "t")
        await validate_records(first, traffic, "t")
        await cluster.until_green()

        def copies() -> bool:
            ranges = cluster.remote_ranges("t")
            return all(last + 1 == start for (_, last), (start, _) in pairwise(ranges))

        await until_true(copies, "each offset is in the store once")
        assert cluster.copied_end("t") >= local_start
        await audited(first, "--deep")


async def test_the_log_start_goes_with_the_leadership_and_to_all_replicas(
    tmp_path: Path,
) -> None:
    """Else deleted records come back with the next leader, which finds them in the store or on its
    disk, or a follower keeps for ever what total retention has taken."""
    cut = 3_210
    async with tiers_combined(tmp_path) as cluster:
        first = cluster.node((await cluster.create("t", replicas=3, **SAFE, **STAYS))[0])
        await asyncio.to_thread(produce, first, "t", RECORDS, **IN_ORDER)
        await until_copied(cluster, "t", cut)
        assert await asyncio.to_thread(delete_records, first, "t", cut) == cut
        first.kill()
        second = await until_another_leads(cluster, "t", first)
        assert await asyncio.to_thread(end_offsets, second, "t") == (cut, len(RECORDS))
        assert await asyncio.to_thread(read_all, second, "t") == AS_READ[cut:]
        less = {"retention_bytes": str(1 << 20), "local_retention_bytes": "-2"}
        await asyncio.to_thread(alter, second, ResourceType.TOPIC, "t", **less)
        await until_true(lambda: offset_of(second, "t", EARLIEST) > cut, "retention has begun")
        await first.start()
        await until_in_sync(cluster, "t")
        for node in cluster.nodes:
            await until_true(
                lambda node=node: (  # type: ignore[misc]
                    kept_log_start(node, "t") == offset_of(second, "t", EARLIEST)
                    and node.local_segments("t")[0] > cut
                ),
                f"{node.node_id} begins where its leader does",
            )
        start = offset_of(second, "t", EARLIEST)
        assert await asyncio.to_thread(read_all, second, "t") == AS_READ[start:]
        await until_true(lambda: cluster.remote_ranges("t")[0][1] >= start, "what is below is gone")
        await cluster.until_green()
        await audited(second, "--deep")


async def test_tiers_are_switched_on_one_broker_after_the_other(tmp_path: Path) -> None:
    """K405-97. Else a cluster has to be stopped for it: a tier that waits for the others, or for
    its topic, holds up its broker, or the topic is refused for replicas whose tier is on."""
    async with tiers_combined(tmp_path, are_on=False) as cluster:
        tools = admin(cluster.servers)
        plain = NewTopic("t", 1, 3, config={"segment.bytes": "1048576", "min.insync.replicas": "2"})
        await asyncio.to_thread(tools.create_topics([plain])["t"].result, 30)
        traffic = Traffic(cluster.servers, "t", 1)
        try:
            for node in cluster.nodes:
                before = traffic.least
                assert await node.stop() == 0
                node.switch_on()
                await node.start()
                await until_in_sync(cluster, "t")
                await until_true(
                    lambda before=before: traffic.least > before + 20,  # type: ignore[misc]
                    "records are acknowledged",
                )
            await until_true(
                lambda: "__remote_log_metadata" in tools.list_topics(timeout=10).topics,
                "the tiers have their topic",
            )
            here, on = cluster.nodes[0], {"remote_storage_enable": "true"}
            await asyncio.to_thread(alter, here, ResourceType.TOPIC, "t", **on)
            less = {"local_retention_bytes": "1"}
            await asyncio.to_thread(alter, here, ResourceType.TOPIC, "t", **less)
            await until_copied(cluster, "t", traffic.least + 20)
        finally:
            await asyncio.to_thread(traffic.stop)
        await cluster.until_replicas_have_the_active_alone("t")
        await validate_records(here, traffic, "t")
        await cluster.until_green()
        await audited(here, "--deep")


async def test_what_an_unclean_election_gives_up_is_in_no_tier(tmp_path: Path) -> None:
    """Else readers get segments of the lost lineage, the next leader is unhealthy because the
    store reaches above its log end, or nobody joins it."""
    shared, lost, again = RECORDS[:2_000], RECORDS[2_000:4_000], RECORDS[4_000:]
    kept = [(n, key, value) for n, (key, value) in enumerate([*shared, *again])]
    async with tiers_combined(tmp_path) as cluster:
        first = cluster.node((await cluster.create("t", replicas=2, **STAYS))[0])
        second = next(one for one in cluster.nodes if one is not first and one.local_segments("t"))
        both = {first.node_id, second.node_id}
        await asyncio.to_thread(produce, first, "t", shared, **IN_ORDER)
        second.kill()
        await until_in_sync(cluster, "t", {first.node_id})
        await asyncio.to_thread(produce, first, "t", lost, **IN_ORDER)
        await until_copied(cluster, "t", 2_500)
        first.kill()
        await second.start()

        def is_elected() -> bool:
            tools = admin(second.address)
            with suppress(KafkaException):  # while it is not known that nobody leads
                tools.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("t", 0)]).result(30)
            return leaders(second.address, "t") == {0: second.node_id}

        await until_true(is_elected, "the one that was behind leads")
        await asyncio.to_thread(produce, second, "t", again, **IN_ORDER)
        assert await asyncio.to_thread(read_all, second, "t") == kept
        await first.start()
        await until_in_sync(cluster, "t", both)
        less = {"local_retention_bytes": "1"}
        await asyncio.to_thread(alter, second, ResourceType.TOPIC, "t", **less)
        for node in (first, second):
            await until_true(lambda node=node: len(node.local_segments("t")) == 1, "it is copied")  # type: ignore[misc]
        assert await asyncio.to_thread(read_all, second, "t") == kept
        await cluster.until_green()
        await audited(second, "--deep")
        second.kill()
        first_again = await until_another_leads(cluster, "t", second)
        assert first_again is first
        assert await asyncio.to_thread(read_all, first, "t") == kept
        await second.start()
        await until_in_sync(cluster, "t", both)
        await asyncio.to_thread(delete_records, first, "t", len(kept))
        await until_true(lambda: not cluster.remote_ranges("t"), "both lineages are gone")
        await cluster.until_green()
        await audited(first, "--deep")
