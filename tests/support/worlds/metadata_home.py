"""A metadata directory and everything to start nodes in it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path

from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.log.flushed_end_file import FLUSHED_END, HEAD_LINES
from metadata_topic.quorum.node import MetadataNode, NodeIdentity, NodeSettings
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, FormatPlan, format_directory
from metadata_topic.raft.voters import VoterEndpoint
from runtime.disk import Disk
from runtime.executors import Pool
from tests.support.sim.executors import SimExecutors
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
from tests.support.worlds.one_node import looped

DIRECTORY_ID = b"D" * 16

Work = Callable[[MetadataNode], Awaitable[None]]
Decide = Callable[[MetadataImage], ControllerResult[None]]


class Home:
    """See the module."""

    def __init__(
        self, path: Path, *, config: MetadataLogConfig | None = None, cluster_id: str = "cluster"
    ) -> None:
        self.path = path
        self.cluster_id = cluster_id
        self.metadata = path / METADATA_DIRECTORY
        self.log = self.metadata / "00000000000000000000.log"
        self.disk: Disk = FaultyDisk()
        self.ports = looped(simulated(7))
        self.config = config
        self.failures: list[BaseException] = []
        endpoint = VoterEndpoint("CONTROLLER", "localhost", 9093)
        plan = FormatPlan(
            cluster_id, 1, (path,), path, endpoint, directory_ids={path: DIRECTORY_ID}
        )
        format_directory(plan, disk=Disk(), clock=self.ports.clock, rng=self.ports.rng)

    def node(self, *, pool: Pool | None = None) -> MetadataNode:
        return MetadataNode(
            self.path,
            NodeIdentity(node_id=1, cluster_id=self.cluster_id, directory_id=DIRECTORY_ID),
            replace(self.ports, disk=self.disk, executors=SimExecutors(pool)),
            None if self.config is None else NodeSettings(log=self.config),
            on_failure=self.failures.append,
        )

    def life(self, work: Work | None = None, *, killed: bool = False) -> MetadataNode:
        """Start, work, stop; `killed` ends as a killed process does: nothing is closed."""
        return asyncio.run(self.lived(work, killed=killed))

    async def lived(self, work: Work | None = None, *, killed: bool = False) -> MetadataNode:
        """As `life`, in the loop that runs."""
        node = self.node()
        await node.begin()
        if work is not None:
            await work(node)
        if not killed:
            await node.close()
        return node

    def files(self) -> dict[str, bytes]:
        """Name and content of everything in the metadata directory."""
        return {path.name: path.read_bytes() for path in self.metadata.iterdir()}


def forget_lines(metadata: Path) -> None:
    """Take the lines out of the note of the flushed end, as a power cut may."""
    note = metadata / FLUSHED_END
    note.write_bytes(b"".join(note.read_bytes().splitlines(keepends=True)[:HEAD_LINES]))


def topics(*names: str) -> Decide:
    """A decision that makes topics without partitions."""
    return records(
        make("TopicRecord", name=name, topic_id=name.encode().ljust(16, b"-")[:16])
        for name in names
    )


def records(wanted: Iterable[MetadataRecord]) -> Decide:
    """A decision that writes these records."""
    taken = tuple(wanted)
    return lambda image: ControllerResult(taken, None)
