"""Controllers that must not start beside a running quorum: exit 1, both sides named, no harm."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from kafka_protocol.wire.primitives import uuid_to_text
from local_log.checked_files import SIDECAR
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kept_brokers import until_registered
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum

pytestmark = [pytest.mark.lasts(seconds=90), pytest.mark.patience(seconds=120)]

KINDS = pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
LATER = ("--no-initial-controllers",)


@asynccontextmanager
async def _running(directory: Path, *, is_dynamic: bool) -> AsyncIterator[Quorum]:
    async with Quorum(directory, Plan(TidemarkController, is_dynamic, has_links=False)) as quorum:
        yield quorum
        await _elects_and_commits(quorum)


async def _elects_and_commits(quorum: Quorum) -> None:
    """Without the one that leads now, which comes back."""
    await quorum.settled()
    leader = await quorum.leader()
    controller = quorum.controllers[leader.node_id]
    controller.kill()
    other = await quorum.leader(above=leader.epoch)
    assert other.node_id != leader.node_id
    await until_registered(quorum, seed=leader.epoch)
    await controller.start()
    await quorum.settled()


def _stranger(quorum: Quorum, node_id: int, name: str) -> Controller:
    """A controller with an address of its own."""
    made = quorum.made(node_id, name)
    made.settings["advertised.listeners"] = f"CONTROLLER://127.0.0.1:{made.port}"
    return made


async def _format(stranger: Controller) -> None:
    await stranger.format(*(LATER if stranger.membership.is_dynamic else ()))


async def _is_refused(stranger: Controller, *named: str) -> str:
    """It ends by itself; returns what it told the user."""
    code, said = await stranger.start_to_end()
    told = [line for line in said.splitlines() if line.startswith("tidemark: ")]
    assert code == 1, said
    assert len(told) == 1, said
    for one in named:
        assert one in told[0]
    return told[0]


def _directory_id(controller: Controller) -> str:
    meta = parse_meta_properties((controller.logs / META_PROPERTIES).read_bytes())
    assert meta.directory_id is not None
    return uuid_to_text(meta.directory_id)


def _ids(quorum: Quorum, leader_id: int) -> tuple[int, ...]:
    """A follower's, and the leader's."""
    return next(one for one in quorum.controllers if one != leader_id), leader_id


@KINDS
async def test_a_second_node_of_one_id(tmp_path: Path, is_dynamic: bool) -> None:
    async with _running(tmp_path, is_dynamic=is_dynamic) as quorum:
        leader = await quorum.settled()
        for node_id in _ids(quorum, leader.node_id):
            twin = _stranger(quorum, node_id, f"twin-{node_id}")
            await _format(twin)
            mine, theirs = _directory_id(twin), _directory_id(quorum.controllers[node_id])
            await _is_refused(twin, f"node.id={node_id} is taken", mine, theirs)
        assert (await quorum.leader()).epoch == leader.epoch


@KINDS
async def test_a_controller_of_another_cluster(tmp_path: Path, is_dynamic: bool) -> None:
    async with _running(tmp_path, is_dynamic=is_dynamic) as quorum:
        leader = await quorum.settled()
        theirs, mine = quorum.membership.cluster_id, "anotherClusterXXXXXXX0"
        for node_id in _ids(quorum, leader.node_id):
            other = _stranger(quorum, node_id, f"other-{node_id}")
            other.membership = replace(quorum.membership, cluster_id=mine)
            await _format(other)
            await _is_refused(other, f"cluster.id={mine}", f"cluster.id={theirs}")
        assert (await quorum.leader()).epoch == leader.epoch


@KINDS
async def test_a_copied_directory_of_a_node_that_runs(tmp_path: Path, is_dynamic: bool) -> None:
    async with _running(tmp_path, is_dynamic=is_dynamic) as quorum:
        leader = await quorum.settled()
        for node_id in _ids(quorum, leader.node_id):
            copy = _stranger(quorum, node_id, f"copy-{node_id}")
            shutil.copytree(quorum.controllers[node_id].logs, copy.logs)
            await _is_refused(
                copy,
                f"node.id={node_id}",
                f"directory.id={_directory_id(copy)}",
                str(copy.logs / META_PROPERTIES),
                f"node {leader.node_id} at 127.0.0.1:",
            )
        assert (await quorum.leader()).epoch == leader.epoch


@KINDS
async def test_a_copied_directory_under_another_id(tmp_path: Path, is_dynamic: bool) -> None:
    """First as it was copied, then with its node.id made to fit."""
    async with _running(tmp_path, is_dynamic=is_dynamic) as quorum:
        leader = await quorum.settled()
        copied, other = (one for one in quorum.controllers if one != leader.node_id)
        copy = _stranger(quorum, other, "copy")
        shutil.copytree(quorum.controllers[copied].logs, copy.logs)
        await _is_refused(copy, f"node.id={copied}", f"node.id={other}")
        meta = copy.logs / META_PROPERTIES
        meta.write_text(meta.read_text().replace(f"node.id={copied}", f"node.id={other}"))
        (copy.logs / SIDECAR).unlink(missing_ok=True)
        shutil.rmtree(copy.metadata)
        copied_id = _directory_id(copy)
        quorum.controllers[other].kill()
        await _is_refused(copy, copied_id, f"node.id={other}", f"node.id={copied}")
        await quorum.controllers[other].start()


async def test_one_directory_id_in_two_log_directories(tmp_path: Path) -> None:
    async with _running(tmp_path, is_dynamic=False) as quorum:
        await quorum.settled()
        leader = await quorum.leader()
        follower, _ = _ids(quorum, leader.node_id)
        one = quorum.controllers[follower]
        await one.stop()
        second = one.directory / "second"
        second.mkdir()
        shutil.copy(one.logs / META_PROPERTIES, second)
        one.settings["log.dirs"] = f"{one.logs},{second}"
        one.settings["metadata.log.dir"] = str(one.logs)
        await _is_refused(one, str(one.logs / META_PROPERTIES), str(second / META_PROPERTIES))
        del one.settings["log.dirs"]
        await one.start()


async def test_voters_without_this_controller(tmp_path: Path) -> None:
    async with _running(tmp_path, is_dynamic=False) as quorum:
        await quorum.settled()
        other = _stranger(quorum, 9, "other")
        voters = quorum.membership.settings()["controller.quorum.voters"]
        other.settings["controller.quorum.voters"] = f"{voters},9@127.0.0.1:{other.port}"
        await other.format()
        del other.settings["controller.quorum.voters"]
        await _is_refused(other, voters, "node.id=9")
