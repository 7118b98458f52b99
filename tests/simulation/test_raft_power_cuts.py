"""A metadata node in a machine that loses power at any moment, many times over.

Checked after every cut: what was answered is there; what is there was asked for; epochs and the
broker's ids never go back; the node starts without help.
"""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from metadata_topic.quorum.active.submit import DecisionTimedOut
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.driver.quorum_state_file import parse_quorum_state
from metadata_topic.quorum.node import MetadataNode, MetadataUnavailable, NodeIdentity
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, FormatPlan, format_directory
from metadata_topic.raft.voters import VoterEndpoint
from runtime.disk import Disk
from tests.support.rounds import rounds
from tests.support.sim.ports import simulated
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.worlds.one_node import looped, sole_voter

CONFIG = MetadataLogConfig(
    segment_bytes=1500,
    max_record_bytes_between_snapshots=1000,
    max_retention_bytes=5000,
    max_batch_bytes=1200,
)

SEEDS = range(rounds("TIDEMARK_RAFT_SEEDS", quick=2, full=12))


class World:
    """One node through many lives.

    Args:
        seed: of all rng.
        path: its log directory.
        static: voters by configuration; else the format step writes them.
    """

    def __init__(self, seed: int, path: Path, *, static: bool = False) -> None:
        self.path = path
        self.ports = looped(simulated(seed))
        self.answered: set[str] = set()
        self.asked: set[str] = set()
        self.epoch = 0
        self.lives = 0
        self.settings = sole_voter(CONFIG, static=static)
        endpoint = None if static else VoterEndpoint("CONTROLLER", "localhost", 9093)
        self.directory_id = format_directory(
            FormatPlan("cluster", 1, (path,), path, endpoint),
            disk=Disk(),
            clock=self.ports.clock,
            rng=self.ports.rng,
        )[path]

    def node(self, disk: Disk) -> MetadataNode:
        return MetadataNode(
            self.path,
            NodeIdentity(node_id=1, cluster_id="cluster", directory_id=self.directory_id),
            replace(self.ports, disk=disk),
            self.settings,
        )

    async def live(self, operations: int) -> None:
        """One life: start, change things, lose power."""
        self.lives += 1
        disk = PowerCutDisk(self.path, self.ports.rng, operations)
        try:
            node = self.node(disk)
            await node.begin()
            self.check_start(node)
            for step in range(30):
                await self.change(node, step)
                if self.ports.rng.random() < 0.1:
                    await node.snapshot()
        except (PowerCutError, MetadataUnavailable, DecisionTimedOut):
            assert disk.is_off
        else:
            await self.close(node)

    async def close(self, node: MetadataNode) -> None:
        try:
            await node.close()
        except PowerCutError:
            return

    async def change(self, node: MetadataNode, step: int) -> None:
        """Make a few topics in one decision: all of them count, or none."""
        self.ports.clock.advance(int(self.ports.rng.random() * 1000))
        size = 40 if self.ports.rng.random() < 0.1 else 2
        names = [f"{self.lives}-{step}-{n}" for n in range(size)]

        def decide(image: MetadataImage) -> ControllerResult[None]:
            records = [make("TopicRecord", name=n, topic_id=self.ports.rng.uuid()) for n in names]
            return ControllerResult(tuple(records), None)

        self.asked.update(names)
        await node.submit(decide)
        self.answered.update(names)

    def check_start(self, node: MetadataNode) -> None:
        there = set(node.image.topics_by_name)
        assert self.answered <= there, f"lost: {sorted(self.answered - there)[:5]}"
        assert there <= self.asked
        assert node.leader_epoch > self.epoch, "epochs never go back"
        decisions = {name.rsplit("-", 1)[0] for name in there}
        for decision in decisions:
            members = {name for name in self.asked if name.rsplit("-", 1)[0] == decision}
            assert members <= there, "half of a decision"
        self.epoch = node.leader_epoch
        self.answered = there
        self.asked = set(there)

    def check_disk(self) -> None:
        state = self.path / METADATA_DIRECTORY / "quorum-state"
        if state.exists():
            assert parse_quorum_state(state.read_bytes()).epoch >= self.epoch


@pytest.mark.rounds
@pytest.mark.parametrize("seed", SEEDS)
def test_power_cuts_lose_nothing_that_was_answered(seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(seed, Path(directory), static=seed % 2 == 1)
        for _ in range(12):
            operations = 1 + int(world.ports.rng.random() ** 2 * 400)
            asyncio.run(world.live(operations))
            world.check_disk()
        asyncio.run(world.live(10**9))
        assert world.epoch > 0
        assert world.answered


@pytest.mark.parametrize(
    "static",
    [
        pytest.param(False, id="dynamic"),
        pytest.param(True, id="static", marks=pytest.mark.long(seconds=8)),
    ],
)
def test_a_cut_at_every_single_operation_of_a_first_start(static: bool) -> None:
    operations = 1
    while True:
        with tempfile.TemporaryDirectory() as directory:
            world = World(operations, Path(directory), static=static)
            disk = PowerCutDisk(world.path, world.ports.rng, operations)
            node = world.node(disk)
            try:
                asyncio.run(node.begin())
            except (PowerCutError, MetadataUnavailable, DecisionTimedOut):
                asyncio.run(world.live(10**9))
                assert world.epoch >= 1
            else:
                break
        operations += 1
    assert operations > 5
