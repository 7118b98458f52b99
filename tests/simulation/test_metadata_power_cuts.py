"""A metadata node on a machine that forgets names at a power cut, cut at each of its operations.

After every cut the node starts without help and has everything that was answered, in an epoch above
all before.
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
from metadata_topic.quorum.node import MetadataNode, MetadataUnavailable, NodeIdentity
from metadata_topic.quorum.snapshot.snapshots import SnapshotId, snapshot_chunks
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, FormatPlan, format_directory
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from runtime.disk import Disk
from tests.support.rounds import rounds
from tests.support.sim.ports import simulated
from tests.support.sim.power_cut_disk import PowerCutError
from tests.support.worlds.forgetful_disk import FORGETS, ForgetfulDisk, QuickDisk
from tests.support.worlds.interrupted_install import leave_install
from tests.support.worlds.one_node import looped, sole_voter

pytestmark = pytest.mark.lasts(seconds=18)

CONFIG = MetadataLogConfig(
    segment_bytes=500,
    max_record_bytes_between_snapshots=10**9,
    max_retention_bytes=1,
    max_batch_bytes=600,
)

ROUNDS = rounds("TIDEMARK_RAFT_SEEDS", quick=2, full=5)
STEP = 1 if ROUNDS > 100 else 4
"""Each operation in long runs; otherwise every fourth, others for each kind of change."""


class World:
    def __init__(self, path: Path, seed: int = 1) -> None:
        self.path = path
        self.ports = looped(simulated(seed))
        self.answered: set[str] = set()
        self.epoch = 0
        plan = FormatPlan("c", 1, (path,), path, VoterEndpoint("CONTROLLER", "localhost", 9093))
        ids = format_directory(plan, disk=QuickDisk(), clock=self.ports.clock, rng=self.ports.rng)
        self.directory_id = ids[path]

    def node(self, disk: Disk) -> MetadataNode:
        return MetadataNode(
            self.path,
            NodeIdentity(node_id=1, cluster_id="c", directory_id=self.directory_id),
            replace(self.ports, disk=disk),
            sole_voter(CONFIG),
        )

    async def life(self, disk: Disk) -> None:
        node = self.node(disk)
        await node.begin()
        assert node.leader_epoch > self.epoch, "epochs never go back"
        self.epoch = node.leader_epoch
        assert self.answered <= set(node.image.topics_by_name), "lost what was answered"
        for round_ in range(2):
            for n in range(3):
                await self.create(node, f"{self.epoch}-{round_}-{n}", 12 if n == 1 else 1)
            await node.snapshot()
        await node.close()

    async def create(self, node: MetadataNode, prefix: str, count: int) -> None:
        """Make topics in one decision: all of them count, or none."""
        names = [f"{prefix}-{n}" for n in range(count)]

        def decide(image: MetadataImage) -> ControllerResult[None]:
            made = [make("TopicRecord", name=n, topic_id=self.ports.rng.uuid()) for n in names]
            return ControllerResult(tuple(made), None)

        await node.submit(decide)
        self.answered.update(names)

    def live_until_cut(self, disk: ForgetfulDisk) -> None:
        try:
            asyncio.run(self.life(disk))
        except (PowerCutError, MetadataUnavailable, DecisionTimedOut):
            assert disk.is_off


@pytest.mark.parametrize("kinds", FORGETS)
def test_a_cut_at_every_operation_loses_nothing_that_was_answered(kinds: str) -> None:
    """Two lives, so that the second one begins with segments, snapshots and a vote."""
    step = STEP
    operations = 1 + list(FORGETS).index(kinds) % step
    while True:
        with tempfile.TemporaryDirectory() as directory:
            world = World(Path(directory), seed=operations)
            disk = ForgetfulDisk(world.ports.rng, operations, kinds)
            world.live_until_cut(disk)
            asyncio.run(world.life(QuickDisk()))
            if not disk.is_off:
                break
        operations += step
    assert operations > 60


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_cuts_lose_nothing_that_was_answered(seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory), seed=seed)
        for _ in range(6):
            operations = 1 + int(world.ports.rng.random() * 250)
            world.live_until_cut(
                ForgetfulDisk(world.ports.rng, operations, "everything", chance=0.5)
            )
        asyncio.run(world.life(QuickDisk()))


@pytest.mark.parametrize("kinds", FORGETS)
def test_a_cut_while_a_snapshot_replaces_the_log_is_gone_on_with(kinds: str) -> None:
    operations = 1
    while True:
        with tempfile.TemporaryDirectory() as directory:
            world = World(Path(directory))
            asyncio.run(world.life(QuickDisk()))
            fetched = world.path / METADATA_DIRECTORY
            voter = Voter(
                ReplicaKey(1, world.directory_id), (VoterEndpoint("CONTROLLER", "localhost", 9093),)
            )
            chunks = snapshot_chunks(
                [make("TopicRecord", name="theirs", topic_id=b"t" * 16)],
                snapshot_id=SnapshotId(500, 9),
                last_contained_timestamp_ms=1,
                now_ms=world.ports.clock.wall_ms,
                kraft_version=1,
                voters=VoterSet((voter,)),
            )
            leave_install(fetched, SnapshotId(500, 9), chunks)
            world.answered = {"theirs"}
            world.epoch = 9
            disk = ForgetfulDisk(world.ports.rng, operations, kinds)
            try:
                asyncio.run(world.node(disk).begin())
            except (PowerCutError, MetadataUnavailable, DecisionTimedOut):
                node = world.node(QuickDisk())
                asyncio.run(node.begin())
                assert set(node.image.topics_by_name) == {"theirs"}
                assert node.leader_epoch > 9
            else:
                break
        operations += 1
    assert operations > 10


def test_a_vote_is_not_forgotten_with_the_directory_it_lies_in(tmp_path: Path) -> None:
    """With static voters nothing but the start makes the directory."""
    ports = looped(simulated())
    plan = FormatPlan("c", 1, (tmp_path,), tmp_path)
    ids = format_directory(plan, disk=QuickDisk(), clock=ports.clock, rng=ports.rng)

    def node(disk: Disk) -> MetadataNode:
        return MetadataNode(
            tmp_path,
            NodeIdentity(node_id=1, cluster_id="c", directory_id=ids[tmp_path]),
            replace(ports, disk=disk),
            sole_voter(static=True),
        )

    disk = ForgetfulDisk(ports.rng, 10**9, "everything")
    asyncio.run(node(disk).begin())
    disk.cut()
    again = node(QuickDisk())
    asyncio.run(again.begin())
    assert again.leader_epoch == 2


def test_a_formatted_directory_keeps_its_name(tmp_path: Path) -> None:
    ports = simulated()
    disk = ForgetfulDisk(ports.rng, 10**9, "everything")
    home = tmp_path / "deep" / "home"
    plan = FormatPlan("c", 1, (home,), home, VoterEndpoint("CONTROLLER", "localhost", 9093))
    format_directory(plan, disk=disk, clock=ports.clock, rng=ports.rng)
    disk.cut()
    assert (home / "meta.properties").exists()
    assert (home / METADATA_DIRECTORY / SnapshotId(0, 0).file_name).exists()


async def test_a_change_of_several_batches_stays_in_one_segment(tmp_path: Path) -> None:
    """Nothing is flushed between them, so a later segment would prove what it cannot."""
    world = World(tmp_path)

    node = world.node(QuickDisk())
    await node.begin()
    await world.create(node, "small", 1)
    before = set((tmp_path / METADATA_DIRECTORY).glob("*.log"))
    end = node.log_end_offset
    await world.create(node, "large", 60)
    after = set((tmp_path / METADATA_DIRECTORY).glob("*.log")) - before
    assert after <= {tmp_path / METADATA_DIRECTORY / f"{end:020d}.log"}
    await node.close()
