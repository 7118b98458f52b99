"""A controller that begins with the metadata of a node which voted alone until now.

Its metadata directory holds one snapshot and no log, so that the records of the former node need
not be copied one by one. The snapshot's epoch is above every epoch of that node: a replica that
still has the old log, at whatever offset, gets the snapshot in its place; and a controller that was
formatted empty is given no vote by one that begins like this.
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
    """What all voters of the new quorum begin with.

    Attributes:
        image: all of it is committed.
        snapshot_id: end (exclusive) of the former log, and an epoch above all of its epochs.
        kraft_version: 0 with static voters, 1 with voters in the log.
        voters: of the new quorum.
    """

    cluster_id: str
    image: MetadataImage
    snapshot_id: SnapshotId
    kraft_version: int
    voters: VoterSet


def seed_voter(log_dir: Path, seed: Seed, *, disk: Disk, clock: Clock, rng: Rng) -> None:
    """Write `__cluster_metadata-0` of a new voter; durable when it returns.

    The note of the flushed end says that the snapshot replaces the log: that there is none is then
    no loss.

    Raises:
        OSError: the disk failed.
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
