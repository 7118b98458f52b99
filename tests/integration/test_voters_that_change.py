"""Voters of real processes come and go: a lost disk, the leader itself, a move to another port."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kafka_protocol.wire.primitives import uuid_to_text
from tests.support.brokers.process import free_ports
from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.own_controllers import TidemarkController, broker_nodes
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.serving import create

pytestmark = [pytest.mark.lasts(seconds=40), pytest.mark.patience(seconds=180)]

PLAN = Plan(TidemarkController, is_dynamic=True, has_links=False)
Tool = Callable[..., Awaitable[str]]


async def of_kafka(*arguments: str) -> str:
    require_kafka_tools()
    return await asyncio.to_thread(kafka_tool, "metadata-quorum", *arguments)


async def of_ours(*arguments: str) -> str:
    code, said = await run_to_end(
        [sys.executable, "-m", "tidemark.cli", "metadata-quorum", *arguments]
    )
    assert code == 0, said
    return said


def controllers_of(quorum: Quorum) -> tuple[str, str]:
    ports = [one.port for one in quorum.controllers.values() if one.is_running]
    return "--bootstrap-controller", ",".join(f"127.0.0.1:{port}" for port in ports)


def removing(quorum: Quorum, node_id: int) -> list[str]:
    """The voter of an id, by the disk that it had at first."""
    [member] = [one for one in quorum.membership.members if one.node_id == node_id]
    directory = f"--controller-directory-id={uuid_to_text(member.directory_id)}"
    return ["remove-controller", "--controller-id", str(node_id), directory]


@pytest.mark.parametrize("tool", [of_ours, pytest.param(of_kafka, marks=pytest.mark.jvm)])
async def test_a_lost_disk_is_replaced_by_two_commands_and_counts(
    tmp_path: Path, tool: Tool
) -> None:
    async with Quorum(tmp_path, PLAN) as quorum:
        leader = await quorum.settled()
        lost = next(one for i, one in quorum.controllers.items() if i != leader.node_id)
        lost.kill()
        lost.wipe()
        await lost.format("--no-initial-controllers")
        await lost.start()
        await quorum.settled()
        at = controllers_of(quorum)
        assert f"KRaft controller {lost.node_id}" in await tool(
            *at, *removing(quorum, lost.node_id)
        )
        said = await tool(*at, "--command-config", str(lost.config_file), "add-controller")
        assert f"Added controller {lost.node_id} with directory id " in said
        leader = await quorum.settled()
        assert set(leader.ends) == {1, 2, 3}
        other = next(i for i in quorum.controllers if i not in {leader.node_id, lost.node_id})
        quorum.controllers[other].kill()
        await quorum.leader()
        quorum.controllers[leader.node_id].kill()
        await quorum.controllers[other].start()
        assert (await quorum.leader(above=leader.epoch)).node_id in {other, lost.node_id}


async def test_a_controller_on_a_new_disk_joins_by_itself(tmp_path: Path) -> None:
    async with Quorum(tmp_path, PLAN) as quorum:
        leader = await quorum.settled()
        lost = next(one for i, one in quorum.controllers.items() if i != leader.node_id)
        lost.kill()
        lost.wipe()
        await lost.format("--no-initial-controllers")
        lost.settings["controller.quorum.auto.join.enable"] = "true"
        await lost.start()
        async with asyncio.timeout(60):
            while True:  # a fetch timeout until it asks for the one change, and for the other
                leader = await quorum.settled()
                if leader.ends.get(lost.node_id, -1) >= leader.high_watermark:
                    break
        assert set(leader.ends) == {1, 2, 3}
        other = next(i for i in quorum.controllers if i not in {leader.node_id, lost.node_id})
        quorum.controllers[other].kill()
        end = leader.high_watermark
        async with asyncio.timeout(60):  # without its vote nothing is committed now
            while (await quorum.settled({leader.node_id, lost.node_id})).high_watermark <= end:
                pass


async def test_a_broker_passes_on_that_the_leader_is_removed_and_comes_back(
    tmp_path: Path,
) -> None:
    async with Quorum(tmp_path, PLAN) as quorum, broker_nodes(quorum, 11) as [broker]:
        first = await quorum.settled()
        at = ("--bootstrap-server", broker.address)
        await of_ours(*at, *removing(quorum, first.node_id))
        leader = await quorum.leader(above=first.epoch)
        assert set(leader.ends) == {1, 2, 3} - {first.node_id}
        await create(broker.address, "while-it-observes", 1)
        await quorum.settled()
        config = str(quorum.controllers[first.node_id].config_file)
        await of_ours(*at, "--command-config", config, "add-controller")
        assert set((await quorum.settled()).ends) == {1, 2, 3}


async def test_a_voter_moves_to_another_port_by_itself(tmp_path: Path) -> None:
    async with Quorum(tmp_path, PLAN) as quorum:
        leader = await quorum.settled()
        moved = next(one for i, one in quorum.controllers.items() if i != leader.node_id)
        await moved.stop()
        (moved.port,) = free_ports(1)
        moved.settings["advertised.listeners"] = f"CONTROLLER://127.0.0.1:{moved.port}"
        await moved.start()
        place = f"CONTROLLER://127.0.0.1:{moved.port}"
        async with asyncio.timeout(60):
            while place not in await of_ours(*controllers_of(quorum), "describe", "--status"):
                pass  # it takes a fetch timeout
        quorum.controllers[leader.node_id].kill()
        await quorum.leader(above=leader.epoch)
