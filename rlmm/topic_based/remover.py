"""Removes what deleted topics left in the store: reconciles metadata with the image, pass by pass.

The broker that leads a metadata partition does it for all user partitions in it; no broker that
hosted them is needed, and no message can be lost: each pass looks at what is there and does the
next step. For a topic id whose removal was read (`removal_policy`):

1. PARTITION_MARKED: from its place on every reader refuses all other writers of the id;
2. after the grace time PARTITION_STARTED;
3. each segment: DELETE_SEGMENT_STARTED, its objects, and when the copy maximum has passed since its
   STARTED was first seen, its objects once more and DELETE_SEGMENT_FINISHED (a late PUT may have
   landed in between);
4. PARTITION_FINISHED, which readers refuse while a segment is left;
5. the id leaves the cluster's list of removals when no partition of it has had anything left for
   the grace time.

The removal is looked up again when a partition's steps begin, before PARTITION_STARTED, and before
each segment. Before each record and each deletion it is asked whether the store may be written to:
a pass during which another machine claims the store ends there.

`steps` is a generator that yields effects and is sent nothing: a pass runs them for real, a
simulation one by one, and stops between any two.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, assert_never

from kafka_protocol.errors import TidemarkError
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
from rlmm.red import RedText
from rlmm.topic_based.removal_policy import (
    ClusterImage,
    RemovalRed,
    Standing,
    reasons_of,
    standing_of,
)
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from runtime.clock import Clock
from runtime.log_context import Outage

log = logging.getLogger(__name__)

_MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
_STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED
_FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED

IMAGE_AGE_MAX_MS = 1_000
"""An image is asked for anew where the last one is older."""


class NotTakenError(TidemarkError):
    """The cluster's metadata log did not take a record."""


