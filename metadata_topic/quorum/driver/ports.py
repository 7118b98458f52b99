"""What the driver of the Raft core stands on, and who listens to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from metadata_topic.quorum.driver.quorum_state_file import QuorumStateFile
from metadata_topic.quorum.log.metadata_log import MetadataLog
from metadata_topic.raft.effects import RoleChanged
from metadata_topic.raft.events import SnapshotInstalled, SnapshotRefused
from metadata_topic.raft.messages import Node, Question, Reply, SnapshotId
from runtime.ports import Ports


class Transport(Protocol):
    """The way to the other replicas."""

    def send(
        self,
        to: Node,
        request: Question,
        timeout_ms: int,
        done: Callable[[Reply | None], None],
    ) -> None:
        """Send a request.

        Args:
            to: whom to.
            request: what.
            timeout_ms: `done` is called by then.
            done: called once on the loop, never before `send` returns; None: no answer came.
        """
        ...


class SnapshotStore(Protocol):
    """Snapshots on this disk, and one that is being fetched. Its calls may wait for the disk."""

    def read_chunk(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes | None:
        """Bytes of a snapshot; None if it is not here any more."""
        ...

    def write_chunk(self, snapshot_id: SnapshotId, position: int, data: bytes) -> int:
        """Write bytes of the one that is being fetched; position 0 begins again.

        Returns:
            The position after them.
        """
        ...

    def install(
        self, snapshot_id: SnapshotId, size_bytes: int
    ) -> SnapshotInstalled | SnapshotRefused:
        """Check what was fetched, give it its name, and let the log begin again at its end."""
        ...

    def drop_chunks(self) -> None:
        """Forget the one that is being fetched."""
        ...


class QuorumListener(Protocol):
    """Hears what happens to this replica, in order, each call after the one before returned."""

    def on_role(self, change: RoleChanged) -> None:
        """Role, epoch or leader are others now."""
        ...

    def on_append_awaited(self) -> None:
        """Control records are to be appended.

        `RaftDriver.grant_append`, once nothing else waits.
        """
        ...

    def on_high_watermark(self, offset: int) -> None:
        """Everything below `offset` (exclusive) is committed and may be applied."""
        ...

    def on_snapshot_installed(self, event: SnapshotInstalled) -> None:
        """A fetched snapshot stands for everything that was applied before."""
        ...

    def on_leader_log_start(self, offset: int) -> None:
        """The leader's log starts at `offset`."""
        ...

    def on_failure(self, error: BaseException) -> None:
        """The node cannot continue; told once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverWorld:
    """Everything outside of the driver.

    Attributes:
        log: the metadata log, opened.
        state_file: quorum-state.
        snapshots: see SnapshotStore.
        transport: to the others.
        listener: hears of changes.
        ports: its pool `log-commit` makes votes and the log durable, `log-reads` reads what is not
            in memory.
    """

    log: MetadataLog
    state_file: QuorumStateFile
    snapshots: SnapshotStore
    transport: Transport
    listener: QuorumListener
    ports: Ports
