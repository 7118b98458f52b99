"""A sole controller that lost its disk leads a younger log: brokers put nothing aside for it."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from local_log.manager.log_dir import COMMITTED_METADATA, INCARNATION_HISTORY
from tests.integration.test_broker_nodes import page
from tests.support.brokers.process import free_ports
from tests.support.quorum.own_controllers import TidemarkController, broker_nodes
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.serving import brokers, consume, create, produce, until_true

pytestmark = [pytest.mark.lasts(seconds=45), pytest.mark.patience(seconds=120)]

PARTITIONS = 3
NOT_THERE = "but not the metadata log of this broker"


async def test_a_younger_metadata_log_is_refused(tmp_path: Path) -> None:
    """Only processes show that a start asks before it changes anything on its disk."""
    plan = Plan(TidemarkController, is_dynamic=False, count=1, has_links=False)
    async with Quorum(tmp_path, plan) as quorum, broker_nodes(quorum, 11) as (node,):
        controller = quorum.controllers[1]
        await controller.stop()
        await controller.start()  # epoch 2
        await until_true(lambda: brokers(node.address) == {11}, "it serves")
        await create(node.address, "t", PARTITIONS)
        said = await asyncio.to_thread(
            produce, node.address, "t", list(range(PARTITIONS)), iter(range(100))
        )
        assert await node.stop() == 0
        await node.start()
        await until_true(lambda: brokers(node.address) == {11}, "its own log is no other")
        assert await asyncio.to_thread(consume, node.address, "t", len(said)) == said
        node.kill()

        kept = tmp_path / "kept"
        await controller.stop()
        shutil.move(controller.logs, kept)
        await controller.format()
        await controller.start()  # epoch 1, below that of the old log
        await _is_refused(node.start_to_end)
        await controller.stop()
        await controller.start()  # epoch 2, as the old one
        await _is_refused(node.start_to_end)
        metadata = tmp_path / "metadata"
        shutil.move(node.metadata, metadata)
        await _is_refused(node.start_to_end)
        aside = [one.name for one in node.logs.iterdir() if one.name.endswith("-stray")]
        assert aside == []

        await controller.stop()  # the old log is the remedy
        shutil.move(controller.logs, tmp_path / "young")
        shutil.copytree(kept, controller.logs)
        await controller.start()
        await node.start()
        await until_true(lambda: brokers(node.address) == {11}, "it serves again")
        assert await asyncio.to_thread(consume, node.address, "t", len(said), "again") == said
        await node.stop()

        await controller.stop()  # or the young one, said by hand
        shutil.rmtree(controller.logs)
        shutil.move(tmp_path / "young", controller.logs)
        await controller.start()
        shutil.rmtree(node.metadata)
        for name in (COMMITTED_METADATA, INCARNATION_HISTORY):
            (node.logs / name).unlink()
        (port,) = free_ports(1)
        node.settings["tidemark.http.listener"] = f"127.0.0.1:{port}"
        await node.start()
        await until_true(lambda: brokers(node.address) == {11}, "it serves the young one")
        health = json.loads(page(port, "health"))
        assert health["status"] == "yellow"
        named = [one for one in health["reasons"] if "/t-" in one and "-stray" in one]
        assert len(named) == PARTITIONS


async def _is_refused(start: object) -> None:
    code, said = await start()  # type: ignore[operator]
    assert code == 1, said
    assert NOT_THERE in said
