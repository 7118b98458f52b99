"""From a metadata directory to a replica that is ready to start: everything a start reads.

Nothing on the disk is changed before all of it was read and validated.
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
from runtime.ports import Ports

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReplica:
    """What a start has found and opened.

    Attributes:
        found: in the directory. A sole voter's loader holds all records, for all of them are
            committed; that of one of several holds none yet.
        plan: how this node takes part.
        started: the core's first event.
        bootstrap: the records that the format step left, for a cluster where nothing counts yet.
        bootstrap_problem: why they cannot be read, where the log is likely to have them.
        removed_topics: ids of the RemoveTopicRecords that a sole voter has replayed.
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
        """Up to where (exclusive) the loader's records reach."""
        return self.started.end_offset if self._is_sole else 0

    @property
    def unloaded(self) -> SnapshotId | None:
        """The snapshot that is to be loaded once the replica runs."""
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
        log_dir: holds `bootstrap.checkpoint` and `__cluster_metadata-0`, which need not exist.
        identity: of this node.
        settings: of the quorum.
        ports: disk, clock and rng.
        config: of the log.
        check: sees the metadata as they were found, before anything is written; what it raises
            ends the start. Not called on one of several voters: they are not known yet.
        check_stop: called between batches while nothing is changed yet; raises to end it here.

    Raises:
        QuorumConfigError, UnusableMetadataError: this node must not start; nothing was changed.
        NotFormattedError: there are no records yet, and no bootstrap records.
        OSError, KafkaStorageError: the disk failed.
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
    if settings.is_controller and found.is_blank:  # as far as was looked, nothing ever counted
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
    """What a directory says of the quorum, as the plan of a start takes it."""
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
    """The records of the format step, or why they cannot be read.

    The first leader wrote them into the log. A log with records has them, if they are committed;
    that is known of the only voter's log alone.
    """
    try:
        return tuple(read_bootstrap(log_dir, disk)), ""
    except (NotFormattedError, UnusableMetadataError, OSError) as error:
        if is_replayed or not found.has_records:
            raise
        problem = str(error)
    log.error("not needed to start, for the log has records, but restore it: %s", problem)
    return (), problem


def _looks_sole(key: ReplicaKey, settings: QuorumSettings) -> bool:
    """Guess who votes before the log was read; a wrong guess costs a second reading."""
    others = [node for node in settings.static_voters if node.id != key.id]
    return settings.is_controller and not others
