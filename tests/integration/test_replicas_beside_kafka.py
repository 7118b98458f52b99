"""Brokers of ours and of Apache Kafka copy from each other: real processes, Kafka's own tools.

Only the other implementation shows that what each of them asks, answers, cuts and keeps is what the
protocol means, and not what both sides of ours take it for.
"""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import NewTopic

from local_log.manager.log_dir import LOG_STARTS
from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kafka_controllers import PlainKafkaController
from tests.support.quorum.mixed_replicas import (
    KAFKAS,
    LED_BY,
    OTHER,
    OURS,
    Mixed,
    batches,
    checkpoint,
    complaints,
    epochs,
    mixed,
)
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.serving import admin

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=150), pytest.mark.patience(seconds=300)]

TOPIC = "both"


@pytest.mark.parametrize("kind", [TidemarkController, PlainKafkaController])
async def test_each_follows_the_other_and_their_logs_are_equal(
    tmp_path: Path, kind: type[Controller]
) -> None:
    require_kafka_tools()
    async with mixed(tmp_path, kind) as cluster:
        await cluster.create(TOPIC, segment_bytes="1048576")
        await cluster.produce(TOPIC, 12)
        for stopped in (KAFKAS, OURS):
            node = cluster.nodes[stopped]
            assert await node.stop() == node.terminated
            led = {n: one.leader for n, one in (await cluster.committed(TOPIC)).items()}
            assert led == dict.fromkeys(LED_BY, OTHER[stopped]), "moved before it ended"
            await cluster.produce(TOPIC, 1)
            await node.start()
            await cluster.until_in_sync(TOPIC)
            await cluster.elect_preferred(TOPIC)
            await cluster.produce(TOPIC, 1)
        for killed in (OURS, KAFKAS):
            await cluster.lose_a_tail(TOPIC, killed)
            await cluster.elect_preferred(TOPIC)
            await cluster.produce(TOPIC, 1)
        await cluster.until_in_sync(TOPIC)
        read = await asyncio.to_thread(cluster.read, TOPIC)
        assert cluster.acknowledged[TOPIC] <= read
        for node in cluster.nodes.values():
            await node.stop()
        await _are_equal(cluster, TOPIC)


async def test_the_minimum_eligible_replicas_cuts_and_transactions_hold(tmp_path: Path) -> None:
    require_kafka_tools()
    async with mixed(tmp_path, TidemarkController) as cluster:
        tools = admin(cluster.servers)
        state = NewTopic("__transaction_state", 1, replica_assignment=[[KAFKAS]])
        await asyncio.to_thread(tools.create_topics([state])[state.topic].result, 30)
        await cluster.create("safe", min_insync_replicas="2")
        await cluster.create("cut")
        await cluster.create("transacted")
        await cluster.produce("cut", 1)
        cuts = [TopicPartition("cut", one, 7) for one in LED_BY]
        for done in tools.delete_records(cuts).values():
            assert (await asyncio.to_thread(done.result, 30)).low_watermark == 7
        for name in ("commit", "abort", "stay open"):
            await cluster.transact("transacted", name)
        for first in (KAFKAS, OURS):
            last = OTHER[first]
            await cluster.produce("safe", 1)
            await cluster.nodes[first].stop()
            assert await _members(cluster, "safe") == {(last, (last,), (first,))}
            assert await cluster.refusal("safe") == KafkaError.NOT_ENOUGH_REPLICAS
            read = await asyncio.to_thread(cluster.read, "transacted")
            assert read == {b"commit 0", b"commit 1"}
            await cluster.nodes[last].stop()
            assert await _members(cluster, "safe") == {(-1, (), (OURS, KAFKAS))}
            await cluster.nodes[first].start()
            await cluster.until_led("safe", dict.fromkeys(LED_BY, first))
            assert await _members(cluster, "safe") == {(first, (first,), (last,))}
            await cluster.nodes[last].start()
            for topic in ("safe", "cut", "transacted"):
                await cluster.until_in_sync(topic)
            await cluster.elect_preferred("safe")
        await asyncio.gather(*(node.stop() for node in cluster.nodes.values()))
        await _are_equal(cluster, "safe", "transacted")
        for node in cluster.nodes.values():
            starts = checkpoint(node, LOG_STARTS)
            assert [one for one in starts if one[0] == "cut"] == [
                ["cut", "0", "7"],
                ["cut", "1", "7"],
            ]


async def _members(cluster: Mixed, topic: str) -> set[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Leader, ISR and eligible replicas of all partitions."""
    partitions = (await cluster.committed(topic)).values()
    return {(one.leader, one.isr, one.elr) for one in partitions}


async def _are_equal(cluster: Mixed, *topics: str) -> None:
    """Both stopped brokers have the same batches and epochs, and nothing went wrong."""
    ours, kafkas = cluster.nodes[OURS], cluster.nodes[KAFKAS]
    own, others = await asyncio.to_thread(batches, (ours, kafkas), *topics)
    assert own == others
    for directory, found in own.items():
        end = 1 + int(found[-1].split()[3]) if found else 0
        assert epochs(ours, directory, end=end) == epochs(kafkas, directory, end=end)
    assert complaints(kafkas) == []
    assert " ERROR " not in ours.log_file.read_text()
