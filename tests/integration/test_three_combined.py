"""Three nodes that are broker and controller: they serve wherever the active controller is."""

import asyncio
import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.support.brokers.process import free_ports
from tests.support.quorum.own_controllers import SERVING, TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, described
from tests.support.quorum.serving import admin, brokers, consume, leaders, produce, until_true

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=180)]

PARTITIONS = 6
SETTINGS = SERVING | {"process.roles": "broker,controller"}


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
    """It must not validate what lies in its log directories by an empty metadata log."""
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


async def test_a_tier_without_cluster_secret_is_refused_before_the_node_joins(
    tmp_path: Path,
) -> None:
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
    assert "tidemark.cluster.secret.file" in said
    assert "[1, 2, 3]" in said
    assert not (node.metadata / "quorum-state").exists()
