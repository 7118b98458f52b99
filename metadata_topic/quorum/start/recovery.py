"""Reads a metadata directory at a start: the newest usable snapshot and the log after it.

A kill or a power cut may leave an unfinished snapshot (without its name yet) or a log with a torn
tail. It may also leave a transaction without its end, whose records do not count. A damaged
snapshot is renamed, and the one before it is used if the log reaches back to it.

A start first reads everything (`read_directory`) and changes nothing until all of it is decoded and
validated. Unreliable content is refused, with the disk unchanged. Only then `repair` cuts, removes
and opens.

The disk does not show how much of the log is committed. A sole voter takes all of it as committed
and replays it at once. A node of several replays nothing here: the others need its votes and
Fetches, and many records take seconds. A `MetadataLoader` loads the snapshot in slices once the
replica runs, and adds the records of the log when the high watermark has reached them.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kafka_protocol.errors import InvalidRecordError, MalformedMessageError
from kafka_protocol.records.batch import read_header
from local_log.file_names import EPOCH_CHECKPOINT, LOG, parse_segment_file, path_of
from local_log.recovery.set_aside import cut_segment, set_segment_aside
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import BrokenMetadataLogError, Provenance
from metadata_topic.image.records import UnknownMetadataRecordError
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.errors import (
    DamagedMetadataError,
    ForeignSnapshotError,
    MissingMetadataError,
    UnreadableRecordError,
)
from metadata_topic.quorum.log.batches import Batch, facts_of, read_batches
from metadata_topic.quorum.log.flushed_end_file import FlushedEnd, FlushedEndFile
from metadata_topic.quorum.log.metadata_log import MetadataLog
from metadata_topic.quorum.log.survey import SegmentSurvey, sound_batches, survey_log
from metadata_topic.quorum.log.verdict import DirectoryFacts, Verdict, validate
from metadata_topic.quorum.snapshot.snapshots import CorruptSnapshotError, Snapshot, SnapshotFiles
from metadata_topic.quorum.snapshot.store import replay_snapshot
from metadata_topic.quorum.start.format import make_dirs_durably
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import BOOTSTRAP_ID, SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts, VoterHistory
from runtime.clock import Clock
from runtime.collector import resting_collector
from runtime.disk import Disk
from runtime.incidents import Incident

log = logging.getLogger(__name__)
_UNREADABLE = (
    UnknownMetadataRecordError,
    BrokenMetadataLogError,
    InvalidRecordError,
    MalformedMessageError,
)


@dataclass(slots=True)
class FoundMetadata:
    """Content of a metadata directory; nothing is changed yet.

    Attributes:
        verdict: The valid part of the log.
        loader: Has the image of snapshot and log if they were replayed; not taken yet.
        snapshot_id: The snapshot before the log, None without one.
        snapshots: All readable ones, oldest first.
        damaged: Newer snapshots that cannot be read, to be renamed, and why.
        last_epoch: Highest epoch in log and snapshots, also in damaged parts; 0 without any.
        bytes_replayed: Size of the log's batches after the snapshot.
        has_records: The log has metadata records after the snapshot, committed or not.
    """

    directory: Path
    verdict: Verdict
    loader: ImageLoader
    snapshot_id: SnapshotId | None
    snapshots: tuple[SnapshotFile, ...]
    history: VoterHistory
    last_epoch: int
    noted: FlushedEnd | None
    damaged: list[tuple[SnapshotId, str]] = field(default_factory=list)
    bytes_replayed: int = 0
    has_records: bool = False

    @property
    def is_blank(self) -> bool:
        """True if no metadata record took effect, as far as replayed."""
        return self.snapshot_id in {None, BOOTSTRAP_ID} and self.loader.is_blank

    @property
    def lost_voters(self) -> str:
        """Why the needed file with the first voters cannot be read; "" if readable or not needed.

        A leader of kraft.version 1 writes them into the log with its first batch.
        """
        said = dict(self.damaged).get(BOOTSTRAP_ID)
        is_needed = self.snapshot_id is None and self.verdict.end_offset == 0
        return said if said and is_needed else ""

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """(epoch, first offset) of the valid log, by rising offset, for `Started`."""
        found: list[tuple[int, int]] = []
        for segment in self.verdict.segments:
            found += [one for one in segment.epochs if not found or found[-1][0] != one[0]]
        return tuple(found)

    @property
    def start_offset(self) -> int:
        """Start of the log: 0, or the end of the oldest snapshot that it reaches."""
        end = self.verdict.end_offset
        first = self.verdict.segments[0].base_offset if self.verdict.segments else end
        ends = (one.id.end_offset for one in self.snapshots)
        return 0 if first == 0 else min((one for one in ends if one >= first), default=first)


def read_directory(
    directory: Path,
    *,
    files: SnapshotFiles,
    disk: Disk,
    check_stop: Callable[[], None] = lambda: None,
    replays: bool = True,
) -> FoundMetadata:
    """Read everything in the metadata directory, which need not exist; change nothing.

    Args:
        directory: Of the metadata log.
        files: Its snapshots.
        disk: File access.
        check_stop: Called between batches; its error ends the reading.
        replays: All records of the log are committed, since this is the sole voter. Otherwise only
            control records are decoded.

    Raises:
        DamagedMetadataError, ForeignSnapshotError, MissingMetadataError, UnreadableRecordError: The
            content is not reliable.
        OSError: The disk failed.
    """
    with resting_collector():  # 300,000 records: the collector would take a third of the time
        found, snapshot = _read_directory(directory, files, disk)
        start = 0 if found.snapshot_id is None else found.snapshot_id.end_offset
        if replays and snapshot is not None and found.snapshot_id is not None:
            path = files.path(found.snapshot_id)
            _load_snapshot(found.loader, path, found.snapshot_id, snapshot, check_stop)
        for segment in found.verdict.segments:
            _load_segment(found, segment, start, disk, check_stop, replays=replays)
        return found


def _read_directory(
    directory: Path, files: SnapshotFiles, disk: Disk
) -> tuple[FoundMetadata, Snapshot | None]:
    """Read everything except records; also returns the usable snapshot."""
    ids = files.ids()
    snapshot_id, snapshot, damaged = newest_usable(files, ids)
    noted = FlushedEndFile(directory, disk).read()
    facts = DirectoryFacts(
        directory=str(directory),
        segments=survey_log(directory, disk),
        newest_snapshot=ids[-1] if ids else None,
        usable_snapshot=snapshot_id,
        noted=noted,
    )
    try:
        verdict = validate(facts)
    except (DamagedMetadataError, ForeignSnapshotError, MissingMetadataError) as error:
        why = "".join(f". {one.file_name} cannot be used: {said}" for one, said in damaged)
        raise type(error)(f"{error}{why}") from error
    end, quorum = 0, QuorumFacts()
    if snapshot is not None and snapshot_id is not None:
        end, quorum = snapshot_id.end_offset, snapshot.facts(snapshot_id)
    refused = {one for one, _ in damaged}
    found = FoundMetadata(
        directory,
        verdict,
        ImageLoader(EMPTY_IMAGE),
        snapshot_id,
        tuple(SnapshotFile(one, files.size_bytes(one)) for one in ids if one not in refused),
        VoterHistory([(end, quorum)]),
        max([0, verdict.last_epoch, *(one.epoch for one in ids)]),
        noted,
        damaged,
    )
    return found, snapshot


def repair(
    found: FoundMetadata,
    *,
    files: SnapshotFiles,
    config: MetadataLogConfig,
    disk: Disk,
    clock: Clock,
) -> MetadataLog:
    """Bring the directory into the state that `found` describes, and open its log.

    Raises:
        DamagedMetadataError: The opened log ends at another offset than `found`.
        OSError, KafkaStorageError: The disk failed.
    """
    make_dirs_durably(disk, found.directory)
    files.remove_leftovers()
    for snapshot_id, reason in found.damaged:
        log.error(Incident.SNAPSHOT_DAMAGED.line(file=snapshot_id.file_name, reason=reason))
        files.put_aside(snapshot_id)
    verdict = found.verdict
    start = 0 if found.snapshot_id is None else found.snapshot_id.end_offset
    flushed = 0 if found.noted is None else found.noted.offset
    for stale in verdict.stale:
        kept = set_segment_aside(disk, found.directory, stale.base_offset)
        log.warning("segment below the snapshot, before a hole, is set aside: %s", kept)
    if verdict.is_replaced:
        _drop_log(found, disk)
    if verdict.torn_bytes:
        _cut_tail(found, disk)
    opened = MetadataLog.open(
        found.directory,
        config=config,
        disk=disk,
        clock=clock,
        recovery_point=0 if verdict.is_replaced else min(max(start, flushed), verdict.end_offset),
        log_start=None if verdict.is_replaced else found.start_offset,
    )
    if verdict.is_replaced:
        assert found.snapshot_id is not None
        log.info("the log begins at a snapshot: offset=%d", start)
        opened.restart_at(found.snapshot_id)
        return opened
    if opened.end_offset > verdict.end_offset:
        opened.truncate_to(verdict.end_offset)
    if opened.end_offset != verdict.end_offset:
        raise DamagedMetadataError(
            f"{found.directory}: the log was opened up to offset {opened.end_offset}, but its "
            f"batches reach {verdict.end_offset}"
        )
    # A killed process may have left bytes in memory that the core takes as durable.
    opened.flush()
    newest = opened.partition_log.segments.active.base_offset
    disk.fsync_path(path_of(found.directory, newest, LOG))  # it may have been cut, too
    disk.fsync_path(found.directory)
    opened.note_flushed()
    return opened


def _cut_tail(found: FoundMetadata, disk: Disk) -> None:
    """Cut the validated torn tail before the opening, which has other rules.

    A segment without any whole batch stays, empty, and its bytes are kept beside it. The opening
    would rename it, and after a power cut the log could be without segments.
    """
    verdict, last = found.verdict, found.verdict.segments[-1]
    log.warning("torn tail: offset=%d size_bytes=%d", verdict.end_offset, verdict.torn_bytes)
    is_all_torn = last.whole_bytes == 0
    kept = cut_segment(disk, found.directory, last.base_offset, last.whole_bytes, keeps=is_all_torn)
    if kept is not None:
        log.warning("the torn tail is a whole segment; its bytes are kept: %s", kept)


def _drop_log(found: FoundMetadata, disk: Disk) -> None:
    """Remove all segments, in any state, for the snapshot that replaces them.

    They may have holes with which no log opens: a power cut during this function can bring back any
    of the names.
    """
    assert found.snapshot_id is not None
    noted = found.noted or FlushedEnd(0)
    if noted.restart != found.snapshot_id:
        intent = FlushedEnd(noted.offset, found.snapshot_id)
        FlushedEndFile(found.directory, disk).write(intent)
    dropped = [
        name
        for name in disk.list_dir(found.directory)
        if parse_segment_file(name) is not None or name == EPOCH_CHECKPOINT
    ]
    if dropped:  # none in a directory created with the snapshot alone
        log.warning("a snapshot replaces the log: offset=%d files=%d", noted.offset, len(dropped))
    for name in dropped:
        disk.unlink(found.directory / name)
    disk.fsync_path(found.directory)


def newest_usable(
    files: SnapshotFiles, ids: list[SnapshotId]
) -> tuple[SnapshotId | None, Snapshot | None, list[tuple[SnapshotId, str]]]:
    """Find the newest snapshot that a start can use; also returns why newer ones are damaged.

    Raises:
        UnreadableRecordError: This version cannot read a record of an intact snapshot.
        OSError: The disk failed.
    """
    damaged: list[tuple[SnapshotId, str]] = []
    for snapshot_id in reversed(ids):
        try:
            return snapshot_id, files.read(snapshot_id), damaged
        except CorruptSnapshotError as error:
            damaged.append((snapshot_id, str(error)))
        except _UNREADABLE as error:
            raise UnreadableRecordError(
                f"{files.path(snapshot_id)}: a record cannot be read: {error}. Nothing was changed"
            ) from error
    return None, None, damaged


def _load_snapshot(
    loader: ImageLoader,
    path: Path,
    snapshot_id: SnapshotId,
    snapshot: Snapshot,
    check_stop: Callable[[], None],
) -> None:
    try:
        for _ in replay_snapshot.steps(loader, snapshot_id, snapshot):
            check_stop()
    except _UNREADABLE as error:
        raise UnreadableRecordError(
            f"{path}: a record cannot be read or replayed: {error}. Nothing was changed"
        ) from error


def _load_segment(
    found: FoundMetadata,
    segment: SegmentSurvey,
    start: int,
    disk: Disk,
    check_stop: Callable[[], None],
    *,
    replays: bool,
) -> None:
    # A snapshot ends between batches, so no batch of the log is partly in it.
    for position, data in sound_batches(found.directory, disk, segment, start):
        check_stop()
        is_control = read_header(data).is_control
        found.has_records |= not is_control
        if not (replays or is_control):
            continue
        try:
            for batch in read_batches(data):
                found.history.note(facts_of(batch))
                if replays:
                    _replay_batch(found, batch)
        except _UNREADABLE as error:
            raise UnreadableRecordError(
                f"{found.directory}/{segment.name}: the batch at position {position} was written "
                f"as it is there, and cannot be read: {error}. Nothing was changed. Start the "
                "version that wrote it"
            ) from error


def _replay_batch(found: FoundMetadata, batch: Batch) -> None:
    header = batch.header
    found.bytes_replayed += header.size_bytes
    for record in batch.records:
        found.loader.add(record)
    found.loader.end_of_batch(
        Provenance(header.last_offset, header.partition_leader_epoch, header.max_timestamp)
    )
