"""The metadata manager on the topic `__remote_log_metadata`: the public side of the engine.

It waits until the broker has created the topic, opens its cache, and then lets one thread turn the
engine. Roles may be requested before that; they begin then. If the topic stays away, or the thread
fails, all pending futures fail, `failure()` has the reason, and no partition is ready again.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from threading import Event, RLock

from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import TopicIdPartition
from rlmm.api import (
    REMOVER_FENCE,
    Fence,
    MetadataError,
    MetadataNotReadyError,
    PartitionDeleteState,
    PartitionDeletion,
    PartitionHistory,
    RemovesDeletedTopics,
    SegmentUpdate,
)
from rlmm.events import MetadataEvent, PartitionDeleted, SegmentAdded, SegmentUpdated, Stamp
from rlmm.lifecycle import SegmentEntry
from rlmm.partition_view import ABORTING_SEGMENTS_MAX
from rlmm.rocksdb_store import RocksdbStore
from rlmm.store import MetadataStore
from rlmm.topic_based.asked_roles import AskedRoles
from rlmm.topic_based.confluent_port import ConfluentPort
from rlmm.topic_based.engine import MetadataEngine, running_future
from rlmm.topic_based.lookups import Lookups
from rlmm.topic_based.roles import Role
from rlmm.topic_based.settings import ManagerSettings, parse
from rlmm.topic_based.topic_port import TopicPort, TopicUnavailableError
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata
from runtime.clock import Clock, SystemClock
from runtime.executors import spawn_thread
from runtime.health_reasons import HEALTHY, HealthText
from runtime.incidents import Incident
from runtime.override import override
from runtime.rng import Rng, SystemRng

log = logging.getLogger(__name__)

_RETRY_MAX_MS = 5_000
_JOIN_SECONDS = 10.0

PortFactory = Callable[[ManagerSettings], TopicPort]
StoreFactory = Callable[[ManagerSettings, int], MetadataStore]


def _rocksdb(settings: ManagerSettings, partition_count: int) -> MetadataStore:
    return RocksdbStore(
        settings.directory, cluster_id=settings.cluster_id, partition_count=partition_count
    )


class TopicBasedRemoteLogMetadataManager(RemovesDeletedTopics):
    """The metadata manager on the topic `__remote_log_metadata`.

    The promises are those of RemoteLogMetadataManager and RemovesDeletedTopics.
    """

    def __init__(
        self,
        *,
        port_factory: PortFactory = ConfluentPort,
        store_factory: StoreFactory = _rocksdb,
        clock: Clock | None = None,
        rng: Rng | None = None,
        threaded: bool = True,
    ) -> None:
        """Make it; `configure` starts it.

        Args:
            port_factory: Makes the client of the topic.
            store_factory: Opens the cache for a number of metadata partitions.
            clock: Time.
            rng: Ids of barrier records.
            threaded: False: no thread is started, and a test calls `turn`.
        """
        self._port_factory = port_factory
        self._store_factory = store_factory
        self._clock = clock or SystemClock()
        self._rng = rng or SystemRng()
        self._threaded = threaded
        self._lock = RLock()
        self._stop = Event()
        self._stopped = Event()
        self._settings: ManagerSettings | None = None
        self._port: TopicPort | None = None
        self._store: MetadataStore | None = None
        self._engine: MetadataEngine | None = None
        self._asked = AskedRoles()
        self._on_lost_records: list[Callable[[TopicIdPartition], None]] = []
        self._led: set[int] | None = set()
        self._give_up_at_ms = 0
        self._next_poll_ms = 0
        self._retry_ms = 0
        self._failure: str | None = None

    # ------------------------------------------------------------------ start and end

    @override
    def use_clock(self, clock: Clock) -> None:
        self._clock = clock

    @override
    def check(self, configs: Mapping[str, str]) -> None:
        parse(configs, is_reachable=False)

    @override
    def configure(self, configs: Mapping[str, str]) -> None:
        settings = parse(configs)
        self._settings = settings
        self._port = self._port_factory(settings)
        self._retry_ms = settings.initialization_retry_interval_ms
        self._give_up_at_ms = self._clock.monotonic_ms() + settings.initialization_retry_max_ms
        if self._threaded:
            spawn_thread("rlmm-topic", self._run)
        else:
            self._stopped.set()

    def turn(self) -> None:
        """Look for the topic, or turn the engine once."""
        if self._failure is not None:
            return
        if self._engine is None:
            self._connect()
        else:
            self._engine.turn()
        if self._port is not None and self._port.failure is not None:
            self._fail(f"its producer has failed permanently: {self._port.failure}")
        damage = None if self._store is None else self._store.failure
        if damage is not None:  # found by any thread
            self._fail(f"its cache is damaged, and is read again from the topic: {damage}")

    @override
    def close(self) -> None:
        self._stop.set()
        self._stopped.wait(_JOIN_SECONDS)
        self._fail("closed")
        if self._port is not None:
            self._port.close()
        if self._store is not None:
            self._store.close()

    # ------------------------------------------------------------------ roles and writes

    @override
    def own(
        self,
        partition: TopicIdPartition,
        fence: Fence,
        metadata_offset: int = -1,
        unclean_epoch: int = -1,
    ) -> "Future[None]":
        role = Role(
            partition, fence, running_future(), metadata_offset, unclean_epoch=unclean_epoch
        )
        return self._take_role(role)

    @override
    def carry(self, partition: TopicIdPartition, fence: Fence, log_start: int) -> None:
        if self._engine is not None:
            self._engine.carry(partition, fence, log_start)

    @override
    def follow(self, partition: TopicIdPartition) -> "Future[None]":
        return self._take_role(Role(partition, None, running_future()))

    @override
    def catch_up(self, partition: TopicIdPartition) -> "Future[None]":
        engine = self._engine
        if self._failure is None and engine is not None:
            return engine.catch_up(partition)
        done = running_future()
        done.set_exception(MetadataNotReadyError(self._failure or "not connected yet"))
        return done

    @override
    def on_lost_records(self, listener: Callable[[TopicIdPartition], None]) -> None:
        with self._lock:
            self._on_lost_records.append(listener)
            if self._engine is not None:
                self._engine.on_lost_records(listener)

    @override
    def release(self, partition: TopicIdPartition) -> None:
        with self._lock:
            former = None if self._failure else self._asked.release(partition)
        if former is not None:
            former.done.set_exception(MetadataNotReadyError(f"released: {partition}"))

    @override
    def lead(self, metadata_partitions: Iterable[int] | None) -> None:
        with self._lock:
            self._led = None if metadata_partitions is None else set(metadata_partitions)
            if self._engine is not None:
                self._engine.lead(self._led_numbers(self._engine))

    @override
    def is_ready(self, partition: TopicIdPartition) -> bool:
        engine = self._engine
        return self._failure is None and engine is not None and engine.lookups.is_ready(partition)

    @override
    def add(
        self, metadata: RemoteLogSegmentMetadata, fence: Fence, metadata_offset: int
    ) -> "Future[None]":
        return self._write(SegmentAdded(metadata, Stamp(fence, metadata_offset)))

    @override
    def update(self, update: SegmentUpdate, fence: Fence, metadata_offset: int) -> "Future[None]":
        if update.custom_metadata is None:
            # Kafka's readers drop a value that an update does not repeat
            with suppress(MetadataNotReadyError):
                known = self.segment(update.id)
                if known is not None:
                    update = replace(update, custom_metadata=known.custom_metadata)
        return self._write(SegmentUpdated(update, Stamp(fence, metadata_offset)))

    @override
    def put_partition_delete(
        self, partition: TopicIdPartition, state: PartitionDeleteState
    ) -> "Future[None]":
        assert self._settings is not None, "configure comes first"
        now_ms = self._clock.wall_ms()
        stamp = Stamp(REMOVER_FENCE)
        return self._write(
            PartitionDeleted(partition, state, now_ms, self._settings.node_id, stamp)
        )

    # ------------------------------------------------------------------ look-ups

    @override
    def segment(self, id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        entry = self._entry(id)
        return None if entry is None else entry.metadata

    @override
    def segment_for(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        with self._lookups().view(partition) as view:
            return view.segment_for(epoch, offset)

    @override
    def next_segment(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        with self._lookups().view(partition) as view:
            return view.next_segment(epoch, offset)

    @override
    def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        with self._lookups().view(partition) as view:
            return view.highest_offset_for_epoch(epoch)

    @override
    def list_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        with self._lookups().view(partition) as view:
            return iter(view.segments(epoch))

    def aborting_segments(
        self, partition: TopicIdPartition, offset: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """The lock is held for a few at a time."""
        after: tuple[int, bytes] | None = None
        while True:
            with self._lookups().view(partition) as view:
                some = view.aborting_segments(offset, after, ABORTING_SEGMENTS_MAX)
            yield from some
            if len(some) < ABORTING_SEGMENTS_MAX:
                return
            after = some[-1].start_offset, some[-1].id.id

    @override
    def finished_order(self, id: RemoteLogSegmentId) -> int | None:
        entry = self._entry(id)
        return None if entry is None else entry.finished_order

    @override
    def started_seen_ms(self, id: RemoteLogSegmentId) -> int | None:
        entry = self._entry(id)
        return None if entry is None else entry.started_seen_ms

    @override
    def history(self, partition: TopicIdPartition) -> PartitionHistory | None:
        return self._lookups().history(partition)

    @override
    def led_partitions(self) -> list[PartitionDeletion]:
        return [] if self._engine is None else self._engine.lookups.led_partitions()

    @override
    def finished_partitions(self, topic_ids: frozenset[bytes]) -> list[PartitionDeletion]:
        engine = self._engine
        return [] if engine is None else engine.lookups.finished_partitions(topic_ids)

    @override
    def unreadable(self) -> tuple[HealthText, ...]:
        now_ms, engine = self._clock.monotonic_ms(), self._engine
        reasons = () if engine is None else engine.lookups.unreadable(now_ms)
        refused = HEALTHY if self._port is None else self._port.refused()
        return (refused, *reasons) if refused else reasons

    @override
    def leads_all(self) -> bool:
        return self._engine is not None and self._engine.lookups.leads_all()

    @override
    def deletion(self, partition: TopicIdPartition) -> PartitionDeletion | None:
        return self._lookups().deletion(partition)

    @override
    def counts(self) -> dict[str, int]:
        engine = self._engine
        if engine is None:
            return {}
        counts = engine.counts
        refused = {f"refused {verdict.value}": n for verdict, n in counts.refused.items()}
        skipped = {f"skipped {reason}": n for reason, n in counts.skipped.items()}
        return {"read": counts.read, **refused, **skipped}

    @override
    def failure(self) -> str | None:
        return self._failure

    # ------------------------------------------------------------------ inside

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and self._failure is None:
                if self._engine is None:
                    self._stop.wait(self._retry_ms / 1_000)
                self.turn()
        except Exception as e:  # a loop's top: log it and end
            # RocksDB's errors are of no subclass.
            if isinstance(e, OSError | TidemarkError) or type(e) is Exception:
                log.error(Incident.METADATA_MANAGER_ENDS.line(error=e))  # noqa: TRY400 - no defect
            else:
                log.exception(Incident.DEFECT.line(what="metadata manager ends"))
            self._fail(f"{type(e).__name__}: {e}")
        finally:
            self._stopped.set()

    def _connect(self) -> None:
        assert self._settings is not None
        assert self._port is not None
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_poll_ms:
            return
        try:
            partition_count = self._port.connect()
        except TopicUnavailableError as e:
            if now_ms >= self._give_up_at_ms:
                log.error(Incident.METADATA_TOPIC_AWAY.line(error=e))  # noqa: TRY400
                self._fail(f"the metadata topic stays away: {e}")
            self._next_poll_ms = now_ms + self._retry_ms
            self._retry_ms = min(max(1, self._retry_ms * 2), _RETRY_MAX_MS)
            return
        store = self._store_factory(self._settings, partition_count)
        engine = MetadataEngine(
            self._port, store, partition_count, self._settings, self._clock, self._rng
        )
        log.info("metadata topic is there: partitions=%d", partition_count)
        with self._lock:
            self._store, self._engine = store, engine
            for role in self._asked.drop():
                engine.asked.ask(role)
            self._asked = engine.asked
            engine.lead(self._led_numbers(engine))
            for listener in self._on_lost_records:
                engine.on_lost_records(listener)

    def _led_numbers(self, engine: MetadataEngine) -> Iterable[int]:
        return range(engine.partition_count) if self._led is None else self._led

    def _take_role(self, role: Role) -> "Future[None]":
        with self._lock:
            failure = self._failure
            former = self._asked.ask(role) if failure is None else None
        if former is not None:
            former.done.set_exception(MetadataNotReadyError(f"superseded: {role.partition}"))
        if failure is not None:
            role.done.set_exception(MetadataError(failure))
        return role.done

    def _write(self, event: MetadataEvent) -> "Future[None]":
        if self._failure is not None or self._engine is None:
            done = running_future()
            done.set_exception(MetadataNotReadyError(self._failure or "not connected yet"))
            return done
        return self._engine.write(event)

    def _lookups(self) -> Lookups:
        if self._failure is not None or self._engine is None:
            raise MetadataNotReadyError(self._failure or "not connected yet")
        return self._engine.lookups

    def _entry(self, id: RemoteLogSegmentId) -> SegmentEntry | None:
        return self._lookups().entry(id)

    def _fail(self, reason: str) -> None:
        with self._lock:
            self._failure = self._failure or reason
            asked = self._asked.drop()
        error = MetadataError(f"the metadata manager has ended: {reason}")
        for role in asked:
            role.done.set_exception(error)
        if self._engine is not None:
            self._engine.abandon(error)
