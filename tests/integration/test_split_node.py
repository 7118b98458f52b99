"""`tidemark split`: what a lone node had is served by a broker beside three new controllers."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, SET_ASIDE_DIRECTORY
from tests.support.brokers.clients import produce as produce_to
from tests.support.brokers.clients import read_all
from tests.support.brokers.process import until
from tests.support.brokers.tiered_topics import (
    QUICK,
    TIERED,
    as_read,
    delete_topic,
    tiered_away,
    values,
)
from tests.support.brokers.tiered_topics import create as create_tiered
from tests.support.quorum.controllers import Member, Membership
from tests.support.quorum.own_controllers import TidemarkBroker
from tests.support.quorum.serving import brokers, consume, create, grow, leaders, produce, topics_of
from tests.support.quorum.split_node import LoneNode

pytestmark = [pytest.mark.lasts(seconds=40), pytest.mark.patience(seconds=180)]

PARTITIONS = 3


@pytest.fixture
def numbers() -> Iterator[int]:
    return iter(range(10_000))


def filled(node: LoneNode, numbers: Iterator[int]) -> set[bytes]:
    """Start the node; give it topics, and a group that has read one of them to its end."""
    node.start()
    here = node.bootstrap
    asyncio.run(create(here, "read", PARTITIONS))
    asyncio.run(create(here, "unread", PARTITIONS))
    said = produce(here, "read", list(range(PARTITIONS)), numbers)
    assert consume(here, "read", len(said)) == said
    return said | produce(here, "unread", list(range(PARTITIONS)), numbers)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("was_dynamic", "options"),
    [(False, ()), (False, ("--dynamic",)), (True, ())],
    ids=["static", "static to dynamic", "dynamic"],
)
def test_records_groups_and_metadata_continue(
    tmp_path: Path, numbers: Iterator[int], was_dynamic: bool, options: tuple[str, ...]
) -> None:
    """Only processes show that new controllers elect one, and that the broker comes back to it."""
    node = LoneNode(tmp_path, is_dynamic=was_dynamic)
    here = node.bootstrap
    try:
        said = filled(node, numbers)
        refused = node.split(*options)
        assert refused.returncode == 1
        assert "is a node already running on it?" in refused.stderr
        assert node.terminate() == 0
        done = node.split(*options)
        assert done.returncode == 0, done.stderr

        old = node.start_to_end()
        assert old.returncode == 1
        assert "`tidemark split` made it a broker" in old.stderr
        node.is_split = True
        asyncio.run(_start_all(node))
        until(lambda: -1 not in leaders(here, "read").values(), "all are led")
        assert {at for topic in ("read", "unread") for at in leaders(here, topic).values()} == {1}
        assert topics_of(here) >= {"read", "unread", "__consumer_offsets"}
        new = produce(here, "read", list(range(PARTITIONS)), numbers)
        assert consume(here, "read", len(new)) == new, "the group continues where it was"
        assert consume(here, "unread", PARTITIONS) | consume(here, "read", 6, "other") == said | new

        asyncio.run(_lose_the_active_one(node))
        more = produce(here, "new", list(range(4)), numbers)
        assert consume(here, "new", len(more)) == more
        assert node.terminate() == 0
        assert " ERROR " not in node.log_text()
        too_late = go_back(node)
        assert too_late.returncode == 1
        assert "the metadata directory is an older copy" in too_late.stderr
    finally:
        node.close()


def go_back(node: LoneNode) -> "CompletedProcess[str]":
    """Start the node as what it was, on the metadata from before the split."""
    metadata = node.log_directory / METADATA_DIRECTORY
    shutil.rmtree(metadata)
    (node.log_directory / SET_ASIDE_DIRECTORY).rename(metadata)
    node.is_split = False
    return node.start_to_end()


async def _lose_the_active_one(node: LoneNode) -> None:
    leader = await node.quorum.leader()
    assert set(leader.observers) == {node.node_id}
    node.quorum.controllers[leader.node_id].kill()
    await node.quorum.leader(above=leader.epoch)
    await create(node.bootstrap, "new", 2)
    await grow(node.bootstrap, "new", 4)
    await node.quorum.controllers[leader.node_id].start()


def test_two_empty_controllers_get_no_broker_and_yield_to_the_third(
    tmp_path: Path, numbers: Iterator[int]
) -> None:
    """A majority of static voters elects itself, in Raft: only processes show what comes of it."""
    node = LoneNode(tmp_path)
    nodes = node.quorum.controllers
    try:
        said = filled(node, numbers)
        assert node.terminate() == 0
        assert node.split().returncode == 0
        node.is_split = True
        asyncio.run(_start_empty(node, 101, 102))
        refused = node.start_to_end()
        assert refused.returncode == 1
        assert "but not the metadata log of this broker" in refused.stderr

        asyncio.run(nodes[103].start())  # its snapshot has an epoch above theirs
        until(lambda: asyncio.run(node.quorum.settled()).node_id == 103, "the third leads")
        node.start()
        until(lambda: -1 not in leaders(node.bootstrap, "read").values(), "all are led")
        read = [consume(node.bootstrap, one, PARTITIONS, "other") for one in ("read", "unread")]
        assert set().union(*read) == said
    finally:
        node.close()


async def _start_empty(node: LoneNode, *ids: int) -> None:
    for controller in (node.quorum.controllers[one] for one in ids):
        shutil.rmtree(controller.logs)
        controller.membership = replace(controller.membership, cluster_id=cluster_of(node))
        await controller.format()
        await controller.start()
    assert (await node.quorum.leader()).node_id in ids


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
def test_the_tier_continues(tmp_path: Path, is_dynamic: bool) -> None:
    """Only whole processes show that the tier is let in by the drawn secret, and owns its store."""
    node = LoneNode(tmp_path, is_dynamic=is_dynamic, tiered=True)
    node.settings |= QUICK
    records = values(1_200)
    config = ("--config", str(node.config_file), "--bootstrap-server", node.bootstrap)
    try:
        node.start()
        create_tiered(node, "kept", **TIERED)
        create_tiered(node, "removed", **TIERED)
        for topic in ("kept", "removed"):
            produce_to(node, topic, records)
            tiered_away(node, topic)
        copied = len(node.remote_segments("kept"))
        delete_topic(node, "removed")  # what is left of it is the new life's to remove
        assert node.terminate() == 0
        done = node.split()
        assert done.returncode == 0, done.stderr
        node.is_split = True
        asyncio.run(_start_all(node))
        assert read_all(node, "kept") == as_read(records)
        produce_to(node, "kept", records)
        until(lambda: len(node.remote_segments("kept")) > copied, "copying continues")
        tiered_away(node, "kept")
        assert read_all(node, "kept") == as_read(records + records)
        until(lambda: not node.remote_paths("**/removed-*/**/*.*"), "what was removed is gone")
        until(lambda: node.command("remote", "audit", *config).returncode == 0, "a clean audit")
        until(lambda: node.health()["status"] == "green", "the broker is green")
        assert node.terminate() == 0
    finally:
        node.close()


def test_another_broker_continues_under_the_new_controllers(
    tmp_path: Path, numbers: Iterator[int]
) -> None:
    """Its log has the former epochs at the offset where the new controllers' snapshot ends."""
    node = LoneNode(tmp_path)
    former = Member(node.node_id, node.controller_port, b"")
    other = TidemarkBroker(11, tmp_path / "broker-11", Membership((former,), is_dynamic=False))
    there = other.address
    try:
        node.start()
        asyncio.run(_begin(other, cluster_of(node)))
        until(lambda: brokers(there) == {1, 11}, "both serve")
        asyncio.run(create(there, "t", 2 * PARTITIONS))
        where = leaders(there, "t")
        assert set(where.values()) == {1, 11}
        said = produce(there, "t", list(where), numbers)
        assert node.terminate() == 0
        done = node.split()
        assert "brokers 11: name the controllers" in done.stdout, done.stderr

        assert asyncio.run(other.stop()) == 0
        other.membership = Membership(
            tuple(Member(n, one.port, b"") for n, one in node.quorum.controllers.items()),
            is_dynamic=False,
            cluster_id=other.membership.cluster_id,
        )
        node.is_split = True
        asyncio.run(_start_all(node, other))
        until(lambda: leaders(there, "t") == where, "all are led by whom they were")
        assert consume(there, "t", len(said)) == said
        snapshots = [one.name for one in other.metadata.glob("*.checkpoint")]
        assert any(one in snapshots for one in _seeds(node)), "it dropped the former log"
    finally:
        other.close()
        node.close()


def cluster_of(node: LoneNode) -> str:
    data = (node.log_directory / META_PROPERTIES).read_bytes()
    return parse_meta_properties(data).cluster_id


async def _begin(other: TidemarkBroker, cluster_id: str) -> None:
    other.membership = replace(other.membership, cluster_id=cluster_id)
    await other.start()


async def _start_all(node: LoneNode, *others: TidemarkBroker) -> None:
    await asyncio.gather(*(one.start() for one in node.quorum.controllers.values()))
    await asyncio.gather(asyncio.to_thread(node.start), *(one.start() for one in others))


def _seeds(node: LoneNode) -> list[str]:
    """Names of the snapshots that the new controllers began with."""
    return [one.name for one in node.into.glob("controller-101/__cluster_metadata-0/*.checkpoint")]
