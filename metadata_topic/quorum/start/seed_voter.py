"""Creates a voter with the metadata of a node that was the only voter until now.

Its metadata directory has one snapshot and no log, so that the former node's records need not be
copied one by one. The snapshot's epoch is above every epoch of that node. A replica with the old
log, at any offset, gets the snapshot in its place. A voter created like this gives no vote to a
controller that was formatted empty.
"""

from dataclasses import dataclass
from pathlib import Path

from metadata_topic.image.image import MetadataImage
from metadata_topic.image.snapshot_records import snapshot_records
from metadata_topic.quorum.driver.quorum_state_file import QuorumStateFile
from metadata_topic.quorum.log.flushed_end_file import FlushedEnd, FlushedEndFile
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles, snapshot_chunks
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, make_dirs_durably
from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.messages import SnapshotId
from metadata_topic.raft.voters import VoterSet
from runtime.clock import Clock
from runtime.disk import Disk
from runtime.rng import Rng


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """Initial state of all voters of the new quorum.

    Attributes:
        image: All of it is committed.
        snapshot_id: End (exclusive) of the former log, and an epoch above all of its epochs.
        kraft_version: 0 with static voters, 1 with voters in the log.
        voters: Of the new quorum.
    """

    cluster_id: str
    image: MetadataImage
    snapshot_id: SnapshotId
    kraft_version: int
    voters: VoterSet


def seed_voter(log_dir: Path, seed: Seed, *, disk: Disk, clock: Clock, rng: Rng) -> None:
    """Write `__cluster_metadata-0` of a new voter; durable when it returns.

    The note of the flushed end names the snapshot as the log's replacement, so the missing log
    counts as no loss.

    Raises:
        OSError: The disk failed.
    """
    directory = log_dir / METADATA_DIRECTORY
    make_dirs_durably(disk, directory)
    chunks = snapshot_chunks(
        snapshot_records(seed.image),
        snapshot_id=seed.snapshot_id,
        last_contained_timestamp_ms=seed.image.provenance.timestamp_ms,
        now_ms=clock.wall_ms,
        kraft_version=seed.kraft_version,
        voters=seed.voters if seed.kraft_version else None,
        cluster_id=seed.cluster_id,
    )
    end_offset, epoch = seed.snapshot_id
    FlushedEndFile(directory, disk).write(FlushedEnd(end_offset, seed.snapshot_id))
    SnapshotFiles(directory, disk, rng, cluster_id=seed.cluster_id).write(seed.snapshot_id, chunks)
    QuorumStateFile(directory, disk).write(
        ElectionState(epoch), kraft_version=seed.kraft_version, voters=seed.voters
    )
