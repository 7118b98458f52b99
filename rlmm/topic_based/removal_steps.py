"""The next steps of a removed partition, from its metadata, the image and the time.

`of` is a generator that yields effects and is sent nothing. A slice performs them all; a simulation
performs them one by one, and stops between any two. The removal is looked up again when the steps
begin, before PARTITION_STARTED, and before each segment.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_protocol.types import TopicIdPartition
from rlmm.api import PartitionDeleteState, RemovesDeletedTopics
from rlmm.topic_based.removal_policy import Standing, standing_of
from rlmm.topic_based.removal_ports import NewestImage, RemoverConfig
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from runtime.clock import Clock

_MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
_STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED
_FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED


@dataclass(frozen=True, slots=True)
class WritePartition:
    """Write a partition delete record and wait until it is read back."""

    partition: TopicIdPartition
    state: PartitionDeleteState


@dataclass(frozen=True, slots=True)
class WriteSegment:
    """Write a segment's next state and wait until it is read back."""

    segment: RemoteLogSegmentMetadata
    state: SegmentState


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Delete the segment's objects in the store."""

    segment: RemoteLogSegmentMetadata


RemoverEffect = WritePartition | WriteSegment | DeleteObjects


class RemovalSteps:
    """The steps of all partitions; one thread at a time uses those of a partition."""

    def __init__(
        self,
        manager: RemovesDeletedTopics,
        newest: NewestImage,
        config: RemoverConfig,
        clock: Clock,
    ) -> None:
        self._manager, self._newest, self._clock = manager, newest, clock
        self._grace_ms, self._copy_max_ms = config.grace_ms, config.copy_max_ms
        self._emptied: set[bytes] = set()

    def of(self, partition: TopicIdPartition) -> Iterator[RemoverEffect]:
        """The next steps, in order, as far as they are possible now."""
        if not self._is_removed(partition):
            return
        if self._state(partition) is None:
            yield WritePartition(partition, _MARKED)
        if self._state(partition) is _MARKED:
            if not self._grace_passed(partition) or not self._is_removed(partition):
                return
            yield WritePartition(partition, _STARTED)
        if self._state(partition) is not _STARTED:
            return
        for segment in list(self._manager.list_segments(partition)):
            if not self._is_removed(partition):
                return
            yield from self._of_segment(segment)
        if not list(self._manager.list_segments(partition)):
            yield WritePartition(partition, _FINISHED)

    def _of_segment(self, segment: RemoteLogSegmentMetadata) -> Iterator[RemoverEffect]:
        if segment.state is not SegmentState.DELETE_SEGMENT_STARTED:
            yield WriteSegment(segment, SegmentState.DELETE_SEGMENT_STARTED)
        if not self._no_put_can_land(segment):
            if segment.id.id not in self._emptied:
                yield DeleteObjects(segment)
                self._emptied.add(segment.id.id)
            return
        yield DeleteObjects(segment)
        yield WriteSegment(segment, SegmentState.DELETE_SEGMENT_FINISHED)
        self._emptied.discard(segment.id.id)

    def _is_removed(self, partition: TopicIdPartition) -> bool:
        image = self._newest.recent()
        known = self._manager.deletion(partition)
        return (
            image is not None
            and known is not None
            and standing_of(known, image) is Standing.REMOVED
        )

    def _state(self, partition: TopicIdPartition) -> PartitionDeleteState | None:
        known = self._manager.deletion(partition)
        return None if known is None else known.state

    def _grace_passed(self, partition: TopicIdPartition) -> bool:
        known = self._manager.deletion(partition)
        if known is None or known.marked_seen_ms is None:
            return False
        return self._clock.wall_ms() - known.marked_seen_ms >= self._grace_ms

    def _no_put_can_land(self, segment: RemoteLogSegmentMetadata) -> bool:
        seen_ms = self._manager.started_seen_ms(segment.id)
        return seen_ms is not None and self._clock.wall_ms() - seen_ms > self._copy_max_ms
