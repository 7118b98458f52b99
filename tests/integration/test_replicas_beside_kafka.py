"""Brokers of ours and of Apache Kafka copy from each other: real processes, Kafka's own tools.

Only the other implementation shows that what each of them asks, answers, cuts and keeps is what the
protocol means, and not what both sides of ours take it for.
"""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END as END
from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic

from local_log.manager.log_dir import LOG_STARTS
from metadata_topic.image.model import RECOVERED
from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kafka_controllers import PlainKafkaController
from tests.support.quorum.mixed_replicas import (
    KAFKAS,
    LED_BY,
    OTHER,
    OURS,
    Mixed,
    checkpoint,
    complaints,
    dumped,
    epochs,
    mixed,
)
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.serving import admin

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.lasts(seconds=240),
    pytest.mark.patience(seconds=850),
    pytest.mark.timeout(900),
]

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
        await cluster.stop()
        await _are_equal(cluster, TOPIC)


async def test_minimum_elections_cuts_and_transactions_hold(tmp_path: Path) -> None:
    """Each broker stops, and then the other, and the first is back before it."""
    require_kafka_tools()
    async with mixed(tmp_path, TidemarkController) as cluster:
        tools = admin(cluster.servers)
        state = NewTopic("__transaction_state", 1, replica_assignment=[[KAFKAS]])
        await asyncio.to_thread(tools.create_topics([state])[state.topic].result, 30)
        stamped = {"message_timestamp_type": "LogAppendTime"}
        await cluster.create("safe", min_insync_replicas="2", compression_type="zstd")
        await cluster.create("unclean", unclean_leader_election_enable="true", **stamped)
        await cluster.create("cut")
        await cluster.create("transacted")
        for topic in ("safe", "unclean", "cut"):
            await cluster.produce(topic, 1)
        await cluster.cut("cut", 7)
        for name in ("commit", "abort", "stay open"):
            await cluster.transact("transacted", name)
        for first in (KAFKAS, OURS):
            last = OTHER[first]
            await cluster.nodes[first].stop()
            assert await _members(cluster, "safe") == {(last, (last,), (first,))}
            assert await cluster.refusal("safe") == KafkaError.NOT_ENOUGH_REPLICAS
            read = await asyncio.to_thread(cluster.read, "transacted")
            assert read == {b"commit 0", b"commit 1"}
            await cluster.produce("unclean", 1)  # lost
            await cluster.produce("cut", 1)
            await cluster.cut("cut", END)
            await cluster.nodes[last].stop()
            assert await _members(cluster, "safe") == {(-1, (), (OURS, KAFKAS))}
            await cluster.nodes[first].start()
            await cluster.until_led("safe", dict.fromkeys(LED_BY, first))
            assert await _members(cluster, "safe") == {(first, (first,), (last,))}
            await cluster.until_led("unclean", dict.fromkeys(LED_BY, first))
            await cluster.produce("unclean", 1)
            await cluster.nodes[last].start()
            for topic in ("safe", "unclean", "cut", "transacted"):
                await cluster.until_in_sync(topic)
            await cluster.elect_preferred("safe")
            await cluster.produce("safe", 1)
        assert cluster.acknowledged["safe"] <= await asyncio.to_thread(cluster.read, "safe")
        recovery = {
            one.leader_recovery_state for one in (await cluster.committed("unclean")).values()
        }
        assert recovery == {RECOVERED}
        await cluster.stop()
        await _are_equal(cluster, "safe", "unclean", "transacted")
        starts = [checkpoint(one, LOG_STARTS) for one in cluster.nodes.values()]
        (ours, kafkas) = ([one for one in each if one[0] == "cut"] for each in starts)
        assert ours == kafkas == [["cut", "0", "45"], ["cut", "1", "45"]]


async def _members(cluster: Mixed, topic: str) -> set[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Leader, ISR and eligible replicas of all partitions."""
    partitions = (await cluster.committed(topic)).values()
    return {(one.leader, one.isr, one.elr) for one in partitions}


async def _are_equal(cluster: Mixed, *topics: str) -> None:
    """Both stopped brokers have the same batches, producers and epochs; nothing went wrong."""
    ours, kafkas = cluster.nodes[OURS], cluster.nodes[KAFKAS]
    own, others = await asyncio.to_thread(dumped, (ours, kafkas), *topics)
    assert own == others
    for directory in (f"{topic}-{partition}" for topic in topics for partition in LED_BY):
        found = own.get(directory)
        end = 1 + int(found[-1].split()[3]) if found else 0
        assert epochs(ours, directory, end=end) == epochs(kafkas, directory, end=end)
    assert complaints(kafkas) == []
    assert " ERROR " not in ours.log_file.read_text()
