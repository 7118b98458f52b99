"""Static voters come into the log of real processes, which then lose their static setting.

Only real nodes show that each tells the leader of itself over the wire, that a command comes to the
active controller through a broker, and that files with `controller.quorum.voters` start afterwards.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.kafka_controllers import KafkaController, MixedQuorum
from tests.support.quorum.own_controllers import TidemarkController, broker_nodes
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.serving import create, topics_of

pytestmark = [pytest.mark.lasts(seconds=80), pytest.mark.patience(seconds=400)]

PLAN = Plan(TidemarkController, is_dynamic=False, has_links=False)
TOLD_S = 60


async def tidemark(*arguments: str) -> tuple[int, str]:
    return await run_to_end([sys.executable, "-m", "tidemark.cli", *arguments])


async def raised(*at: str) -> None:
    """kraft.version is 1: each voter has told the leader of itself a fetch timeout after it led."""
    said = await until_raised("kraft.version=1", "has not said in this epoch", *at)
    assert "kraft.version: 0 -> 1" in said


async def until_raised(wanted: str, not_yet: str, *at: str) -> str:
    """Ask until it is taken; until then no other reason is given than this one."""
    async with asyncio.timeout(TOLD_S):
        while True:
            code, said = await tidemark("features", "upgrade", wanted, *at)
            if code == 0:
                return said
            assert not_yet in said


def disk_of(quorum: Quorum, node_id: int) -> str:
    """The directory id of a controller, as its files say."""
    lines = (quorum.controllers[node_id].logs / "meta.properties").read_text().splitlines()
    [found] = [line.partition("=")[2] for line in lines if line.startswith("directory.id=")]
    return found


async def test_they_come_into_the_log_lose_nothing_and_change(tmp_path: Path) -> None:
    async with Quorum(tmp_path, PLAN) as quorum, broker_nodes(quorum, 11) as [broker]:
        at = ("--bootstrap-server", broker.address)
        await create(broker.address, "before", 1)
        leader = await quorum.settled()
        for wrong, why in [
            ("kraft.version=2", "only supports versions 0-1"),
            ("metadata.version=31", "only supports versions 7-30"),
            ("nonsense=1", "does not support this feature"),
        ]:
            code, said = await tidemark("features", "upgrade", wrong, *at)
            assert (code, why in said) == (1, True), said
        away = next(one for i, one in quorum.controllers.items() if i != leader.node_id)
        away.kill()
        await quorum.controllers[leader.node_id].stop()
        await quorum.controllers[leader.node_id].start()
        await quorum.leader(above=leader.epoch)
        async with asyncio.timeout(TOLD_S):
            while f"voter {away.node_id} has not said in this epoch" not in said:
                code, said = await tidemark("features", "upgrade", "kraft.version=1", *at)
                assert code == 1, said  # the one that was started again may be named first
        await away.start()
        await quorum.settled()
        await raised(*at)

        ports = ",".join(f"127.0.0.1:{one.port}" for one in quorum.controllers.values())
        for one in quorum.controllers.values():  # its file is what it was
            await one.stop()
            await one.start()
            await quorum.settled()
        quorum.membership = replace(quorum.membership, is_dynamic=True)
        for node in (*quorum.controllers.values(), broker):
            await node.stop()
            node.membership = quorum.membership
            assert "controller.quorum.voters" not in node.properties()
            await node.start()
            await quorum.settled()
        assert topics_of(broker.address) >= {"before"}

        new = quorum.controllers[4] = quorum.made(4)
        await new.format("--no-initial-controllers")
        await new.start()
        await quorum.settled()
        at = ("--bootstrap-controller", ports)
        quorum_command = ("metadata-quorum", *at)
        config = ("--command-config", str(new.config_file))
        code, said = await tidemark(*quorum_command, *config, "add-controller")
        assert code == 0, said
        leader = await quorum.settled()
        assert set(leader.ends) == {1, 2, 3, 4}
        gone = next(i for i in (1, 2, 3) if i != leader.node_id)
        removal = ("--controller-id", str(gone), "--controller-directory-id", disk_of(quorum, gone))
        code, said = await tidemark(*quorum_command, "remove-controller", *removal)
        assert code == 0, said
        quorum.controllers.pop(gone).close()
        await create(broker.address, "after", 1)
        assert topics_of(broker.address) >= {"before", "after"}
        assert set((await quorum.settled()).ends) == {1, 2, 3, 4} - {gone}


@pytest.mark.jvm
@pytest.mark.parametrize("kafkas", [0, 1, 2])
async def test_voters_of_both_kinds_come_into_the_log_by_kafkas_tool(
    tmp_path: Path, kafkas: int
) -> None:
    """Only here do voters of one kind tell a leader of the other of themselves."""
    require_kafka_tools()
    async with MixedQuorum(tmp_path, PLAN, kafkas=kafkas) as quorum:
        leader = await quorum.settled()
        ports = ",".join(f"127.0.0.1:{one.port}" for one in quorum.controllers.values())
        at = ("--bootstrap-controller", ports)
        raising = ("upgrade", "--feature", "kraft.version=1")
        async with asyncio.timeout(TOLD_S):
            while "kraft.version was upgraded to 1." not in await features(*at, *raising):
                pass  # not all have told of themselves yet
        shown = await features(*at, "describe")
        [line] = [one for one in shown.splitlines() if one.startswith("Feature: kraft.version")]
        assert "FinalizedVersionLevel: 1" in line
        lower = await features(*at, "downgrade", "--feature", "kraft.version=0")
        assert "Can't downgrade the version of this feature." in lower
        assert "only supports versions 0-1" in await features(
            *at, "upgrade", "--feature", "kraft.version=2"
        )
        await quorum.settled()
        stopped = quorum.controllers[leader.node_id]
        await stopped.stop()
        after = await quorum.leader(above=leader.epoch)
        await stopped.start()
        assert set((await quorum.settled()).ends) == {1, 2, 3}
        for node_id in {leader.node_id, after.node_id}:
            state = quorum.controllers[node_id].metadata / "quorum-state"
            assert '"data_version":1' in state.read_text()


async def features(*arguments: str) -> str:
    return await asyncio.to_thread(kafka_tool, "features", *arguments, check=False)


class OfOldMetadata(KafkaController):
    """One of ours, in a directory that Kafka's tool has formatted for metadata.version 14."""

    kind = "tidemark"
    terminated = 0
    start_command = TidemarkController.start_command

    async def format(self, *options: str) -> None:
        await super().format("--release-version", "3.6", *options)


@pytest.mark.jvm
async def test_levels_wait_until_all_controllers_have_registered(
    tmp_path: Path,
) -> None:
    """Only real controllers register by themselves once another one has raised metadata.version."""
    require_kafka_tools()
    async with Quorum(tmp_path, replace(PLAN, kind=OfOldMetadata)) as quorum:
        leader = await quorum.settled()
        at = ("--bootstrap-server", f"127.0.0.1:{quorum.controllers[leader.node_id].port}")
        code, said = await tidemark("features", "upgrade", "metadata.version=15", *at)
        assert (code, "metadata.version: 14 -> 15" in said) == (0, True), said
        not_yet = "has not registered, and may not support this feature"
        said = await until_raised("metadata.version=30", not_yet, *at)
        assert "metadata.version: 15 -> 30" in said
        code, said = await tidemark("features", "upgrade", *at)
        assert (code, "eligible.leader.replicas.version: 0 -> 1" in said) == (0, True), said
