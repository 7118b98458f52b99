"""What a kill leaves of a node that was installing a fetched snapshot in the place of its log."""

from collections.abc import Iterable
from pathlib import Path

from metadata_topic.quorum.log.flushed_end_file import FlushedEnd, FlushedEndFile
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles
from metadata_topic.raft.messages import SnapshotId
from runtime.disk import Disk
from tests.support.sim.rng import SeededRng


def note_install(metadata: Path, snapshot_id: SnapshotId) -> None:
    """Note the intent, as `FlushedEndNote.intend_restart` does before the file gets its name."""
    note = FlushedEndFile(metadata, Disk())
    noted = note.read() or FlushedEnd(0)
    note.write(FlushedEnd(noted.offset, snapshot_id))


def leave_install(
    metadata: Path, snapshot_id: SnapshotId, chunks: Iterable[bytes | bytearray]
) -> None:
    """The intent is noted and the file has its name; the log is as it was."""
    note_install(metadata, snapshot_id)
    SnapshotFiles(metadata, Disk(), SeededRng(1)).write(snapshot_id, chunks)
