"""UnregisterBroker by Kafka's tool, from a broker to the active controller in another process."""

import asyncio
from pathlib import Path

import pytest

from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.own_controllers import TidemarkController, broker_nodes
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.serving import admin, brokers, consume, create, produce, until_true

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=30), pytest.mark.patience(seconds=120)]


async def test_a_stopped_broker_is_unregistered_and_registers_anew(tmp_path: Path) -> None:
    """Only Kafka's tool shows that it understands the answers; only a process comes back."""
    require_kafka_tools()
    settings = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
    plan = Plan(TidemarkController, is_dynamic=True, has_links=False, settings=settings)
    async with Quorum(tmp_path, plan) as quorum, broker_nodes(quorum, 11, 12) as (one, other):
        here = one.address

        async def cluster(command: str, *options: str) -> str:
            return await asyncio.to_thread(
                kafka_tool, "cluster", command, "--bootstrap-server", here, *options, check=False
            )

        async def unregister(broker_id: int) -> str:
            return await cluster("unregister", "--id", str(broker_id))

        await until_true(lambda: brokers(here) == {11, 12}, "both serve")
        await create(here, "t", 2)
        assert await other.stop() == 0
        refused = await unregister(12)
        assert "Broker 12 has replicas of topics (t) and cannot be unregistered" in refused
        tools = admin(here)
        await asyncio.to_thread(tools.delete_topics(["t"])["t"].result, 30)

        assert "Broker 12 is no longer registered." in await unregister(12)
        assert brokers(here) == {11}
        endpoints = await cluster("list-endpoints", "--include-fenced-brokers")
        assert [line.split()[0] for line in endpoints.splitlines()] == ["ID", "11"]

        await other.start()
        await until_true(lambda: brokers(here) == {11, 12}, "it has registered again")
        led = await create(here, "again", 2)
        assert set(led.values()) == {11, 12}
        made = await asyncio.to_thread(produce, other.address, "again", [0, 1], iter(range(9)))
        assert await asyncio.to_thread(consume, here, "again", 2) == made
