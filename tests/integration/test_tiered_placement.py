"""One broker with a remote tier and one without beside three controllers: who gets what."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kafka_protocol.errors import ErrorCode
from tests.support.brokers.clients import produce, read_all
from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.kafka_controllers import KafkaBroker, PlainKafkaController
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.serving import admin, brokers, leaders, until_true
from tests.support.quorum.tiering import SWITCH, TieringBroker

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=240)]

OFF = {"remote.log.storage.system.enable": "false"}
TIERED = {"remote.storage.enable": "true"}
SESSIONS = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
UNKNOWN = "the metadata do not say that this broker has a remote tier"
SENT = [(b"k", b"v")]


async def created(at: TieringBroker | KafkaBroker, topic: NewTopic) -> ErrorCode:
    """What CreateTopics answers; on success the topic is led."""
    tools = admin(at.address)
    try:
        await asyncio.to_thread(tools.create_topics([topic])[topic.topic].result, 30)
    except KafkaException as error:
        return ErrorCode.of(error.args[0].code())
    await until_true(
        lambda: -1 not in (leaders(at.address, topic.topic) or {0: -1}).values(),
        f"{topic.topic} is led",
    )
    return ErrorCode.NONE


async def switched_on(at: TieringBroker | KafkaBroker, topic: str) -> ErrorCode:
    """What IncrementalAlterConfigs answers."""
    on = ConfigEntry("remote.storage.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[on])
    tools = admin(at.address)
    try:
        await asyncio.to_thread(tools.incremental_alter_configs([resource])[resource].result, 30)
    except KafkaException as error:
        return ErrorCode.of(error.args[0].code())
    return ErrorCode.NONE


@pytest.mark.parametrize("kind", [TieringBroker, pytest.param(KafkaBroker, marks=pytest.mark.jvm)])
async def test_tiered_topics_keep_to_brokers_with_a_tier_through_its_loss(
    tmp_path: Path, kind: type[TieringBroker | KafkaBroker]
) -> None:
    """Only processes show that a plugin's store reaches the controllers, and a start its loss."""
    if kind is KafkaBroker:
        require_kafka_tools()
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False, settings=SESSIONS | SWITCH)
    async with Quorum(tmp_path, plan) as quorum, AsyncExitStack() as stack:
        tiering = TieringBroker(11, tmp_path / "broker-11", quorum.membership)
        plain = kind(12, tmp_path / "broker-12", quorum.membership)
        plain.settings = OFF
        await tiering.format("--cluster-secret")
        for broker in (tiering, plain):
            stack.callback(broker.close)
            await broker.start()
        await until_true(lambda: brokers(tiering.address) == {11, 12}, "both serve")
        await placement(tiering, plain)
        await loss_of_the_tier(tiering)


async def placement(tiering: TieringBroker, plain: TieringBroker | KafkaBroker) -> None:
    for at in (tiering, plain):
        name = f"tides-by-{at.node_id}"
        assert await created(at, NewTopic(name, 6, 1, config=TIERED)) == ErrorCode.NONE
        assert set(leaders(plain.address, name).values()) == {tiering.node_id}
    assert set(leaders(plain.address, "__remote_log_metadata").values()) == {tiering.node_id}
    assert UNKNOWN not in str(tiering.health())
    there = [[plain.node_id]]
    refused = NewTopic("refused", 1, replica_assignment=there, config=TIERED)
    assert await created(plain, refused) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await created(plain, NewTopic("there", 1, replica_assignment=there)) == ErrorCode.NONE
    assert await switched_on(tiering, "there") == ErrorCode.INVALID_CONFIG
    await asyncio.to_thread(produce, tiering, "there", SENT)
    here = NewTopic("here", 1, replica_assignment=[[tiering.node_id]])
    assert await created(plain, here) == ErrorCode.NONE
    await asyncio.to_thread(produce, tiering, "here", SENT)
    assert await switched_on(plain, "here") == ErrorCode.NONE
    beside = NewTopic("plain", 1, replica_assignment=[[tiering.node_id]])
    assert await created(plain, beside) == ErrorCode.NONE
    await asyncio.to_thread(produce, tiering, "plain", SENT)


async def restarted(broker: TieringBroker, settings: dict[str, str]) -> None:
    assert await broker.stop() == 0
    broker.settings = settings
    await broker.start()


async def until_named_offline(broker: TieringBroker, topic: str) -> None:
    said = f"{topic}-0 is offline: its topic is tiered"
    await until_true(lambda: said in str(broker.health()), f"health says that {said}")


async def loss_of_the_tier(tiering: TieringBroker) -> None:
    await restarted(tiering, OFF)
    await until_named_offline(tiering, "here")
    assert await asyncio.to_thread(read_all, tiering, "plain") == [(0, b"k", b"v")]
    none_left = await created(tiering, NewTopic("tides", 1, 1, config=TIERED))
    assert none_left == ErrorCode.INVALID_REPLICATION_FACTOR
    await restarted(tiering, {})
    assert await asyncio.to_thread(read_all, tiering, "here") == [(0, b"k", b"v")]


@pytest.mark.jvm
async def test_under_kafka_controllers_no_tiered_topic_is_served_without_a_tier(
    tmp_path: Path,
) -> None:
    """What they place anyhow stays offline by name, and the metadata topic is not their choice."""
    require_kafka_tools()
    switch = {"remote.log.storage.system.enable": "true"}
    plan = Plan(
        PlainKafkaController, is_dynamic=True, count=1, has_links=False, settings=SESSIONS | switch
    )
    async with Quorum(tmp_path, plan) as quorum, AsyncExitStack() as stack:
        theirs = KafkaBroker(13, tmp_path / "broker-13", quorum.membership)
        ours = TieringBroker(11, tmp_path / "broker-11", quorum.membership)
        for broker in (theirs, ours):
            stack.callback(broker.close)
        await theirs.start()
        await until_true(lambda: brokers(theirs.address) == {13}, "Kafka's broker serves")
        await ours.format("--cluster-secret")
        await ours.start()
        await until_true(lambda: brokers(theirs.address) == {11, 13}, "ours serves, too")
        assert set(leaders(ours.address, "__remote_log_metadata").values()) == {11}
        assert UNKNOWN in str(ours.health())
        for name, config in (("here", TIERED), ("plain", {})):
            topic = NewTopic(name, 1, replica_assignment=[[11]], config=config)
            assert await created(ours, topic) == ErrorCode.NONE
            await asyncio.to_thread(produce, ours, name, SENT)
        await restarted(ours, OFF)
        there = NewTopic("there", 1, replica_assignment=[[11]], config=TIERED)
        assert await created(ours, there) == ErrorCode.NONE
        assert await switched_on(ours, "plain") == ErrorCode.NONE
        for name in ("here", "there", "plain"):
            await until_named_offline(ours, name)
        await restarted(ours, {})
        for name in ("here", "plain"):
            assert await asyncio.to_thread(read_all, ours, name) == [(0, b"k", b"v")]
        await asyncio.to_thread(produce, ours, "there", SENT)
