"""Removes what deleted topics left in the store: reconciles metadata with the image, pass by pass.

The broker that leads a metadata partition does it for all user partitions in it; no broker that
hosted them is needed, and no message can be lost: each pass looks at what is there and does the
next step. For a topic id that is not in the image:

1. PARTITION_MARKED: from its place on every reader refuses all other writers of the id;
2. after the grace time PARTITION_STARTED;
3. each segment: DELETE_SEGMENT_STARTED, its objects, and when the copy maximum has passed since its
   STARTED was first seen, its objects once more and DELETE_SEGMENT_FINISHED (a late PUT may have
   landed in between);
4. PARTITION_FINISHED, which readers refuse while a segment is left.

It judges only with an image of its own cluster that is at or past every metadata offset at which a
writer saw the topic: an older image would take a topic that was just created for one that is gone.

`steps` is a generator that yields effects and is sent nothing: a pass runs them for real, a
simulation one by one, and stops between any two.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, assert_never

from kafka_protocol.types import TopicIdPartition
from rlmm.api import (
    REMOVER_FENCE,
    DeletedTopics,
    MetadataError,
    PartitionDeleteState,
    PartitionDeletion,
    RemoteLogMetadataManager,
    SegmentUpdate,
)
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from runtime.clock import Clock
from runtime.log_context import Outage

_log = logging.getLogger(__name__)

_MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
_STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED
_FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """What exists in the cluster.

    Attributes:
        topic_ids: of all topics (16 raw bytes each).
        metadata_offset: the offset in `__cluster_metadata` at which this was true. It must be at or
            past a high watermark that the controller gave after a majority confirmed its epoch.
        cluster_id: whose image it is.
    """

    topic_ids: frozenset[bytes]
    metadata_offset: int
    cluster_id: str


class DeletesSegments(Protocol):
    """The side of a storage plugin that the remover needs."""

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """See RemoteStorageManager."""
        ...


class RemovableMetadata(RemoteLogMetadataManager, DeletedTopics, Protocol):
    """The two sides of a metadata manager that the remover needs."""


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


class Remover:
    """Runs passes; one at a time.

    Attributes:
        failed_count: steps that failed; the next pass tries them again.
    """

    def __init__(
        self,
        manager: RemovableMetadata,
        storage: DeletesSegments,
        image: Callable[[], ClusterImage | None],
        *,
        cluster_id: str,
        node_id: int,
        clock: Clock,
        grace_ms: int = 60_000,
        copy_max_ms: int = 3_600_000,
        write_wait_ms: int = 120_000,
    ) -> None:
        """Make it.

        Args:
            manager: the metadata manager; see also its `lead`.
            storage: the plugin.
            image: the newest image, confirmed as ClusterImage says; None while there is none.
            cluster_id: of this cluster; images of another are not believed.
            node_id: this broker, written into records.
            clock: time.
            grace_ms: from PARTITION_MARKED to PARTITION_STARTED.
            copy_max_ms: the copy maximum of the cluster.
            write_wait_ms: how long a pass waits for one write.
        """
        self._manager = manager
        self._storage = storage
        self._image = image
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._clock = clock
        self._grace_ms = grace_ms
        self._copy_max_ms = copy_max_ms
        self._write_wait_ms = write_wait_ms
        self._emptied: set[bytes] = set()
        self._outage = Outage(_log, "removing deleted topics from the remote store")
        self.failed_count = 0

    def run_pass(self) -> None:
        """Take every deleted partition as far as it can go now; failures are counted and left."""
        for partition in self.deleted_partitions():
            try:
                for effect in self.steps(partition):
                    done = self.perform(effect)
                    if done is not None:
                        done.result(self._write_wait_ms / 1_000)
                    if isinstance(effect, WritePartition):
                        _log.info("deleted topic: %s of %s", effect.state.name, partition.topic)
            except (MetadataError, RemoteStorageError, TimeoutError) as e:
                self.failed_count += 1
                self._outage.failed(f"partition={partition.topic_partition} {e}")
            else:
                self._outage.succeeded()

    def deleted_partitions(self) -> list[TopicIdPartition]:
        """User partitions of topics that are surely gone and have something left."""
        image = self._image()
        if image is None or image.cluster_id != self._cluster_id:
            return []
        return [
            known.partition
            for known in self._manager.led_partitions()
            if known.state is not _FINISHED and _is_gone(known, image)
        ]

    def steps(self, partition: TopicIdPartition) -> Iterator[RemoverEffect]:
        """What to do next for a deleted partition, step by step, as far as it can go now."""
        if self._state(partition) is None:
            yield WritePartition(partition, _MARKED)
        if self._state(partition) is _MARKED:
            if not self._grace_passed(partition):
                return
            yield WritePartition(partition, _STARTED)
        if self._state(partition) is not _STARTED:
            return
        for segment in list(self._manager.list_segments(partition)):
            yield from self._segment_steps(segment)
        if not list(self._manager.list_segments(partition)):
            yield WritePartition(partition, _FINISHED)

    def perform(self, effect: RemoverEffect) -> "Future[None] | None":
        """Do an effect; a write's future is returned, objects are deleted before this returns."""
        match effect:
            case WritePartition(partition, state):
                return self._manager.put_partition_delete(partition, state)
            case WriteSegment(segment, state):
                now_ms = self._clock.wall_ms()
                update = SegmentUpdate(
                    segment.id, state, now_ms, self._node_id, segment.custom_metadata
                )
                return self._manager.update(update, REMOVER_FENCE, -1)
            case DeleteObjects(segment):
                self._storage.delete_log_segment_data(segment)
                return None
            case _:
                assert_never(effect)

    def _segment_steps(self, segment: RemoteLogSegmentMetadata) -> Iterator[RemoverEffect]:
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


def _is_gone(known: PartitionDeletion, image: ClusterImage) -> bool:
    return (
        known.partition.topic_id not in image.topic_ids
        and image.metadata_offset >= known.metadata_offset
    )
