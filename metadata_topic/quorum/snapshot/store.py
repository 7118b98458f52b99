"""Snapshot store of the core's driver: serves and fetches snapshots in chunks.

A fetched snapshot grows in a `.part` file whose name has a random part, so that it differs from one
being written here. It is checked whole before it gets its name: every checksum, header, footer and
cluster. After that the log must restart at its end. The intent is on disk before the name, so a
start after a kill in between completes the restart.

Calls may wait for the disk; they are sequential, except `read_chunk`.

Source: KIP-630.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kafka_protocol.errors import InvalidRecordError, MalformedMessageError
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import RECORD_WORK
from metadata_topic.quorum.log.metadata_log import MetadataLog
from metadata_topic.quorum.snapshot.snapshots import CorruptSnapshotError, Snapshot, SnapshotFiles
from metadata_topic.raft.events import SnapshotInstalled, SnapshotRefused
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts
from runtime.disk import Disk, OpenFile
from runtime.work import Pace, Steps, stepwise

log = logging.getLogger(__name__)


class StoredMetadata(NamedTuple):
    """The metadata log, and the snapshots of it."""

    log: MetadataLog
    files: SnapshotFiles


@stepwise
def replay_snapshot(
    loader: ImageLoader, snapshot_id: SnapshotId, snapshot: Snapshot
) -> Steps[None]:
    """Replay a snapshot's records; the next image of `loader` ends at its end.

    Raises:
        UnknownMetadataRecordError, InvalidRecordError, MalformedMessageError,
        BrokenMetadataLogError: A record cannot be read or replayed.
    """
    place = Provenance(
        snapshot_id.end_offset - 1, snapshot_id.epoch, snapshot.last_contained_timestamp_ms
    )
    pace = Pace()
    for records in snapshot.batches():
        for record in records:
            loader.add(record)
            if pace.is_step_over(RECORD_WORK):
                yield
        yield from loader.end_of_batch_steps(place)  # a batch depends on no other
    loader.end_of_batch(place)  # also for a snapshot without records
    loader.record_count = 0


class DiskSnapshotStore:
    """Snapshots on the disk of one node; a `SnapshotStore`."""

    def __init__(
        self,
        files: SnapshotFiles,
        metadata_log: MetadataLog,
        disk: Disk,
        before_install: Callable[[], object] = lambda: None,
    ) -> None:
        """Take the files and the log of a start.

        `before_install` is called before a fetched snapshot replaces the log, on the same thread:
        afterwards records that only the log had are gone.
        """
        self._before_install = before_install
        self._files = files
        self._log = metadata_log
        self._disk = disk
        self._part: tuple[SnapshotId, Path, OpenFile] | None = None

    def read_chunk(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes | None:
        """Read bytes of a snapshot; None if it was deleted."""
        try:
            return self._files.read_part(snapshot_id, position, max_bytes) or None
        except FileNotFoundError:
            return None

    def write_chunk(self, snapshot_id: SnapshotId, position: int, data: bytes) -> int:
        """Write bytes of the snapshot being fetched; position 0 begins again.

        Returns:
            The position after them.
        """
        if position == 0:
            self.drop_chunks()
            path = self._files.part_path(snapshot_id)
            self._part = (snapshot_id, path, self._disk.open_append(path))
        assert self._part is not None
        fetched_id, _, file = self._part
        assert (fetched_id, file.size()) == (snapshot_id, position), "chunks come in order"
        self._disk.append(file, data)
        return file.size()

    def install(
        self, snapshot_id: SnapshotId, size_bytes: int
    ) -> SnapshotInstalled | SnapshotRefused:
        """Check the fetched snapshot, give it its name, and restart the log at its end."""
        assert self._part is not None
        fetched_id, path, file = self._part
        assert fetched_id == snapshot_id
        try:
            found = self._files.check(self._disk.read_file(path))
        except (CorruptSnapshotError, InvalidRecordError, MalformedMessageError) as error:
            log.warning("fetched snapshot is damaged: file=%s: %s", snapshot_id.file_name, error)
            self.drop_chunks()
            return SnapshotRefused(snapshot_id)
        assert file.size() == size_bytes, "the core asks once all of it is written"
        self._disk.fsync(file)
        file.close()
        self._part = None
        self._before_install()
        self._log.note.intend_restart(snapshot_id)
        self._disk.rename(path, self._files.path(snapshot_id), durable=True)
        self._log.restart_at(snapshot_id)
        log.info("loaded snapshot: file=%s size_bytes=%d", snapshot_id.file_name, size_bytes)
        facts = QuorumFacts(found.kraft_version, found.voters, in_log=True)
        return SnapshotInstalled(SnapshotFile(snapshot_id, size_bytes), facts)

    def drop_chunks(self) -> None:
        """Drop the snapshot being fetched."""
        if self._part is not None:
            _, path, file = self._part
            self._part = None
            file.close()
            self._disk.unlink(path)
