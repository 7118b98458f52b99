"""Brokers that are nothing but brokers, beside three controllers: real processes, real clients."""

import asyncio
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.brokers.process import free_ports
from tests.support.quorum.committed import parse_name
from tests.support.quorum.controllers import Controller
from tests.support.quorum.own_controllers import TidemarkBroker, TidemarkController, broker_nodes
from tests.support.quorum.quorum import Plan, Quorum, described
from tests.support.quorum.serving import (
    brokers,
    consume,
    create,
    delete,
    grow,
    leaders,
    produce,
    until_true,
)

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=180)]

PARTITIONS = 6


def controllers(directory: Path, *, is_dynamic: bool = False) -> Quorum:
    settings = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
    plan = Plan(TidemarkController, is_dynamic, has_links=False, settings=settings)
    return Quorum(directory, plan)


@pytest.mark.smoke
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
async def test_they_serve_while_the_active_controller_is_lost(
    tmp_path: Path, is_dynamic: bool
) -> None:
    """Only processes show that a broker opens, registers and forwards without a controller."""
    values = iter(range(10_000))
    async with (
        controllers(tmp_path, is_dynamic=is_dynamic) as quorum,
        broker_nodes(quorum, 11, 12) as (one, other),
    ):
        leader = await quorum.leader()
        for node in (one, other):
            await until_true(lambda at=node.address: brokers(at) == {11, 12}, "both serve")
        before = await create(one.address, "t", PARTITIONS)
        assert sorted(before.values()) == sorted([11, 12] * (PARTITIONS // 2))
        told = await described(one.port)
        assert told is not None, "a broker asks the controller that leads"
        assert told.node_id == leader.node_id
        assert set(told.observers) == {11, 12}
        said = await asyncio.to_thread(produce, other.address, "t", list(before), values)

        quorum.controllers[leader.node_id].kill()
        await quorum.leader(above=leader.epoch)
        await create(other.address, "after", 2)
        await grow(other.address, "after", 4)
        assert len(await asyncio.to_thread(produce, one.address, "after", [2, 3], values)) == 2
        said |= await asyncio.to_thread(produce, one.address, "t", list(before), values)
        assert len(said) == 2 * PARTITIONS
        assert await asyncio.to_thread(leaders, one.address, "t") == before, "none was fenced"
        assert await asyncio.to_thread(consume, other.address, "t", len(said)) == said
        assert [await one.stop(), await other.stop()] == [0, 0]


@pytest.mark.smoke
async def test_one_is_stopped_wiped_paused_and_killed(tmp_path: Path) -> None:
    async with controllers(tmp_path) as quorum, broker_nodes(quorum, 11, 12) as (one, other):
        here = one.address
        await until_true(lambda: brokers(here) == {11, 12}, "both serve")
        before = await create(here, "t", PARTITIONS)
        said = await asyncio.to_thread(produce, here, "t", list(before), iter(range(10)))

        assert await other.stop() == 0
        gone = await asyncio.to_thread(leaders, here, "t")
        assert {at for at in gone.values() if at != 11} == {-1}, "it gave up what it led"

        shutil.rmtree(other.metadata)  # of a broker it is no loss
        await other.start()
        await until_true(lambda: leaders(here, "t") == before, "it leads again")
        assert await asyncio.to_thread(consume, here, "t", len(said)) == said

        pid = other.pid
        other.pause()
        await until_true(lambda: brokers(here) == {11}, "it is fenced")
        other.resume()
        await until_true(lambda: leaders(here, "t") == before, "it leads again")
        assert other.pid == pid
        await create(here, "gone", PARTITIONS)
        other.kill()
        await delete(here, "gone")
        await create(here, "gone", 1)
        await other.start()
        await until_true(lambda: leaders(here, "t") == before, "it leads again")
        left = [one.name for one in other.logs.iterdir() if one.name.endswith("-stray")]
        assert left == [], "it has read that the topic was removed"
        assert await asyncio.to_thread(consume, here, "t", len(said), "h") == said


async def test_one_that_falls_behind_continues_with_a_snapshot(tmp_path: Path) -> None:
    """Only processes show that a broker makes its own snapshots, and lives on by a fetched one."""
    settings = {
        "broker.session.timeout.ms": "3000",
        "internal.metadata.log.segment.bytes": "20000",
        "metadata.log.max.record.bytes.between.snapshots": "8000",
        "metadata.max.retention.bytes": "1",
    }
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False, settings=settings)
    async with Quorum(tmp_path, plan) as quorum:
        one, other = made = [
            TidemarkBroker(at, tmp_path / f"broker-{at}", quorum.membership, settings)
            for at in (11, 12)
        ]
        try:
            await asyncio.gather(*(node.start() for node in made))
            here = one.address
            await until_true(lambda: brokers(here) == {11, 12}, "both serve")
            before = await create(here, "t", PARTITIONS)
            gone = await create(here, "gone", PARTITIONS)
            said = await asyncio.to_thread(produce, here, "t", list(before), iter(range(10)))
            other.pause()
            await delete(here, "gone")
            began = (await quorum.leader()).high_watermark
            for number in range(100):
                await create(here, f"made-{number}", 50)
                if all(_log_start(each) > began for each in quorum.controllers.values()):
                    break
            assert _log_start(other) <= began
            other.resume()
            await until_true(lambda: leaders(here, "t") == before, "it leads again")
            assert _log_start(other) > began, "its log begins behind a snapshot"
            end = max(_snapshot_ends(other))
            for number in range(2):
                await create(here, f"later-{number}", 50)
            await until_true(lambda: max(_snapshot_ends(other)) > end, "it makes its own")
            left = [path.name for path in other.logs.glob("gone-*")]
            assert left, gone
            assert all(name.endswith("-delete") for name in left), left
            assert await asyncio.to_thread(consume, here, "t", len(said)) == said
            assert [await node.stop() for node in made] == [0, 0]
        finally:
            for node in made:
                node.close()


def _log_start(node: Controller) -> int:
    return min(int(path.stem) for path in node.metadata.glob("*.log"))


def _snapshot_ends(node: Controller) -> list[int]:
    return [parse_name(path).end_offset for path in node.metadata.glob("*.checkpoint")]


def page(port: int, name: str) -> str:
    """What a page says, whatever its status; nothing where it is not served yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
    except OSError:
        return ""


async def test_a_broker_starts_before_its_controllers(tmp_path: Path) -> None:
    quorum = controllers(tmp_path)
    node = TidemarkBroker(11, tmp_path / "broker-11", quorum.membership)
    (port,) = free_ports(1)
    node.settings["tidemark.http.listener"] = f"127.0.0.1:{port}"
    try:
        await node.start(wait=False)
        await until_true(lambda: "waiting for a leader" in node.log_tail(), "it waits")
        await until_true(
            lambda: "no leader of the metadata" in page(port, "health"), "it is unhealthy"
        )
        assert " ERROR " not in node.log_file.read_text()
        async with quorum:
            await until_true(lambda: brokers(node.address) == {11}, "it serves")
            node.process.send_signal(signal.SIGTERM)
            assert await node.stop() == 0
    finally:
        node.close()


async def test_a_broker_under_the_id_of_a_voter_is_refused(tmp_path: Path) -> None:
    """What it fetches would count for the voter. Its own file does not name the voters."""
    async with controllers(tmp_path) as quorum:
        node = TidemarkBroker(2, tmp_path / "broker-2", quorum.membership)
        node.settings = {"controller.quorum.voters": ""} | {
            "advertised.listeners": "",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{quorum.controllers[1].port}",
        }
        await node.format()
        code, said = await node.start_to_end()
        assert code == 1
        assert "node.id=2" in said
        assert "is only a broker" in said
        assert not (node.metadata / "quorum-state").exists()
        assert set((await quorum.leader()).observers) == set()
