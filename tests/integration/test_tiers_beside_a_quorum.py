"""Remote tiers of several brokers beside three controllers: real processes, real clients."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.quorum.serving import admin, brokers, leaders, until_true
from tests.support.quorum.tiering import (
    TOPIC,
    TieringBroker,
    audited,
    remote_segments,
    tiering_controllers,
    tiering_nodes,
    until_only_active_is_local,
)

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=240)]

METADATA = "__remote_log_metadata"
RECORDS = [(b"%d" % n, (b"%d " % n) * 200) for n in range(6_000)]
AS_READ = [(n, key, value) for n, (key, value) in enumerate(RECORDS)]


async def create(node: TieringBroker, topic: str, partitions: int = 1) -> dict[int, int]:
    """Create a tiered topic; partition to leader."""
    tools = admin(node.address)
    made = tools.create_topics([NewTopic(topic, partitions, 1, config=TOPIC)])
    await asyncio.to_thread(made[topic].result, 30)
    found: dict[int, int] = {}

    def is_led() -> bool:
        found.update(leaders(node.address, topic))
        return len(found) == partitions and -1 not in found.values()

    await until_true(is_led, f"{topic} is led")
    return found


async def test_a_topics_life_in_the_tiers_of_two_brokers(tmp_path: Path) -> None:
    """Only processes show that tiers reach the metadata topic at each other's brokers."""
    async with tiering_controllers(tmp_path) as quorum, tiering_nodes(quorum, 11, 12) as nodes:
        one, other = nodes
        for node in nodes:
            await until_true(lambda at=node.address: brokers(at) == {11, 12}, "both serve")
        led = await create(one, "t", 4)
        assert set(led.values()) == {11, 12}
        assert set(leaders(other.address, METADATA).values()) <= {11, 12}
        for partition in led:
            await asyncio.to_thread(produce, other, "t", RECORDS, partition)
        by_id = {node.node_id: node for node in nodes}
        for partition, leader in led.items():
            await until_only_active_is_local(quorum, by_id[leader], "t", partition)
            assert await asyncio.to_thread(read_all, one, "t", partition) == AS_READ
            assert await asyncio.to_thread(end_offsets, one, "t", partition) == (0, len(RECORDS))
        await audited(one, "t")
        tools = admin(one.address)
        gone = tools.delete_topics(["t"])
        await asyncio.to_thread(gone["t"].result, 30)
        await until_true(
            lambda: not any(remote_segments(quorum, "t", each) for each in led),
            "the objects of the deleted topic are gone",
        )
        for node in nodes:
            assert node.health()["status"] == "green", node.health()
            assert await node.stop() == 0
