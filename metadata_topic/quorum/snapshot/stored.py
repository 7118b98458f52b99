"""What a node keeps of the metadata on its disk: the log and the snapshots that stand before it."""

from typing import NamedTuple

from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import RECORD_WORK
from metadata_topic.quorum.log.metadata_log import MetadataLog
from metadata_topic.quorum.snapshot.snapshots import Snapshot, SnapshotFiles
from metadata_topic.raft.snapshot_id import SnapshotId
from runtime.work import Pace, Steps, stepwise


class StoredMetadata(NamedTuple):
    """See the module."""

    log: MetadataLog
    files: SnapshotFiles


@stepwise
def replay_snapshot(
    loader: ImageLoader, snapshot_id: SnapshotId, snapshot: Snapshot
) -> Steps[None]:
    """Replay a snapshot's records, so that the next image of `loader` ends at its end.

    Raises:
        UnknownMetadataRecordError, InvalidRecordError, MalformedMessageError,
        BrokenMetadataLogError: a record that cannot be read or replayed.
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
        yield from loader.end_of_batch_steps(place)  # nothing of the others is needed for it
    loader.end_of_batch(place)  # also where no record is
    loader.record_count = 0
