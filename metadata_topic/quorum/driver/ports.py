"""Ports of the Raft core's driver, and its listener."""

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
    """Sends requests to other replicas."""

    def send(
        self,
        to: Node,
        request: Question,
        timeout_ms: int,
        done: Callable[[Reply | None], None],
    ) -> None:
        """Send a request.

        Args:
            to: The receiver.
            request: The message.
            timeout_ms: `done` is called within this time.
            done: Called once on the loop, never before `send` returns; None: no answer came.
        """
        ...


class SnapshotStore(Protocol):
    """Snapshots on this disk, and the one being fetched. Calls may wait for the disk."""

    def read_chunk(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes | None:
        """Read bytes of a snapshot; None if it was deleted."""
        ...

    def write_chunk(self, snapshot_id: SnapshotId, position: int, data: bytes) -> int:
        """Write bytes of the snapshot being fetched; position 0 begins again.

        Returns:
            The position after them.
        """
        ...

    def install(
        self, snapshot_id: SnapshotId, size_bytes: int
    ) -> SnapshotInstalled | SnapshotRefused:
        """Check the fetched snapshot, give it its name, and restart the log at its end."""
        ...

    def drop_chunks(self) -> None:
        """Drop the snapshot being fetched."""
        ...


class QuorumListener(Protocol):
    """Receives events of this replica, in order; each call follows the return of the last one."""

    def on_role(self, change: RoleChanged) -> None:
        """Role, epoch or leader changed."""
        ...

    def on_append_awaited(self) -> None:
        """The core has control records to append.

        Call `RaftDriver.grant_append` once no proposal is in preparation.
        """
        ...

    def on_high_watermark(self, offset: int) -> None:
        """Everything below `offset` (exclusive) is committed and may be applied."""
        ...

    def on_snapshot_installed(self, event: SnapshotInstalled) -> None:
        """A fetched snapshot replaces everything applied so far."""
        ...

    def on_leader_log_start(self, offset: int) -> None:
        """The leader's log starts at `offset`."""
        ...

    def on_failure(self, error: BaseException) -> None:
        """The replica cannot continue; called once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverWorld:
    """Ports of the driver.

    Attributes:
        log: The metadata log, opened.
        state_file: Quorum-state.
        snapshots: On this node's disk.
        transport: To the other replicas.
        listener: Receives changes.
        ports: The pool `log-commit` makes votes and the log durable, `log-reads` reads what is not
            in memory.
    """

    log: MetadataLog
    state_file: QuorumStateFile
    snapshots: SnapshotStore
    transport: Transport
    listener: QuorumListener
    ports: Ports
