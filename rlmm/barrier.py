"""The first records of a new owner: from their place on, readers refuse older writers.

A barrier changes no state. It repeats the state of the newest live segment, in a form that Kafka's
own readers accept too. If that state is STARTED, the record is marked as a barrier. The segment may
be forgotten when the record lands, and must not be named again then (model finding F2). Without a
live segment, a new id that is never copied passes through all states at once. Without this second
form, an old writer's STARTED and FINISHED could land after the new owner's validation (model story
B2).

A barrier carries no log start offset: only an owner that has settled has one. Repeated under the
new fence, the log start offset of an abandoned lineage would look like the new owner's (model story
H2).
"""

from collections.abc import Iterable
from dataclasses import replace

from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlmm.api import Fence, SegmentUpdate
from rlmm.events import MetadataEvent, SegmentAdded, SegmentUpdated, Stamp
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState


def newest_of(live: Iterable[RemoteLogSegmentMetadata]) -> RemoteLogSegmentMetadata | None:
    """The segment that a barrier repeats: the highest end offset, of several the highest id."""
    return max(live, key=lambda segment: (segment.end_offset, segment.id.id), default=None)


def barrier(
    partition: TopicIdPartition,
    newest: RemoteLogSegmentMetadata | None,
    fence: Fence,
    *,
    new_id: bytes,
    broker_id: int,
    now_ms: int,
    metadata_offset: int = -1,
    unclean_epoch: int = -1,
) -> list[MetadataEvent]:
    """The records of a barrier, to be written in this order.

    Args:
        partition: The user partition.
        newest: `newest_of` its segments in any state but DELETE_SEGMENT_FINISHED, as far as read.
        fence: The new owner's.
        new_id: 16 bytes never used for a segment, for a partition without live segments.
        broker_id: The new owner's.
        now_ms: Wall clock.
        metadata_offset: Of the image in which the new owner saw the topic, -1 if unknown.
        unclean_epoch: Of the last unclean election that is known, -1 if none.
    """
    stamp = Stamp(fence, metadata_offset, unclean_epoch=unclean_epoch)
    if newest is None:
        placeholder = RemoteLogSegmentMetadata(
            id=RemoteLogSegmentId(partition, new_id),
            start_offset=0,
            end_offset=0,
            max_timestamp_ms=-1,
            broker_id=broker_id,
            event_timestamp_ms=now_ms,
            segment_size_bytes=0,
            leader_epochs=(EpochEntry(max(0, fence.leader_epoch), 0),),
        )
        ends = (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED)
        return [
            SegmentAdded(placeholder, stamp),
            *(
                SegmentUpdated(SegmentUpdate(placeholder.id, end, now_ms, broker_id), stamp)
                for end in ends
            ),
        ]
    if newest.state is SegmentState.COPY_SEGMENT_STARTED:
        return [
            SegmentAdded(
                replace(newest, broker_id=broker_id, event_timestamp_ms=now_ms),
                stamp,
                is_barrier=True,
            )
        ]
    again = SegmentUpdate(newest.id, newest.state, now_ms, broker_id, newest.custom_metadata)
    return [SegmentUpdated(again, stamp)]
