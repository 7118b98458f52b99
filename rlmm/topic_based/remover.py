"""Removes what deleted topics left in the store: reconciles metadata with the image.

The broker that leads a metadata partition does it for all user partitions in it; no broker that
hosted them is needed, and no message can be lost: a look says which partitions have something left,
and a slice of each does what is next. For a topic id whose removal was read (`removal_policy`):

1. PARTITION_MARKED: from its place on every reader refuses all other writers of the id;
2. after the grace time PARTITION_STARTED;
3. each segment: DELETE_SEGMENT_STARTED, its objects, and when the copy maximum has passed since its
   STARTED was first seen, its objects once more and DELETE_SEGMENT_FINISHED (a late PUT may have
   landed in between);
4. PARTITION_FINISHED, which readers refuse while a segment is left;
5. the id leaves the cluster's list of removals when no partition of it has had anything left for
   the grace time.

Partitions do not wait for each other: each has slices of its own, in threads of their own. Before
each record and each deletion it is asked whether the store may be written to: when another machine
claims the store, all slices end there.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Lock
from typing import Final, assert_never

from kafka_protocol.types import TopicIdPartition
from rlmm.api import (
    REMOVER_FENCE,
    MetadataError,
    PartitionDeleteState,
    RemovesDeletedTopics,
    SegmentUpdate,
)
from rlmm.topic_based.removal_notes import RemovalNotes
from rlmm.topic_based.removal_policy import Standing, standing_of
from rlmm.topic_based.removal_ports import (
    OPEN_GATE,
    DeletesSegments,
    NewestImage,
    RemovedTopics,
    RemoverConfig,
    StoreGate,
)
from rlmm.topic_based.removal_steps import (
    DeleteObjects,
    RemovalSteps,
    RemoverEffect,
    WritePartition,
    WriteSegment,
)
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.health_reasons import HealthText
from runtime.log_context import Outage

log = logging.getLogger(__name__)

SLICE_MS: Final = 10_000
"""A slice ends with the segment that it is at then: other partitions wait for a thread."""


def _nobody() -> None:
    """Nobody waits for the slice."""


class _Slice:
    """One slice of a partition; given up where a call of the plugin hangs."""

    __slots__ = ("_on_given_up", "is_given_up")

    def __init__(self, on_given_up: Callable[[], None] = _nobody) -> None:
        self._on_given_up = on_given_up
        self.is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True
        self._on_given_up()


class Remover:
    """Looks, by one thread at a time, and runs slices of partitions, of many at a time."""

    def __init__(
        self,
        manager: RemovesDeletedTopics,
        storage: DeletesSegments,
        cluster: RemovedTopics,
        config: RemoverConfig,
        clock: Clock,
        gate: StoreGate = OPEN_GATE,
    ) -> None:
        """Make it.

        Args:
            manager: the metadata manager.
            storage: the plugin.
            cluster: images, and the list of removals.
            config: settings.
            clock: time.
            gate: watches each call of the plugin, and is asked before each record and call.
        """
        self._manager, self._storage = manager, storage
        self._node_id, self._write_wait_ms = config.node_id, config.write_wait_ms
        self._clock = clock
        self._watch_call, self._may_write = gate.watch_call, gate.may_write
        self._newest = NewestImage(cluster, config.cluster_id, clock)
        self._steps = RemovalSteps(manager, self._newest, config, clock)
        self._notes = RemovalNotes(manager, cluster, config.grace_ms, clock)
        self._lock = Lock()
        self._hanging: set[TopicIdPartition] = set()
        self._failing: set[TopicIdPartition] = set()
        self._outage = Outage(log, "removing deleted topics from the remote store")

    @property
    def unhealthy(self) -> tuple[HealthText, ...]:
        """What the last look found that only an operator can settle."""
        return self._notes.unhealthy

    @property
    def yellow(self) -> tuple[HealthText, ...]:
        """The same, where it harms nobody."""
        return self._notes.yellow

    def look(self) -> list[TopicIdPartition]:
        """Validate all partitions; say which were removed and have something left.

        One with a call that hangs is excluded.
        """
        # Before the image: whoever wrote these records had read of the topic.
        is_whole = self._manager.leads_all()
        known = self._manager.led_partitions()
        is_whole = is_whole and self._manager.leads_all()
        image = self._newest.ask()
        if image is None or not self._may_write():
            return []
        self._notes.note(known, image, is_whole=is_whole, may_write=self._may_write)
        removed = [
            one.partition
            for one in known
            if one.state is not PartitionDeleteState.DELETE_PARTITION_FINISHED
            and standing_of(one, image) is Standing.REMOVED
        ]
        with self._lock:
            self._failing.intersection_update(removed)
            return [one for one in removed if one not in self._hanging]

    def remove(
        self, partition: TopicIdPartition, on_given_up: Callable[[], None] = _nobody
    ) -> bool:
        """Take a partition as far as it can go now; say whether its slice was over before.

        A failure is told and left to the next slice. `on_given_up` is called, from another thread,
        when a call of the plugin hangs: this slice does nothing more then, also if the call returns
        after all. While it hangs another slice of the partition does nothing at all.
        """
        current = _Slice(on_given_up)
        with self._lock:
            if partition in self._hanging:
                return False
        try:
            continues = self._take(partition, current)
        except (MetadataError, RemoteStorageError, TimeoutError) as e:
            if not self._is_over(current):
                self._failed(partition, e)
            return False
        if not self._is_over(current):
            self._succeeded(partition)
        return continues

    def _take(self, partition: TopicIdPartition, current: _Slice) -> bool:
        ends_at_ms = self._clock.monotonic_ms() + SLICE_MS
        before: RemoteLogSegmentId | None = None
        for effect in self._steps.of(partition):
            at = None if isinstance(effect, WritePartition) else effect.segment.id
            is_late = self._clock.monotonic_ms() >= ends_at_ms
            if is_late and None not in (before, at) and at != before:
                return True
            if self._is_over(current):
                return False
            before = at
            done = self.perform(effect, current)
            if current.is_given_up:
                return False
            if done is not None:
                done.result(self._write_wait_ms / 1_000)
            if isinstance(effect, WritePartition):
                log.info("deleted topic: %s of %s", effect.state.name, partition.topic)
        return False

    def _is_over(self, current: _Slice) -> bool:
        return current.is_given_up or not self._may_write()

    def _failed(self, partition: TopicIdPartition, error: Exception) -> None:
        with self._lock:
            self._failing.add(partition)
        self._outage.failed(f"partition={partition.topic_partition} {error}")

    def _succeeded(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self._failing.discard(partition)
            is_over = not self._failing
        if is_over:
            self._outage.succeeded()

    def steps(self, partition: TopicIdPartition) -> Iterator[RemoverEffect]:
        """What to do next for a removed partition, step by step."""
        return self._steps.of(partition)

    def perform(
        self, effect: RemoverEffect, current: _Slice | None = None
    ) -> "Future[None] | None":
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
                self._delete(segment, current or _Slice())
                return None
            case _:
                assert_never(effect)

    def _delete(self, segment: RemoteLogSegmentMetadata, current: _Slice) -> None:
        partition, has_returned = segment.topic_id_partition, False

        def hangs() -> None:
            with self._lock:
                if has_returned:  # after it was found hanging
                    return
                self._hanging.add(partition)
            log.error("a delete call hangs: partition=%s", partition.topic_partition)
            current.give_up()

        try:
            with self._watch_call(hangs):
                self._storage.delete_log_segment_data(segment)
        finally:
            with self._lock:
                has_returned = True
                self._hanging.discard(partition)
