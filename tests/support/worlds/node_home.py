"""A metadata directory, and the nodes that are started in it one after the other."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.node import MetadataNode, NodeIdentity, NodeSettings
from metadata_topic.quorum.start.format import (
    METADATA_DIRECTORY,
    FormatPlan,
    format_directory,
)
from metadata_topic.quorum.start.quorum_start import QuorumSettings
from metadata_topic.raft.messages import Node
from metadata_topic.raft.voters import VoterEndpoint
from runtime.disk import Disk
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
from tests.support.worlds.one_node import looped

DIRECTORY_ID = b"D" * 16


class Home:
    """A metadata directory and everything to start nodes in it."""

    def __init__(self, path: Path, *, standalone: bool = True) -> None:
        self.path = path
        self.metadata = path / METADATA_DIRECTORY
        self.disk = FaultyDisk()
        self.ports = looped(simulated(7, disk=self.disk))
        self.failures: list[BaseException] = []
        endpoint = VoterEndpoint("CONTROLLER", "localhost", 9093) if standalone else None
        plan = FormatPlan("cluster", 1, (path,), path, endpoint, directory_ids={path: DIRECTORY_ID})
        format_directory(plan, disk=Disk(), clock=self.ports.clock, rng=self.ports.rng)

    def node(
        self,
        *,
        node_id: int = 1,
        directory_id: bytes = DIRECTORY_ID,
        config: MetadataLogConfig | None = None,
        static_voters: tuple[Node, ...] = (),
    ) -> MetadataNode:
        return MetadataNode(
            self.path,
            NodeIdentity(node_id=node_id, cluster_id="cluster", directory_id=directory_id),
            self.ports,
            NodeSettings(
                quorum=QuorumSettings(is_controller=True, static_voters=static_voters),
                log=config or MetadataLogConfig(),
            ),
            on_failure=self.failures.append,
        )

    def with_node(
        self,
        work: Callable[[MetadataNode], Awaitable[None]],
        config: MetadataLogConfig | None = None,
    ) -> MetadataNode:
        """Start, work, stop cleanly."""

        async def run() -> MetadataNode:
            node = self.node(config=config)
            await node.begin()
            await work(node)
            await node.close()
            return node

        return asyncio.run(run())

    def killed_after(
        self,
        work: Callable[[MetadataNode], Awaitable[None]],
        config: MetadataLogConfig | None = None,
    ) -> MetadataNode:
        """Start, work, and end as a killed process does: nothing is closed."""

        async def run() -> MetadataNode:
            node = self.node(config=config)
            await node.begin()
            await work(node)
            return node

        return asyncio.run(run())


def a_topic(name: str, topic_id: bytes) -> Callable[[MetadataImage], ControllerResult[None]]:
    def decide(image: MetadataImage) -> ControllerResult[None]:
        return ControllerResult((make("TopicRecord", name=name, topic_id=topic_id),), None)

    return decide


async def no_work(node: MetadataNode) -> None:
    """Only start and stop."""
