"""What must hold of a finished copy: records that a leader wrote, and the state as of its end.

A follower that has none of the records below begins behind a copy: by its epochs and producers.
"""

from collections.abc import Mapping

from kafka_protocol.files import epoch_checkpoint, producer_snapshot
from kafka_protocol.records.batch import BatchHeader, iter_batches
from local_log.leader_epoch_cache import LeaderEpochCache
from rsm_plugins.layout.objects import checked_section, object_names, read_indexes_header
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata


def batches_of(
    metadata: RemoteLogSegmentMetadata, objects: Mapping[str, bytes]
) -> list[BatchHeader]:
    """Headers of what lies in the store."""
    return [header for _, header in iter_batches(objects[object_names(metadata).log])]


def wrong_state(
    metadata: RemoteLogSegmentMetadata, batches: list[BatchHeader], objects: Mapping[str, bytes]
) -> str:
    """What the indexes of a copy say that its batches do not; "" where they agree.

    Args:
        metadata: of the copy.
        batches: of it, from the log start on: what lies below it is in no chain.
        objects: what the store holds.
    """
    data = objects[object_names(metadata).indexes]
    parts = {
        kind: checked_section(section, data[section.position : section.position + section.length])
        for kind, section in read_indexes_header(data).items()
    }
    chain = LeaderEpochCache(epoch_checkpoint.parse(parts[IndexType.LEADER_EPOCH]))
    for one in batches:
        said = chain.epoch_for(one.base_offset)
        if said != one.partition_leader_epoch:
            return f"epoch {said} of {one}"
    newest = {one.producer_id: one.last_offset for one in batches if one.producer_id >= 0}
    known = {
        one.producer_id: one.last_offset
        for one in producer_snapshot.parse(parts[IndexType.PRODUCER_SNAPSHOT])
    }
    for producer_id, last_offset in newest.items():
        if known.get(producer_id) != last_offset:
            return f"producer {producer_id} ends at {known.get(producer_id)}, not {last_offset}"
    later = {one: last for one, last in known.items() if last > metadata.end_offset}
    return f"producers {later} continue after its end" if later else ""
