"""A node that is cut off from the others: whose connections end, and whose continue."""

from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.network.limits import ListenerAddress
from broker.testing.control.commands import ControlCommands, ControlError
from broker.testing.wiring import add_isolation, bootstrap_servers
from runtime.ports import Isolation
from tests.support.worlds.network import Harness, frame, serving

ALONE = {
    "process.roles": "broker",
    "node.id": "11",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}
APART = ALONE | {
    "listeners": "PLAINTEXT://127.0.0.1:9092,REPLICATION://127.0.0.1:9094",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "REPLICATION",
}


def commands(entries: dict[str, str], directory: Path, isolation: Isolation) -> ControlCommands:
    config, _ = BrokerConfig.load(entries | {"log.dirs": str(directory)})
    made = ControlCommands()
    add_isolation(made, config, isolation)
    return made


async def answers(world: Harness) -> bool:
    client = await world.connect()
    client.send(frame(b"asked"))
    try:
        return await client.answer() == (0, b"asked")
    except (ConnectionError, EOFError):
        return False


async def test_a_node_loses_clients_unless_told_otherwise(tmp_path: Path) -> None:
    async with serving() as world:
        isolation = world.ports.isolation
        made = commands(APART, tmp_path, isolation)
        await world.server.start([ListenerAddress("REPLICATION", "127.0.0.1", 0)])
        of_brokers = world.server.bound["REPLICATION"]
        client = await world.connect()
        world.server.bound["PLAINTEXT"], of_clients = of_brokers, world.server.bound["PLAINTEXT"]
        broker = await world.connect()
        assert await answers(world)

        await made.run("isolate", {"clients": False})
        assert await broker.is_closed()
        assert not await answers(world)
        world.server.bound["PLAINTEXT"] = of_clients
        assert await answers(world)
        client.send(frame(b"kept"))
        assert await client.answer() == (0, b"kept")

        await made.run("isolate", {})
        assert await client.is_closed()
        assert not await answers(world)
        await made.run("heal", {})
        assert await answers(world)


async def test_clients_cannot_be_spared_who_share_a_listener_with_brokers(tmp_path: Path) -> None:
    isolation = Isolation()
    made = commands(ALONE, tmp_path, isolation)
    with pytest.raises(ControlError, match=r"listener PLAINTEXT.*inter\.broker\.listener"):
        await made.run("isolate", {"clients": False})
    assert not isolation.is_cut
    await made.run("isolate", {"clients": True})
    assert isolation.is_cut


def test_the_listener_of_the_tiers_is_no_address_for_clients(tmp_path: Path) -> None:
    tiered = ALONE | {
        "log.dirs": str(tmp_path),
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "rsm_plugins.local_fs:LocalFsRemoteStorageManager",
        "tidemark.cluster.secret.file": str(tmp_path / "secret"),
        "tidemark.tier.listener": "127.0.0.1:9095",
    }
    config, _ = BrokerConfig.load(tiered)
    assert bootstrap_servers(config) == "127.0.0.1:9092"
