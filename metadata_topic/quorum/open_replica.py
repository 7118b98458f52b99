"""From a metadata directory to a replica that is ready to start: everything a start reads.

Nothing on the disk is changed before all of it was read and judged.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metadata_topic.image.loader import ImageLoader
from metadata_topic.quorum.config import MetadataLogConfig, NodeIdentity
from metadata_topic.quorum.metadata_log import MetadataLog
from metadata_topic.quorum.quorum_start import (
    FoundQuorum,
    QuorumSettings,
    QuorumStart,
    plan_quorum_start,
)
from metadata_topic.quorum.quorum_state_file import QuorumStateFile
from metadata_topic.quorum.recovery import read_directory, repair
from metadata_topic.quorum.snapshots import SnapshotFiles
from metadata_topic.raft.events import Started
from metadata_topic.raft.snapshot_id import SnapshotId
from metadata_topic.raft.voters import ReplicaKey
from runtime.ports import Ports

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReplica:
    """What a start has found and opened.

    Attributes:
        started: the core's first event.
        plan: how this node takes part.
        loader: holds the records of the newest snapshot; those of the log count once they are
            known to be committed.
        snapshot_id: of that snapshot, None without one.
    """

    key: ReplicaKey
    log: MetadataLog
    state_file: QuorumStateFile
    files: SnapshotFiles
    loader: ImageLoader
    snapshot_id: SnapshotId | None
    plan: QuorumStart
    started: Started

    @property
    def applied_end(self) -> int:
        """Up to where (exclusive) the loader's records reach."""
        return 0 if self.snapshot_id is None else self.snapshot_id.end_offset


def open_replica(
    directory: Path,
    identity: NodeIdentity,
    settings: QuorumSettings,
    *,
    ports: Ports,
    config: MetadataLogConfig,
    check_stop: Callable[[], None] = lambda: None,
) -> OpenReplica:
    """Read a metadata directory and open its log; may wait for the disk.

    Args:
        directory: of the metadata log; need not exist.
        identity: of this node.
        settings: of the quorum.
        ports: disk, clock and dice.
        config: of the log.
        check_stop: called between batches while nothing is changed yet; raises to end it here.

    Raises:
        QuorumConfigError, UnusableMetadataError: this node must not start; nothing was changed.
        OSError, KafkaStorageError: the disk failed.
    """
    disk = ports.disk
    key = ReplicaKey(identity.node_id, identity.directory_id)
    state_file = QuorumStateFile(directory, disk)
    files = SnapshotFiles(directory, disk, ports.dice, cluster_id=identity.cluster_id)
    election = state_file.find()
    found = read_directory(
        directory, files=files, disk=disk, check_stop=check_stop, replays_log=False
    )
    quorum = FoundQuorum(
        directory=str(directory),
        election=election,
        history=found.history.entries,
        end_offset=found.verdict.end_offset,
        newest_snapshot=found.snapshot_id,
    )
    plan = plan_quorum_start(key, settings, quorum)
    for note in plan.notes:
        log.warning("metadata quorum: %s", note)
    opened = repair(found, files=files, config=config, disk=disk, clock=ports.clock)
    started = Started(
        election=plan.election,
        start_offset=opened.start_offset,
        end_offset=opened.end_offset,
        epochs=() if found.verdict.is_replaced else found.epochs,
        snapshots=found.snapshots,
        history=plan.history,
        random=ports.dice.random(),
    )
    return OpenReplica(
        key=key,
        log=opened,
        state_file=state_file,
        files=files,
        loader=found.loader,
        snapshot_id=found.snapshot_id,
        plan=plan,
        started=started,
    )