WatchCall = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Watches a plugin call while its block runs, and calls what it is given if that hangs."""


class RemovedTopics(Protocol):
    """What the remover asks of its cluster, and tells it."""

    def image(self) -> ClusterImage | None:
        """The newest committed image, of a high watermark that was confirmed after this call.

        None while there is none.
        """
        ...

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        """Nothing is left of these: they leave the list; returns once that is committed.

        Raises:
            NotTakenError: it is not.
        """
        ...

    def keep_removals(self, marked: Collection[bytes]) -> None:
        """Go by the list alone from here on, with these ids on it; returns once committed.

        Raises:
            NotTakenError: it is not.
        """
        ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoverConfig:
    """Settings of a remover.

    Attributes:
        cluster_id: of this cluster; images of another are not believed.
        node_id: this broker, written into records.
        grace_ms: from PARTITION_MARKED to PARTITION_STARTED.
        copy_max_ms: the copy maximum of the cluster.
        write_wait_ms: how long a pass waits for one write.
    """

    cluster_id: str
    node_id: int
    grace_ms: int = 60_000
    copy_max_ms: int = 3_600_000
    write_wait_ms: int = 120_000


def _nobody() -> None:
    """Nobody waits for the pass."""


def _always() -> bool:
    return True


def _unwatched(_: Callable[[], None]) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGate:
    """What stands between a remover and the store.

    Attributes:
        watch_call: watches each call of the plugin.
        may_write: whether the store may be written to.
    """

    watch_call: WatchCall = _unwatched
    may_write: Callable[[], bool] = _always


OPEN_GATE = StoreGate()


@dataclass(slots=True)
class _Pass:
    """One pass; given up where a plugin call of it hangs."""

    on_given_up: Callable[[], None] = _nobody
    may_write: Callable[[], bool] = _always
    is_given_up: bool = False

    def is_over(self) -> bool:
        """Whether it does nothing more."""
        return self.is_given_up or not self.may_write()

    def give_up(self) -> None:
        self.is_given_up = True
        self.on_given_up()


class Remover:
    """Runs passes; one at a time, but for one that was given up.

    Attributes:
        failed_count: steps that failed; the next pass tries them again.
        red: what the last pass found that only an operator can settle.
    """

    def __init__(
        self,
        manager: RemovableMetadata,
        storage: DeletesSegments,
        cluster: RemovedTopics,
        config: RemoverConfig,
        clock: Clock,
        gate: StoreGate = OPEN_GATE,
    ) -> None:
        """Make it.

        Args:
            manager: the metadata manager; see also `TopicBacked.lead`.
            storage: the plugin.
            cluster: images, and the list of removals.
            config: settings.
            clock: time.
            gate: watches each call of the plugin, and is asked before each record and call.
        """
        self._manager, self._storage, self._cluster = manager, storage, cluster
        self._cluster_id, self._node_id = config.cluster_id, config.node_id
        self._grace_ms, self._copy_max_ms = config.grace_ms, config.copy_max_ms
        self._write_wait_ms = config.write_wait_ms
        self._clock = clock
        self._watch_call, self._may_write = gate.watch_call, gate.may_write
        self._image: ClusterImage | None = None
        self._image_ms = 0
        self._emptied: set[bytes] = set()
        self._nothing_left_since_ms: dict[bytes, int] = {}
        self._hanging: set[TopicIdPartition] = set()
        self._not_taken: dict[str, RedText] = {}
        self._outage = Outage(log, "removing deleted topics from the remote store")
        self.failed_count = 0
        self.red: tuple[RedText, ...] = ()

    # ------------------------------------------------------------------ passes

    def run_pass(self, on_given_up: Callable[[], None] = _nobody) -> None:
        """Take every removed partition as far as it can go now; failures are counted and left.

        `on_given_up` is called, from another thread, when a call of the plugin hangs: this pass
        does nothing more then, also if the call returns after all, and another may begin. It goes
        past the partition as long as the call runs.
        """
        now = _Pass(on_given_up, self._may_write)
        # Before the image: whoever wrote these records had read of the topic.
        is_whole = self._manager.leads_all()
        known = self._manager.led_partitions()
        is_whole = is_whole and self._manager.leads_all()
        image = self._ask_image()
        if image is None or now.is_over():
            return
        red = self._red_of(known, image)
        if image.removals_are_kept:
            self._not_taken.pop("kept", None)
        elif is_whole:
            self._try_to_note("kept", lambda: self._keep_removals(known, image))
        self._tell(red)
        for partition in _removed(known, image):
            if partition not in self._hanging:
                self._remove(partition, now)
            if now.is_over():
                return
        if is_whole:
            self._try_to_note("emptied", lambda: self._note_emptied(known, image))
            self._tell(red)

    def deleted_partitions(self) -> list[TopicIdPartition]:
        """User partitions of topics whose removal was read and that have something left."""
        known = self._manager.led_partitions()
        image = self._ask_image()
        return [] if image is None else _removed(known, image)

    def _remove(self, partition: TopicIdPartition, now: _Pass) -> None:
        try:
            for effect in self.steps(partition):
                if now.is_over():
                    return
                done = self.perform(effect, now)
                if now.is_given_up:
                    return
                if done is not None:
                    done.result(self._write_wait_ms / 1_000)
                if isinstance(effect, WritePartition):
                    log.info("deleted topic: %s of %s", effect.state.name, partition.topic)
        except (MetadataError, RemoteStorageError, TimeoutError) as e:
            if now.is_over():
                return
            self.failed_count += 1
            self._outage.failed(f"partition={partition.topic_partition} {e}")
        else:
            self._outage.succeeded()

    def steps(self, partition: TopicIdPartition) -> Iterator[RemoverEffect]:
        """What to do next for a removed partition, step by step, as far as it can go now."""
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
            yield from self._segment_steps(segment)
        if not list(self._manager.list_segments(partition)):
            yield WritePartition(partition, _FINISHED)

    def perform(self, effect: RemoverEffect, now: _Pass | None = None) -> "Future[None] | None":
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
                self._delete(segment, now or _Pass())
                return None
            case _:
                assert_never(effect)

    def _delete(self, segment: RemoteLogSegmentMetadata, now: _Pass) -> None:
        partition = segment.topic_id_partition

        def hangs() -> None:
            self._hanging.add(partition)
            log.error("a delete call hangs: partition=%s", partition.topic_partition)
            now.give_up()

        try:
            with self._watch_call(hangs):
                self._storage.delete_log_segment_data(segment)
        finally:
            self._hanging.discard(partition)

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

    # ------------------------------------------------------------------ what the cluster says

    def _ask_image(self) -> ClusterImage | None:
        image = self._cluster.image()
        self._image_ms = self._clock.monotonic_ms()
        self._image = None if image is None or image.cluster_id != self._cluster_id else image
        return self._image

    def _is_removed(self, partition: TopicIdPartition) -> bool:
        image = self._image
        if image is None or self._clock.monotonic_ms() - self._image_ms > IMAGE_AGE_MAX_MS:
            image = self._ask_image()
        known = self._manager.deletion(partition)
        return (
            image is not None
            and known is not None
            and standing_of(known, image) is Standing.REMOVED
        )

    def _keep_removals(self, known: list[PartitionDeletion], image: ClusterImage) -> None:
        """An earlier version marked by another rule: its marks are put onto the list, once."""
        marked = {
            one.partition.topic_id
            for one in known
            if one.state in (_MARKED, _STARTED) and standing_of(one, image) is Standing.REMOVED
        }
        self._cluster.keep_removals(sorted(marked))
        log.info("removed topics are known by the metadata log now: marked_before=%d", len(marked))

    def _red_of(self, known: list[PartitionDeletion], image: ClusterImage) -> tuple[RedText, ...]:
        exist, unknown = [], []
        for one in (*known, *self._manager.finished_partitions(image.topic_ids)):
            standing = standing_of(one, image)
            if standing is Standing.MARKED_BUT_EXISTS:
                exist.append(one)
            elif standing is Standing.UNKNOWN and self._has_something_left(one):
                unknown.append(one)
        return reasons_of(exist, unknown)

    def _try_to_note(self, what: str, note: Callable[[], None]) -> None:
        """Write to the cluster's metadata log; what else the pass does needs no answer of it."""
        self._not_taken.pop(what, None)
        try:
            note()
        except NotTakenError as error:
            self._not_taken[what] = RemovalRed.NOT_TAKEN.text(error=error)

    def _tell(self, found: tuple[RedText, ...]) -> None:
        reasons = tuple(dict.fromkeys((*found, *self._not_taken.values())))
        for reason in reasons:
            if reason not in self.red:
                log.error("%s", reason)
        self.red = reasons

    def _has_something_left(self, known: PartitionDeletion) -> bool:
        if known.state is _FINISHED:
            return False
        try:
            segments = self._manager.list_segments(known.partition)
            return known.state is not None or next(iter(segments), None) is not None
        except MetadataError:
            return False  # its metadata partition is read again just now

    def _note_emptied(self, known: list[PartitionDeletion], image: ClusterImage) -> None:
        """Take off the list what nothing has been left of for the grace time.

        The grace time is for ids that no record has named yet: one may be on its way.
        """
        left = {one.partition.topic_id for one in known if one.state is not _FINISHED}
        now_ms, before = self._clock.monotonic_ms(), self._nothing_left_since_ms
        since = {one: before.get(one, now_ms) for one in image.removed_ids if one not in left}
        self._nothing_left_since_ms = since
        done = [one for one, since_ms in since.items() if now_ms - since_ms >= self._grace_ms]
        if done:
            self._cluster.topics_emptied(done)
            log.info("removed topics have left the remote store: count=%d", len(done))

    # ------------------------------------------------------------------ what the metadata says

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


def _removed(known: list[PartitionDeletion], image: ClusterImage) -> list[TopicIdPartition]:
    return [
        one.partition
        for one in known
        if one.state is not _FINISHED and standing_of(one, image) is Standing.REMOVED
    ]
