"""A broker of Apache Kafka beside three controllers of ours: real processes, Kafka's own tools."""

import asyncio
from pathlib import Path

import pytest

from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.kafka_controllers import KafkaBroker
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.serving import (
    brokers,
    consume,
    leaders,
    produce,
    topics_of,
    until_true,
)

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=180)]


async def test_it_is_unfenced_serves_and_leaves(tmp_path: Path) -> None:
    """Only a broker of Kafka shows that its heartbeats and envelopes are taken as it makes them."""
    require_kafka_tools()
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False)
    async with Quorum(tmp_path, plan) as quorum:
        await quorum.leader()
        node = KafkaBroker(11, tmp_path / "broker-11", quorum.membership)
        try:
            await node.start()
            here = node.address
            await until_true(lambda: brokers(here) == {11}, "it is unfenced")
            topics = ("topics", "--bootstrap-server", here)
            created = ("--create", "--topic", "t", "--partitions", "3")
            await asyncio.to_thread(kafka_tool, *topics, *created)
            assert leaders(here, "t") == dict.fromkeys(range(3), 11)
            again = await asyncio.to_thread(kafka_tool, *topics, *created, check=False)
            assert "already exists" in again
            said = await asyncio.to_thread(produce, here, "t", [0, 1, 2], iter(range(3)))
            assert await asyncio.to_thread(consume, here, "t", 3) == said
            await asyncio.to_thread(kafka_tool, *topics, "--delete", "--topic", "t")
            # To ask for the topic by its name may create it again.
            await until_true(lambda: "t" not in topics_of(here), "the topic is gone")
            assert await node.stop() == 143, "the JVM's code after SIGTERM"
            assert "shut down completed" in node.log_file.read_text()
        finally:
            node.close()
