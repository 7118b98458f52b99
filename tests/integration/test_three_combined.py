"""Three nodes that are broker and controller: they serve wherever the active controller is."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.support.brokers.process import free_ports
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, described, until_asked

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=180)]

PATIENCE_S = 60
PARTITIONS = 6
SETTINGS = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


def combined(directory: Path, *, is_dynamic: bool) -> tuple[Quorum, dict[int, str]]:
    """The nodes, and where each serves clients."""
    plan = Plan(TidemarkController, is_dynamic, has_links=False, settings=SETTINGS)
    quorum = Quorum(directory, plan)
    addresses: dict[int, str] = {}
    for (one, node), port in zip(quorum.controllers.items(), free_ports(3), strict=True):
        addresses[one] = f"127.0.0.1:{port}"
        node.settings["listeners"] = (
            f"CONTROLLER://127.0.0.1:{node.port},PLAINTEXT://{addresses[one]}"
        )
    return quorum, addresses


def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "socket.timeout.ms": 10_000})


def leaders(address: str, topic: str) -> dict[int, int]:
    """Partition to leader, as this node says; nothing where it does not answer."""
    try:
        found = admin(address).list_topics(topic, timeout=5).topics[topic]
    except KafkaException:
        return {}
    return {index: partition.leader for index, partition in found.partitions.items()}


def brokers(address: str) -> set[int]:
    try:
        return set(admin(address).list_topics(timeout=5).brokers)
    except KafkaException:
        return set()


def produce(address: str, topic: str, partitions: list[int], values: Iterator[int]) -> set[bytes]:
    """One record to each partition; returns what was acknowledged."""
    acknowledged: set[bytes] = set()

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged.add(message.value())  # type: ignore[attr-defined]

    settings = {"bootstrap.servers": address, "enable.idempotence": True}
    producer = Producer(settings | {"delivery.timeout.ms": 30_000})
    for partition in partitions:
        value = str(next(values)).encode()
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(40) == 0
    return acknowledged


def consume(address: str, topic: str, count: int) -> set[bytes]:
    """What a group reads from the beginning."""
    settings = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: set[bytes] = set()
    try:
        for _ in range(600):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.add(message.value())
            if len(found) >= count:
                break
    finally:
        consumer.close()
    return found


@pytest.mark.smoke
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
async def test_they_serve_while_the_active_one_is_lost_and_comes_back(
    tmp_path: Path, is_dynamic: bool
) -> None:
    quorum, addresses = combined(tmp_path, is_dynamic=is_dynamic)
    values = iter(range(10_000))
    async with quorum:
        leader = await quorum.leader()
        lost = leader.node_id
        others = [one for one in addresses if one != lost]
        here = addresses[others[0]]
        for address in addresses.values():
            await until_true(lambda at=address: brokers(at) == set(addresses), "all serve")
        tools = admin(here)
        topic = NewTopic("t", PARTITIONS, 1)
        await asyncio.to_thread(tools.create_topics([topic])["t"].result, 20)
        entry = ConfigEntry("retention.ms", "7654321", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
        await asyncio.to_thread(tools.incremental_alter_configs([resource])[resource].result, 20)
        with pytest.raises(KafkaException, match="do not copy from each other"):
            await asyncio.to_thread(tools.create_topics([NewTopic("r", 1, 3)])["r"].result, 20)
        grown = [NewPartitions("grown", 3)]
        await asyncio.to_thread(tools.create_topics([NewTopic("grown", 1, 1)])["grown"].result, 20)
        await asyncio.to_thread(tools.create_partitions(grown)["grown"].result, 20)
        for address in addresses.values():
            await until_true(lambda at=address: len(leaders(at, "grown")) == 3, "all know them")
        await until_true(lambda: -1 not in leaders(here, "grown").values(), "all are led")
        told = await described(int(here.rpartition(":")[2]))
        assert told is not None, "a broker that does not lead asks the one that does"
        assert told.node_id == leader.node_id
        before = await asyncio.to_thread(leaders, here, "t")
        assert sorted(before.values()) == sorted([*addresses] * (PARTITIONS // 3))
        said = await asyncio.to_thread(produce, here, "t", list(before), values)
        assert len(said) == PARTITIONS

        quorum.controllers[lost].kill()
        await quorum.leader(above=leader.epoch)
        rest = [index for index, at in before.items() if at != lost]
        said |= await asyncio.to_thread(produce, here, "t", rest, values)
        assert len(said) == PARTITIONS + len(rest)
        gone = [index for index, at in before.items() if at == lost]
        await until_true(
            lambda: [leaders(here, "t").get(one) for one in gone] == [-1] * len(gone),
            "the session of the lost broker is over",
        )
        await quorum.controllers[lost].start()
        await until_true(lambda: leaders(here, "t") == before, "it leads again")
        said |= await asyncio.to_thread(produce, addresses[lost], "t", gone, values)
        assert len(said) == PARTITIONS + len(rest) + len(gone)
        assert await asyncio.to_thread(consume, here, "t", len(said)) == said
        for one in addresses:
            assert await quorum.controllers[one].stop() == 0


async def test_a_broker_that_stops_hands_over_and_one_that_is_paused_is_fenced(
    tmp_path: Path,
) -> None:
    quorum, addresses = combined(tmp_path, is_dynamic=False)
    async with quorum:
        leader = await quorum.leader()
        stopped, paused = (one for one in addresses if one != leader.node_id)
        here = addresses[leader.node_id]
        await until_true(lambda: brokers(here) == set(addresses), "all serve")
        assert await quorum.controllers[stopped].stop() == 0
        assert await asyncio.to_thread(brokers, here) == {leader.node_id, paused}
        await quorum.controllers[stopped].start()
        await until_true(lambda: brokers(here) == set(addresses), "it is back")
        quorum.controllers[paused].pause()
        await until_true(lambda: brokers(here) == {leader.node_id, stopped}, "it is fenced")
        quorum.controllers[paused].resume()
        await until_true(lambda: brokers(here) == set(addresses), "it serves again")
        said = quorum.controllers[leader.node_id].log_file.read_text()
        assert f"a broker's session is over: broker={paused} " in said


@pytest.mark.smoke
async def test_a_node_that_lost_its_metadata_keeps_the_data_of_clients(tmp_path: Path) -> None:
    """It must not judge what lies in its log directories by an empty metadata log."""
    quorum, addresses = combined(tmp_path, is_dynamic=False)
    async with quorum:
        leader = await quorum.leader()
        here = addresses[leader.node_id]
        await until_true(lambda: brokers(here) == set(addresses), "all serve")
        tools = admin(here)
        await asyncio.to_thread(tools.create_topics([NewTopic("t", 3, 1)])["t"].result, 20)
        before = await asyncio.to_thread(leaders, here, "t")
        said = await asyncio.to_thread(produce, here, "t", list(before), iter(range(10)))
        lost = next(one for one in addresses if one != leader.node_id)
        node = quorum.controllers[lost]
        node.kill()
        shutil.rmtree(node.metadata)
        node.settings["controller.quorum.fetch.max.bytes"] = "100"  # a batch at a time
        await node.start()
        await until_true(lambda: brokers(here) == set(addresses), "it serves again")
        await until_true(lambda: leaders(here, "t") == before, "it leads again")
        assert await asyncio.to_thread(consume, here, "t", len(said)) == said


async def test_a_tier_is_refused_before_the_node_takes_part(tmp_path: Path) -> None:
    quorum, _ = combined(tmp_path, is_dynamic=False)
    node = quorum.controllers[1]
    await node.format()
    node.settings |= {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "rsm_plugins.local_fs:LocalFsRemoteStorageManager",
        "rsm.config.dir": str(tmp_path / "tier"),
    }
    code, said = await node.start_to_end()
    assert code == 1
    assert "remote.log.storage.system.enable=true" in said
    assert "[1, 2, 3]" in said
    assert not (node.metadata / "quorum-state").exists()


async def until_true(look: Callable[[], bool], what: str) -> None:
    await until_asked(look, what, deadline_s=PATIENCE_S)
