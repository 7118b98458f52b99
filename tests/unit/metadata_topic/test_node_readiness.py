"""A metadata node among several is ready once it has caught up, whatever happened before."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from metadata_topic.quorum.config import NodeIdentity
from metadata_topic.quorum.described import Now, describe_quorum
from metadata_topic.quorum.node import MetadataNode, NodeSettings
from metadata_topic.quorum.node_readiness import NodeReadiness
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, FormatPlan, format_directory
from metadata_topic.quorum.start.quorum_start import Membership, QuorumSettings
from metadata_topic.raft.messages import BatchFacts, FetchRequest, Node, Request
from metadata_topic.raft.roles import Role
from runtime.disk import Disk
from tests.support.sim.ports import simulated
from tests.support.worlds.driven_quorum import CLUSTER_ID, Done, DrivenQuorum, Wire
from tests.support.worlds.pools import HeldPool, turns
from tests.support.worlds.scripted_core import ScriptedCore, key


@dataclass
class Place:
    """Where a `MetadataNode` stands in a quorum of `DrivenNode`s, and its transport."""

    id: int
    quorum: DrivenQuorum
    driver: Any = None
    lives: int = 0

    def send(self, to: Node, request: Request, timeout_ms: int, done: Done) -> None:
        Wire(self, self.lives).send(to, request, timeout_ms, done)  # type: ignore[arg-type]

    def close(self) -> None:
        pass


def first_of_three(root: Path, pool: HeldPool | None = None) -> tuple[MetadataNode, DrivenQuorum]:
    """Node 1, which flushes on `pool`; the two others are not started yet."""
    quorum = DrivenQuorum(root, [1, 2, 3])
    del quorum.members[1]
    place = Place(1, quorum)
    ports = replace(simulated(1, clock=quorum.clock, pool=pool), scheduler=quorum.scheduler)
    home = root / "node-1"
    (home / METADATA_DIRECTORY).mkdir(parents=True)
    plan = FormatPlan(CLUSTER_ID, 1, (home,), home, directory_ids={home: bytes([1]) * 16})
    format_directory(plan, disk=Disk(), clock=ports.clock, rng=ports.rng)
    place.driver = node = MetadataNode(
        home,
        NodeIdentity(node_id=1, cluster_id=CLUSTER_ID, directory_id=bytes([1]) * 16),
        ports,
        NodeSettings(
            quorum=QuorumSettings(is_controller=True, static_voters=quorum.nodes), transport=place
        ),
    )
    quorum.by_port[9001] = place  # type: ignore[assignment]
    return node, quorum


async def passed(quorum: DrivenQuorum, ms: int) -> None:
    """Let time pass, a millisecond at a time."""
    for _ in range(ms):
        quorum.advance(1)
        await turns(3)


async def until(quorum: DrivenQuorum, is_so: Callable[[], bool]) -> None:
    """Let time pass until something is so."""
    for _ in range(20_000):
        if is_so():
            return
        await passed(quorum, 1)
    raise AssertionError("20 s are over")


async def elected(node: MetadataNode, quorum: DrivenQuorum) -> "asyncio.Future[None]":
    """Start all, and let node 1 lead; returns its `ready`, which waits."""
    node.open()
    node.start()
    ready = asyncio.ensure_future(node.ready())
    quorum.start()
    quorum.cut = {(2, 3), (3, 2), (2, 1), (3, 1)}  # nobody else is elected
    await until(quorum, lambda: node.is_leader)
    quorum.cut = set()
    return ready


async def test_a_leader_whose_first_request_times_out_continues_waiting(
    tmp_path: Path,
) -> None:
    """Its quorum is slow, or its disk: the broker on it starts later, instead of never."""
    own, second = HeldPool(is_holding=False), HeldPool(is_holding=False)
    node, quorum = first_of_three(tmp_path, own)
    quorum.members[2].pool = second
    ready = await elected(node, quorum)
    own.is_holding = True  # the two others commit the beginning of its epoch
    await until(quorum, lambda: node.knows_active_controller)
    second.is_holding = True  # the third alone commits nothing
    await passed(quorum, DECISION_TIMEOUT_MS + 1_000)
    assert node.is_leader
    assert not ready.done()
    for pool in (own, second):
        pool.stop_holding()
    await until(quorum, ready.done)
    await ready


async def test_a_leader_deposed_before_it_is_ready_continues_waiting(
    tmp_path: Path,
) -> None:
    node, quorum = first_of_three(tmp_path)
    ready = await elected(node, quorum)
    await until(quorum, lambda: node.knows_active_controller)
    assert not ready.done(), "its first records are not committed"
    quorum.cut = {(a, b) for other in (2, 3) for a, b in ((1, other), (other, 1))}
    for _ in range(200):
        quorum.advance(100)
        await turns(5)
    assert not node.is_leader
    assert not ready.done(), "it has not caught up with those who continue without it"
    quorum.cut = set()
    for _ in range(200):
        quorum.advance(100)
        await turns(5)
    await asyncio.wait_for(ready, 0)
    assert node.leader_id in (2, 3)


async def test_what_is_in_the_image_is_not_waited_for(tmp_path: Path) -> None:
    node, quorum = first_of_three(tmp_path)
    ready = await elected(node, quorum)
    await until(quorum, ready.done)
    there = asyncio.ensure_future(node.until_applied(node.applied_end))
    more = asyncio.ensure_future(node.until_applied(node.applied_end + 1))
    await turns()
    assert (there.done(), more.done()) == (True, False)
    await until(quorum, more.done)


def test_a_snapshot_is_not_all_that_is_committed() -> None:
    """Its leader has committed nothing in its epoch yet, and names no high watermark."""
    core = SimpleNamespace(role=Role.FOLLOWER, leader_id=2, key=key(1))
    core.replica = SimpleNamespace(leader_high_watermark=-1)
    replica: Any = SimpleNamespace(
        opened=SimpleNamespace(plan=SimpleNamespace(membership=Membership.VOTER)),
        driver=SimpleNamespace(core=core),
        controller=SimpleNamespace(watch=lambda _: None),
        high_watermark=76,  # where the snapshot ends
        applied_end=76,
    )
    readiness = NodeReadiness(replica)
    assert not readiness.is_ready
    core.replica.leader_high_watermark = 78
    assert not readiness.is_ready
    replica.applied_end = 78
    assert readiness.is_ready


def high_watermark(node: ScriptedCore) -> int:
    return describe_quorum(node.core, Now(0, node.now_ms)).high_watermark


def test_a_new_leader_names_no_high_watermark_before_its_first_commit() -> None:
    """As Kafka. What it knew as a follower may be less than what its predecessor acknowledged."""
    node = ScriptedCore()
    fetch = node.follow()
    node.answer(fetch, node.records(BatchFacts(0, 8, 1), high_watermark=5))
    assert high_watermark(node) == 5
    node.lead()
    assert high_watermark(node) == -1
    assert node.core.high_watermark == 5, "it continues to know it"
    node.ask(FetchRequest(key(3), node.core.epoch, 9, node.core.epoch))
    assert high_watermark(node) == node.core.high_watermark == 9
