"""A metadata manager without a topic: for tests of its callers.

It is also the shortest example of the contract.

It validates with the same tables and fence as the real one. Every write is in its log, validated
and answered before the call returns, unless a `Fault` was ordered for it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import RLock

from kafka_protocol.types import TopicIdPartition
from rlmm.api import (
    LOWEST_FENCE,
    REMOVER_FENCE,
    Fence,
    MetadataNotReadyError,
    MetadataRefusedError,
    MetadataWriteTimeoutError,
    PartitionDeleteState,
    PartitionDeletion,
    PartitionHistory,
    RemovesDeletedTopics,
    SegmentUpdate,
)
from rlmm.barrier import barrier, newest_of
from rlmm.events import MetadataEvent, PartitionDeleted, SegmentAdded, SegmentUpdated, Stamp
from rlmm.fold import Fold
from rlmm.lifecycle import PartitionFacts, Verdict, deletion_of, history_of
from rlmm.partition_view import ABORTING_SEGMENTS_MAX, PartitionView
from rlmm.store import MemoryStore, PartitionKey, Position, partition_key
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata
from runtime.clock import Clock, SystemClock
from runtime.health_reasons import HealthText
from runtime.override import override
from runtime.rng import Rng, SystemRng

_PARTITION_FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one write: its outcome is unknown to the caller.

    `lands`: whether it reaches the topic.
    """

    lands: bool


