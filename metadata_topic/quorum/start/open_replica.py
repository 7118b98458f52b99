"""From a metadata directory to a replica that is ready to start.

The start reads and checks everything before it changes anything on the disk.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import MetadataRecord
from metadata_topic.quorum.config import MetadataLogConfig, NodeIdentity
from metadata_topic.quorum.driver.quorum_state_file import QuorumStateFile
from metadata_topic.quorum.errors import UnusableMetadataError
from metadata_topic.quorum.log.metadata_log import MetadataLog
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, NotFormattedError, read_bootstrap
from metadata_topic.quorum.start.quorum_start import (
    FoundQuorum,
    Membership,
    QuorumSettings,
    QuorumStart,
    plan_quorum_start,
)
from metadata_topic.quorum.start.recovery import FoundMetadata, read_directory, repair
from metadata_topic.raft.events import ElectionState, Started
from metadata_topic.raft.messages import SnapshotId
from metadata_topic.raft.voters import ReplicaKey
from runtime.disk import Disk
from runtime.incidents import Incident
from runtime.ports import Ports

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReplica:
    """Result of reading and opening a metadata directory.

    Attributes:
        found: Content of the directory. A sole voter's loader has all records, since all of them
            are committed; in a quorum of several it has none yet.
        plan: Role of this node in the quorum.
        started: First event of the core.
        bootstrap: Records of the format step, for a cluster without any records yet.
        bootstrap_problem: Why they cannot be read, if the log is likely to have them.
        removed_topics: Ids of the RemoveTopicRecords that a sole voter has replayed.
    """

    key: ReplicaKey
    log: MetadataLog
    state_file: QuorumStateFile
    files: SnapshotFiles
    found: FoundMetadata
    plan: QuorumStart
    started: Started
    bootstrap: tuple[MetadataRecord, ...] = ()
    bootstrap_problem: str = ""
    removed_topics: frozenset[bytes] = frozenset()

    @property
    def applied_end(self) -> int:
        """End (exclusive) of the records in the loader."""
        return self.started.end_offset if self._is_sole else 0

    @property
    def unloaded(self) -> SnapshotId | None:
        """The snapshot to load once the replica runs; None if it is loaded."""
        return None if self._is_sole else self.found.snapshot_id

    @property
    def _is_sole(self) -> bool:
        return self.plan.membership is Membership.SOLE_VOTER


def open_replica(
    log_dir: Path,
    identity: NodeIdentity,
    settings: QuorumSettings,
    *,
    ports: Ports,
    config: MetadataLogConfig,
    check: Callable[[MetadataImage], None] | None = None,
    check_stop: Callable[[], None] = lambda: None,
) -> OpenReplica:
    """Read a metadata log directory and open its log; may wait for the disk.

    Args:
        log_dir: Holds `bootstrap.checkpoint` and `__cluster_metadata-0`, which need not exist.
        identity: Of this node.
        settings: Of the quorum.
        ports: Disk, clock and rng.
        config: Of the log.
        check: Called with the metadata as found, before anything is written; its error ends the
            start. Not called with several voters, whose committed records are not known yet.
        check_stop: Called between batches while nothing is changed yet; its error ends the start.

    Raises:
        QuorumConfigError, UnusableMetadataError: This node must not start; nothing was changed.
        NotFormattedError: There are neither records nor bootstrap records.
        OSError, KafkaStorageError: The disk failed.
    """
    disk = ports.disk
    key = ReplicaKey(identity.node_id, identity.directory_id)
    directory = log_dir / METADATA_DIRECTORY
    state_file = QuorumStateFile(directory, disk)
    files = SnapshotFiles(directory, disk, ports.rng, cluster_id=identity.cluster_id)
    election = state_file.find()
    is_sole = _looks_sole(key, settings)
    found = read_directory(
        directory, files=files, disk=disk, check_stop=check_stop, replays=is_sole
    )
    plan = plan_quorum_start(key, settings, found_quorum(found, election))
    if is_sole is not (plan.membership is Membership.SOLE_VOTER):
        found = read_directory(
            directory, files=files, disk=disk, check_stop=check_stop, replays=not is_sole
        )
    bootstrap: tuple[MetadataRecord, ...] = ()
    problem = ""
    if settings.is_controller and found.is_blank:  # as far as replayed, no record took effect
        is_replayed = plan.membership is Membership.SOLE_VOTER
        bootstrap, problem = _bootstrap(log_dir, disk, found, is_replayed=is_replayed)
    image, delta = found.loader.take()
    if check is not None and plan.membership is Membership.SOLE_VOTER:
        check(image)
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
        random=ports.rng.random(),
        seen_epoch=found.last_epoch,
    )
    return OpenReplica(
        key=key,
        log=opened,
        state_file=state_file,
        files=files,
        found=found,
        plan=plan,
        started=started,
        bootstrap=bootstrap,
        bootstrap_problem=problem,
        removed_topics=frozenset(delta.removed_topics),
    )


def found_quorum(found: FoundMetadata, election: ElectionState | None) -> FoundQuorum:
    """Facts about the quorum in a directory, for the plan of a start."""
    return FoundQuorum(
        directory=str(found.directory),
        election=election,
        history=found.history.entries,
        end_offset=found.verdict.end_offset,
        newest_snapshot=found.snapshot_id,
        lost_voters=found.lost_voters,
    )


def _bootstrap(
    log_dir: Path, disk: Disk, found: FoundMetadata, *, is_replayed: bool
) -> tuple[tuple[MetadataRecord, ...], str]:
    """Read the records of the format step; on failure the text why, if they are not needed.

    The first leader wrote them into the log. A log with records has them, if they are committed;
    only a sole voter's log is known to be.
    """
    try:
        return tuple(read_bootstrap(log_dir, disk)), ""
    except (NotFormattedError, UnusableMetadataError, OSError) as error:
        if is_replayed or not found.has_records:
            raise
        problem = str(error)
    log.error(Incident.BOOTSTRAP_UNREADABLE.line(problem=problem))
    return (), problem


def _looks_sole(key: ReplicaKey, settings: QuorumSettings) -> bool:
    """Guess the membership before the log is read; a wrong guess costs a second reading."""
    others = [node for node in settings.static_voters if node.id != key.id]
    return settings.is_controller and not others
