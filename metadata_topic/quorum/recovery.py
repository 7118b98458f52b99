"""What a start finds in the metadata directory: the newest usable snapshot and the log after it.

The disk may hold anything that a kill or a power cut leaves: a snapshot half written (it has no
name yet), a log with a torn tail (cut on opening), a transaction without its end (its records do
not count). A damaged snapshot is put aside and the one before it is used, as long as the log
reaches back to it.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kafka_protocol.records.control import ControlType
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.quorum.batches import Batch, Control, voters_of
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.metadata_log import MetadataLog
from metadata_topic.quorum.snapshots import (
    BOOTSTRAP_ID,
    CorruptSnapshotError,
    Snapshot,
    SnapshotFiles,
    SnapshotId,
)
from metadata_topic.raft.voters import VoterSet
from runtime.clock import Clock
from runtime.disk import Disk

_log = logging.getLogger(__name__)


class MissingMetadataError(Exception):
    """Records are gone that no snapshot contains. Fatal: the cluster's state is not known."""


@dataclass(slots=True)
class QuorumFacts:
    """What control records say about the quorum.

    Attributes:
        kraft_version: 0 with static voters.
        voters: None with kraft.version 0.
        in_log: they come from the log or a snapshot made of it, not from the format step alone.
    """

    kraft_version: int = 0
    voters: VoterSet | None = None
    in_log: bool = False

    def note(self, controls: Iterable[Control]) -> None:
        """Take the control records of a batch."""
        for kind, value in controls:
            if kind == ControlType.KRAFT_VERSION:
                self.kraft_version = value.kraft_version
            elif kind == ControlType.KRAFT_VOTERS:
                self.voters = voters_of(value)
                self.in_log = True


@dataclass(slots=True)
class Recovered:
    """The state of the directory after a start looked through it.

    Attributes:
        loader: holds the image of snapshot and log; nobody took it yet.
        snapshot_id: the snapshot it began with, None if there was none.
        bytes_after_snapshot: of log batches replayed.
    """

    log: MetadataLog
    loader: ImageLoader
    snapshot_id: SnapshotId | None
    facts: QuorumFacts
    bytes_after_snapshot: int = 0


def recover(
    directory: Path, *, files: SnapshotFiles, config: MetadataLogConfig, disk: Disk, clock: Clock
) -> Recovered:
    """Read everything in the metadata directory and repair what can be repaired.

    Raises:
        MissingMetadataError: the log does not reach back to any usable snapshot.
        UnknownMetadataRecordError, BrokenMetadataLogError: see there.
    """
    files.remove_leftovers()
    found = _newest_usable(files)
    snapshot_id, snapshot = found if found is not None else (None, None)
    start = 0 if snapshot_id is None else snapshot_id.end_offset
    log = MetadataLog.open(directory, config=config, disk=disk, clock=clock, recovery_point=start)
    if log.end_offset < start:
        _log.warning("log ends before the snapshot: log_end=%d snapshot=%d", log.end_offset, start)
        log.restart_at(start)
    if log.start_offset > start:
        raise MissingMetadataError(
            f"{directory}: the log begins at offset {log.start_offset}, the newest usable snapshot "
            f"ends at {start}: the records between are lost"
        )
    loader = ImageLoader(EMPTY_IMAGE)
    facts = QuorumFacts()
    if snapshot is not None and snapshot_id is not None:
        _load_snapshot(loader, snapshot_id, snapshot)
        facts = QuorumFacts(
            snapshot.kraft_version, snapshot.voters, in_log=snapshot_id != BOOTSTRAP_ID
        )
    recovered = Recovered(log, loader, snapshot_id, facts)
    for batch in log.recover_from(start):
        _load_batch(recovered, batch, start)
    return recovered


def _newest_usable(files: SnapshotFiles) -> tuple[SnapshotId, Snapshot] | None:
    for snapshot_id in reversed(files.ids()):
        try:
            return snapshot_id, files.read(snapshot_id)
        except CorruptSnapshotError as error:
            _log.error(
                "damaged snapshot put aside: file=%s reason=%s", snapshot_id.file_name, error
            )
            files.put_aside(snapshot_id)
    return None


def _load_snapshot(loader: ImageLoader, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
    for record in snapshot.records:
        loader.add(record)
    loader.end_of_batch(
        Provenance(
            snapshot_id.end_offset - 1, snapshot_id.epoch, snapshot.last_contained_timestamp_ms
        )
    )
    loader.record_count = 0


def _load_batch(recovered: Recovered, batch: Batch, start: int) -> None:
    header = batch.header
    if header.base_offset < start:
        # A snapshot ends between batches; the one that holds its end is wholly inside.
        return
    recovered.bytes_after_snapshot += header.size_bytes
    recovered.facts.note(batch.controls)
    for record in batch.records:
        recovered.loader.add(record)
    recovered.loader.end_of_batch(
        Provenance(header.last_offset, header.partition_leader_epoch, header.max_timestamp)
    )