class InMemoryRemoteLogMetadataManager(RemovesDeletedTopics):
    """Keeps all partitions' metadata in this process.

    The promises are those of RemoteLogMetadataManager and RemovesDeletedTopics.

    Attributes:
        log: All records that landed, in order, with their verdicts.
        faults: Used up by the next writes, one each (barriers included).
        ended: Result of `failure`.
    """

    def __init__(
        self, clock: Clock | None = None, rng: Rng | None = None, broker_id: int = 1
    ) -> None:
        self._clock = clock or SystemClock()
        self._rng = rng or SystemRng()
        self._broker_id = broker_id
        self._lock = RLock()
        self._store = MemoryStore()
        self._views: dict[PartitionKey, PartitionView] = {}
        self._owned: dict[PartitionKey, Fence] = {}
        self._partitions: dict[PartitionKey, TopicIdPartition] = {}  # ever owned
        self._spent: dict[PartitionKey, Fence] = {}  # its records were lost
        self._on_lost_records: list[Callable[[TopicIdPartition], None]] = []
        self._log_starts: dict[PartitionKey, int] = {}  # carried by owners
        self._unclean_epochs: dict[PartitionKey, int] = {}  # from `own`
        self._ready: set[PartitionKey] = set()
        self.log: list[tuple[MetadataEvent, Verdict]] = []
        self.faults: deque[Fault] = deque()
        self.ended: str | None = None

    @override
    def configure(self, configs: Mapping[str, str]) -> None:
        self._broker_id = int(configs.get("node.id", self._broker_id))

    @override
    def own(
        self,
        partition: TopicIdPartition,
        fence: Fence,
        metadata_offset: int = -1,
        unclean_epoch: int = -1,
    ) -> "Future[None]":
        with self._lock:
            key = partition_key(partition)
            self._ready.discard(key)
            spent = self._spent.get(key, LOWEST_FENCE)
            if spent >= fence:
                return _done(MetadataRefusedError(f"{spent} lost records: {partition}", spent))
            self._partitions[key] = partition
            self._owned[key] = fence
            self._log_starts.pop(key, None)
            self._unclean_epochs[key] = unclean_epoch
            live = (entry.metadata for entry in self._view(key).entries())
            done: Future[None] = Future()
            for event in barrier(
                partition,
                newest_of(live),
                fence,
                new_id=self._rng.uuid(),
                broker_id=self._broker_id,
                now_ms=self._clock.wall_ms(),
                metadata_offset=metadata_offset,
            ):
                error = self._write(self._carrying(event))
                if isinstance(error, MetadataWriteTimeoutError) or self._fence_of(key) > fence:
                    self._owned.pop(key, None)
                    higher = self._fence_of(key)
                    refused = MetadataRefusedError(f"{higher} is there: {partition}", higher)
                    known = isinstance(error, MetadataWriteTimeoutError)
                    done.set_exception(error if error and known else refused)
                    return done
            self._ready.add(key)
            done.set_result(None)
            return done

    @override
    def follow(self, partition: TopicIdPartition) -> "Future[None]":
        with self._lock:
            key = partition_key(partition)
            self._owned.pop(key, None)
            self._ready.add(key)
            self._partitions[key] = partition
        return _done(None)

    @override
    def catch_up(self, partition: TopicIdPartition) -> "Future[None]":
        if self.is_ready(partition):
            return _done(None)
        return _done(MetadataNotReadyError(f"neither owned nor followed: {partition}"))

    @override
    def on_lost_records(self, listener: Callable[[TopicIdPartition], None]) -> None:
        self._on_lost_records.append(listener)

    @override
    def carry(self, partition: TopicIdPartition, fence: Fence, log_start: int) -> None:
        with self._lock:
            key = partition_key(partition)
            if self._owned.get(key) == fence and self.is_ready(partition):
                self._log_starts[key] = max(log_start, self._log_starts.get(key, -1))

    @override
    def history(self, partition: TopicIdPartition) -> PartitionHistory | None:
        with self._lock:
            if not self.is_ready(partition):
                raise MetadataNotReadyError(f"neither owned nor followed: {partition}")
            key = partition_key(partition)
            facts = self._store.facts(0, key) or PartitionFacts(partition)
            return history_of(facts, self._view(key).entries())

    @override
    def release(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self._owned.pop(partition_key(partition), None)
            self._ready.discard(partition_key(partition))

    @override
    def is_ready(self, partition: TopicIdPartition) -> bool:
        with self._lock:
            key = partition_key(partition)
            return key in self._ready and self._fence_of(key) <= self._owned.get(key, REMOVER_FENCE)

    @override
    def add(
        self, metadata: RemoteLogSegmentMetadata, fence: Fence, metadata_offset: int
    ) -> "Future[None]":
        return self._owned_write(SegmentAdded(metadata, Stamp(fence, metadata_offset)))

    @override
    def update(self, update: SegmentUpdate, fence: Fence, metadata_offset: int) -> "Future[None]":
        known = self.segment(update.id)
        if update.custom_metadata is None and known is not None:
            update = replace(update, custom_metadata=known.custom_metadata)
        return self._owned_write(SegmentUpdated(update, Stamp(fence, metadata_offset)))

    @override
    def segment(self, id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        with self._lock:
            entry = self._view(partition_key(id.topic_id_partition)).entry(id.id)
            return None if entry is None else entry.metadata

    @override
    def segment_for(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        with self._lock:
            return self._view(partition_key(partition)).segment_for(epoch, offset)

    @override
    def next_segment(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        with self._lock:
            return self._view(partition_key(partition)).next_segment(epoch, offset)

    @override
    def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        with self._lock:
            return self._view(partition_key(partition)).highest_offset_for_epoch(epoch)

    @override
    def list_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        with self._lock:
            return iter(self._view(partition_key(partition)).segments(epoch))

    def aborting_segments(
        self, partition: TopicIdPartition, offset: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """The lock is held for a few at a time."""
        key, after = partition_key(partition), None
        while True:
            with self._lock:
                view = self._view(key)
                some = view.aborting_segments(offset, after, ABORTING_SEGMENTS_MAX)
            yield from some
            if len(some) < ABORTING_SEGMENTS_MAX:
                return
            after = some[-1].start_offset, some[-1].id.id

    @override
    def finished_order(self, id: RemoteLogSegmentId) -> int | None:
        with self._lock:
            entry = self._view(partition_key(id.topic_id_partition)).entry(id.id)
            return None if entry is None else entry.finished_order

    @override
    def started_seen_ms(self, id: RemoteLogSegmentId) -> int | None:
        with self._lock:
            entry = self._view(partition_key(id.topic_id_partition)).entry(id.id)
            return None if entry is None else entry.started_seen_ms

    @override
    def led_partitions(self) -> list[PartitionDeletion]:
        with self._lock:
            known = map(deletion_of, self._store.all_facts(0))
            return [one for one in known if one.state is not _PARTITION_FINISHED]

    @override
    def finished_partitions(self, topic_ids: frozenset[bytes]) -> list[PartitionDeletion]:
        with self._lock:
            known = map(deletion_of, self._store.all_facts(0))
            return [
                one
                for one in known
                if one.state is _PARTITION_FINISHED and one.partition.topic_id in topic_ids
            ]

    @override
    def leads_all(self) -> bool:
        return True

    @override
    def deletion(self, partition: TopicIdPartition) -> PartitionDeletion | None:
        with self._lock:
            facts = self._store.facts(0, partition_key(partition))
            return None if facts is None else deletion_of(facts)

    @override
    def put_partition_delete(
        self, partition: TopicIdPartition, state: PartitionDeleteState
    ) -> "Future[None]":
        now_ms = self._clock.wall_ms()
        return self._owned_write(
            PartitionDeleted(partition, state, now_ms, self._broker_id, Stamp(REMOVER_FENCE))
        )

    @override
    def close(self) -> None:
        pass

    @override
    def counts(self) -> dict[str, int]:
        return {"read": len(self.log)}

    @override
    def unreadable(self) -> tuple[HealthText, ...]:
        return ()

    @override
    def failure(self) -> str | None:
        return self.ended

    def land(self, event: MetadataEvent) -> Verdict:
        """Add a record to the log as another writer would.

        For example a late record of a dead writer.
        """
        with self._lock:
            order = len(self.log)
            fold = Fold(self._store, 0)
            verdict = fold.take(event, order=order, seen_ms=self._clock.wall_ms())
            self._store.write(0, fold.changes, Position(order + 1, 0))
            for (key, segment_id), change in fold.changes.segments.items():
                self._view(key).put(segment_id, change.after)
            self.log.append((event, verdict))
            return verdict

    def lose(self, end: int) -> None:
        """Lose the records of the log from `end` on, as a truncated topic would."""
        with self._lock:
            kept = [event for event, _ in self.log[:end]]
            self._store, self._views, self.log = MemoryStore(), {}, []
            for event in kept:
                self.land(event)
            known = [self._partitions[key] for key in {*self._owned, *self._ready}]
            self._spent.update(self._owned)
            self._ready -= self._owned.keys()  # followed partitions are read again at once
            self._owned.clear()
        for partition in known:
            for listener in self._on_lost_records:
                listener(partition)

    # ------------------------------------------------------------------ inside

    def _view(self, key: PartitionKey) -> PartitionView:
        return self._views.setdefault(key, PartitionView())

    def _fence_of(self, key: PartitionKey) -> Fence:
        facts = self._store.facts(0, key)
        return Fence(-1, -1) if facts is None else facts.fence

    def _owned_write(self, event: MetadataEvent) -> "Future[None]":
        with self._lock:
            key = partition_key(event.topic_id_partition)
            fence = event.stamp.fence
            if fence != REMOVER_FENCE and (
                self._owned.get(key) != fence or not self.is_ready(event.topic_id_partition)
            ):
                return _done(
                    MetadataNotReadyError(f"not owned under {fence}: {event.topic_id_partition}")
                )
            return _done(self._write(self._carrying(event)))

    def _carrying(self, event: MetadataEvent) -> MetadataEvent:
        """The event with the values that each record of its owner carries."""
        if event.stamp.fence == REMOVER_FENCE:
            return event
        key = partition_key(event.topic_id_partition)
        facts = self._store.facts(0, key)
        unclean = max(
            self._unclean_epochs.get(key, -1), -1 if facts is None else facts.unclean_epoch
        )
        start = self._log_starts.get(key, -1)
        return replace(event, stamp=replace(event.stamp, log_start=start, unclean_epoch=unclean))

    def _write(self, event: MetadataEvent) -> Exception | None:
        fault = self.faults.popleft() if self.faults else None
        if fault is not None:
            key = partition_key(event.topic_id_partition)
            self._owned.pop(key, None)
            self._ready.discard(key)
            if fault.lands:
                self.land(event)
            return MetadataWriteTimeoutError(f"outcome unknown: {event.topic_id_partition}")
        verdict = self.land(event)
        if verdict is Verdict.ACCEPTED:
            return None
        return MetadataRefusedError(f"{verdict.value}: {event.topic_id_partition}")


def _done(error: Exception | None) -> "Future[None]":
    future: Future[None] = Future()
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
    return future
