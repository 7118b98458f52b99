"""Brokers that are nothing but brokers beside controllers of Apache Kafka: real processes."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.kafka_controllers import PlainKafkaController
from tests.support.quorum.own_controllers import broker_nodes
from tests.support.quorum.quorum import Plan, Quorum, described
from tests.support.quorum.serving import (
    brokers,
    consume,
    create,
    grow,
    leaders,
    produce,
    until_true,
)

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=90), pytest.mark.patience(seconds=240)]

PARTITIONS = 6


async def test_they_serve_on_controllers_of_kafka(tmp_path: Path) -> None:
    require_kafka_tools()
    settings = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
    plan = Plan(PlainKafkaController, is_dynamic=True, has_links=False, settings=settings)
    values = iter(range(10_000))
    async with Quorum(tmp_path, plan) as quorum, broker_nodes(quorum, 11, 12) as (one, other):
        leader = await quorum.leader()
        here = one.address
        await until_true(lambda: brokers(here) == {11, 12}, "both serve")
        before = await create(here, "t", PARTITIONS)
        assert sorted(before.values()) == sorted([11, 12] * (PARTITIONS // 2))
        told = await described(one.port)
        assert told is not None
        assert set(told.observers) == {11, 12}
        said = await asyncio.to_thread(produce, here, "t", list(before), values)

        quorum.controllers[leader.node_id].kill()
        await quorum.leader(above=leader.epoch)
        await create(here, "after", 2)
        await grow(here, "after", 4)
        assert len(await asyncio.to_thread(produce, here, "after", [2, 3], values)) == 2
        said |= await asyncio.to_thread(produce, here, "t", list(before), values)
        assert len(said) == 2 * PARTITIONS
        assert await asyncio.to_thread(leaders, here, "t") == before, "none was fenced"

        assert await other.stop() == 0
        shutil.rmtree(other.metadata)
        at = ("--bootstrap-server", here, "--id", "12")
        error_text = await asyncio.to_thread(kafka_tool, "cluster", "unregister", *at)
        assert "Broker 12 is no longer registered." in error_text, "Kafka asks for no replicas"
        await other.start()
        await until_true(lambda: leaders(here, "t") == before, "it leads again")
        assert await asyncio.to_thread(consume, here, "t", len(said)) == said
        for node in (one, other):
            assert " ERROR " not in node.log_file.read_text()
