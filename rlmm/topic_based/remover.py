"""Deletes the remote data of deleted topics: reconciles metadata with the image.

The broker that leads a metadata partition does it for all user partitions in it. It needs no broker
that hosted them, and no message that could be lost. A look finds the partitions that have something
left, and a slice of each does the next steps. For a topic id whose removal was read
(`removal_policy`):

1. PARTITION_MARKED. From its place on every reader refuses all other writers of the id.
2. PARTITION_STARTED, after the grace time.
3. For each segment: DELETE_SEGMENT_STARTED, then its objects. When the copy maximum has passed
   since its STARTED was first seen: its objects again, since a late PUT may have landed, and
   DELETE_SEGMENT_FINISHED.
4. PARTITION_FINISHED, which readers refuse while a segment is left.
5. The id leaves the cluster's list of removals when no partition of it has had anything left for
   the grace time.

Partitions do not wait for each other: each has its own slices, in separate threads. Before each
record and each deletion the slice checks that the store may be written to. If another machine
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
from runtime.incidents import Incident
from runtime.log_context import Outage

log = logging.getLogger(__name__)

SLICE_MS: Final = 10_000
"""A slice ends with the segment that it works on at this time: other partitions wait for a
thread."""


def _nobody() -> None:
    """The default listener, which does nothing."""


class _Slice:
    """One slice of a partition; abandoned if a plugin call hangs."""

    __slots__ = ("_on_given_up", "is_given_up")

    def __init__(self, on_given_up: Callable[[], None] = _nobody) -> None:
        self._on_given_up = on_given_up
        self.is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True
        self._on_given_up()


class Remover:
    """Looks, in one thread at a time, and runs slices of many partitions in parallel."""

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
            manager: The metadata manager.
            storage: The plugin.
            cluster: Images, and the list of removals.
            config: Settings.
            clock: Time.
            gate: Watches each plugin call, and is consulted before each record and call.
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
        self._outage = Outage(log, "removing deleted topics from the remote store", clock)

    @property
    def unhealthy(self) -> tuple[HealthText, ...]:
        """Findings of the last look that need an operator."""
        return self._notes.unhealthy

    @property
    def yellow(self) -> tuple[HealthText, ...]:
        """Findings of the last look that do no harm."""
        return self._notes.yellow

    def look(self) -> list[TopicIdPartition]:
        """Validate all partitions; returns those that were removed and have something left.

        A partition with a hanging call is left out.
        """
        # Before the image: the writers of these records had read of their topics.
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
        """Delete a partition as far as possible now; returns whether its slice ended before that.

        A failure is logged and left to the next slice. `on_given_up` is called, from another
        thread, when a plugin call hangs. This slice does nothing more then, even if the call
        returns later. While the call hangs, another slice of the partition does nothing at all.
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
        """The next steps of a removed partition, in order."""
        return self._steps.of(partition)

    def perform(
        self, effect: RemoverEffect, current: _Slice | None = None
    ) -> "Future[None] | None":
        """Perform an effect; returns a write's future; objects are deleted before this returns."""
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
            log.error(Incident.PLUGIN_HANGS.line(call=f"kind=delete {partition.topic_partition}"))
            current.give_up()

        try:
            with self._watch_call(hangs):
                self._storage.delete_log_segment_data(segment)
        finally:
            with self._lock:
                has_returned = True
                self._hanging.discard(partition)
