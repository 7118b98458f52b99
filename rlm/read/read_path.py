"""The part of a tier that reads the store: caches, loads, read-ahead, quota, readers.

Belongs to the owner's thread. Does not depend on copying or retention; the assigned partitions come
from the manager.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import structs

from kafka_protocol.errors import CorruptFileError, ErrorCode
from kafka_protocol.files import epoch_checkpoint, producer_snapshot
from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlm.catch_ups import CatchUps
from rlm.config import TierConfig
from rlm.link.endpoint import Reply
from rlm.link.messages import (
    AuxiliaryState,
    AuxiliaryStateAnswer,
    Failure,
    OffsetForTimestamp,
    PartitionHealth,
    Read,
    ReadAnswer,
    TimestampAnswer,
)
from rlm.plugins import Store
from rlm.quota import RateQuota
from rlm.read import disk_chunk_cache
from rlm.read.chunk_cache import ChunkCache
from rlm.read.chunk_loader import ChunkLoader
from rlm.read.disk_chunk_cache import DiskChunkCache
from rlm.read.disk_index_cache import DiskIndexCache
from rlm.read.fetch_queue import FetchQueue
from rlm.read.index_cache import IndexCache
from rlm.read.leases import Caches, Leases
from rlm.read.loads import DAMAGE, Loads
from rlm.read.object_faults import ObjectFaults, index_name
from rlm.read.read_ahead import ReadAhead
from rlm.read.reader import RemoteReader
from rlm.read.remote_store import Partitions, Readiness, RemoteStore
from rlm.read.segment_index import DamagedIndexError
from rlm.read.timestamp_search import TimestampSearches
from rlm.workers import EXPIRATION_POOL, READER_POOL, Workers
from rlmm import lineage
from rlmm.api import MetadataError
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata, SegmentState
from runtime.disk import OpenFile
from runtime.health_reasons import HealthReason, HealthText
from runtime.ports import Ports

log = logging.getLogger(__name__)

_NOT_READY = Failure(int(ErrorCode.REPLICA_NOT_AVAILABLE), "not caught up so far")


def _not_available(question: Read, message: str) -> ReadAnswer:
    return ReadAnswer(
        question.topic_id,
        question.partition,
        question.leader_epoch,
        error=int(ErrorCode.REPLICA_NOT_AVAILABLE),
        message=message,
    )


def _logged(_: object, error: BaseException | None) -> None:
    """Log a failed job that has no waiter."""
    if error is not None:
        log.warning("tidying a cache failed: %s", error)


_OFFSET_END: Final = 2**63 - 1

READS_FAIL_MS: Final = 30_000
"""Health reports a failed read of the store for this time, unless a later read succeeds."""


class ReadPath:
    """Answers the broker's requests for remote data.

    Attributes:
        quota: Bytes per second that clients read.
    """

    def __init__(
        self,
        config: TierConfig,
        store: Store,
        workers: Workers,
        ports: Ports,
        partitions: Partitions,
        catch_ups: CatchUps,
    ) -> None:
        """Make all caches, empty except for index files of an earlier process."""
        clock, scheduler, disk = ports.clock, ports.scheduler, ports.disk
        self.faults = ObjectFaults(store.metadata.segment, lambda: store.calls.store_is_missing)
        seen = RemoteStore(
            metadata=store.metadata,
            storage=store.storage,
            calls=store.calls,
            telemetry=store.telemetry,
            faults=self.faults,
            partitions=partitions,
            readiness=Readiness(scheduler),
        )
        self._store, self._workers = seen, workers
        self._clock, self._scheduler = clock, scheduler
        self.loads = Loads(
            workers, clock, scheduler, config.reader_threads + config.reader_pending_max
        )
        self._index_files = DiskIndexCache(
            disk,
            Path(config.cache_dir),
            config.index_cache_bytes,
            clock,
            config.index_cache_ttl_ms,
        )
        self.indexes = IndexCache(
            store=seen, files=self._index_files, loads=self.loads, config=config, clock=clock
        )
        directory = Path(config.chunk_cache_dir or config.cache_dir) / disk_chunk_cache.DIRECTORY
        self.on_disk = DiskChunkCache(
            disk, directory, config.chunk_cache_disk_bytes, config.chunk_cache_policy
        )
        workers.run(EXPIRATION_POOL, self.on_disk.open, _logged)
        self.chunks = ChunkCache(
            store=seen,
            loader=ChunkLoader(
                store=seen, on_disk=self.on_disk, config=config, disk=disk, clock=clock
            ),
            loads=self.loads,
            indexes=self.indexes,
            config=config,
            disk=disk,
        )
        self.leases = Leases(self.chunks, config.chunk_cache_bytes, scheduler)
        caches = Caches(self.indexes, self.chunks, self.loads, self.leases)
        self._ahead = ReadAhead(seen.metadata, caches, clock, config.chunk_bytes)
        self.quota = RateQuota(
            config.fetch_bytes_per_second,
            config.fetch_quota_window_count,
            config.fetch_quota_window_seconds,
        )
        self._fetch_queue = FetchQueue(self.quota, clock, scheduler)
        self._reader = RemoteReader(
            store=seen,
            caches=caches,
            ahead=self._ahead,
            fetch_queue=self._fetch_queue,
            clock=clock,
            scheduler=scheduler,
        )
        self._catch_ups = catch_ups
        self._searches = TimestampSearches(
            store=seen,
            caches=caches,
            workers=workers,
            disk=disk,
            scheduler=scheduler,
        )
        self._stopped, self._auxiliary_jobs = False, 0
        self._failed_reads = self._reads_failed_ms = 0
        self._watch_metrics()

    # -- questions

    def read(self, question: Read, reply: Reply) -> None:
        """Answer with batches from an offset on."""
        clock = self._clock
        began_ms = clock.monotonic_ms()

        def timed(answer: ReadAnswer, files: Sequence[OpenFile] = ()) -> None:
            self._store.telemetry.read_took(clock.monotonic_ms() - began_ms)
            reply(answer, files)

        tip = self._store.partitions.tip_of(question.topic_id, question.partition)
        if tip is None:
            reply(_not_available(question, "not assigned to the tier"))
        elif question.at_follower:
            self._read_at_follower(tip, question, timed)
        else:
            self._reader.read(tip, question, timed)

    def _read_at_follower(self, tip: TopicIdPartition, question: Read, reply: Reply) -> None:
        """Read after the metadata topic is read to its present end; no thread waits for that."""
        ends_at_ms = self._clock.monotonic_ms() + question.wait_ms
        why = "remote metadata is not caught up"

        def late() -> None:
            self._catch_ups.leave(tip, read)
            reply(_not_available(question, why))

        def read(error: BaseException | None) -> None:
            nonlocal why
            if error is not None:
                # An answer at once would make the consumer repeat its request at once, here or at
                # the leader.
                why = f"{why}: {error}"
                return
            timer.cancel()
            if self._stopped:
                reply(_not_available(question, why))
                return
            left_ms = max(0, ends_at_ms - self._clock.monotonic_ms())
            self._reader.read(tip, structs.replace(question, wait_ms=left_ms), reply)

        timer = self._scheduler.call_later(question.wait_ms, late)
        self._catch_ups.join(tip, read)

    def may_be_readable(self, tip: TopicIdPartition) -> None:
        """Call waiters of a partition: its segments became known, or were validated."""
        self._store.readiness.may_be_readable((tip.topic_id, tip.partition))

    def search(self, question: OffsetForTimestamp, reply: Reply) -> None:
        """Answer with the first record at or after a timestamp."""
        tip = self._store.partitions.tip_of(question.topic_id, question.partition)
        if tip is None:
            code = int(ErrorCode.REPLICA_NOT_AVAILABLE)
            names = (question.topic_id, question.partition, question.leader_epoch)
            reply(TimestampAnswer(*names, error=code, message="not assigned to the tier"))
            return
        self._searches.search(tip, question, reply)

    def auxiliary(self, question: AuxiliaryState, reply: Reply) -> None:
        """Answer with the epoch chain and the producer snapshot for a follower."""
        tip = self._store.partitions.tip_of(question.topic_id, question.partition)
        if tip is None or self._stopped:
            reply(_NOT_READY)
            return

        def late() -> None:
            self._catch_ups.leave(tip, read)
            reply(_NOT_READY)

        def read(error: BaseException | None) -> None:
            timer.cancel()
            self._auxiliary_read(tip, question, reply, error)

        # A follower builds on the answer, so an earlier read of the topic is too old. No thread
        # waits: many followers ask while a part of the topic has no leader.
        timer = self._scheduler.call_later(question.wait_ms, late)
        self._catch_ups.join(tip, read)

    def _auxiliary_read(
        self,
        tip: TopicIdPartition,
        question: AuxiliaryState,
        reply: Reply,
        error: BaseException | None,
    ) -> None:
        """The records that the metadata topic held at the request are read, or reading failed."""
        if error is not None or self._stopped:
            reply(_NOT_READY)
            return

        def job() -> AuxiliaryStateAnswer | Failure:
            try:
                metadata = self._segment_to_begin_behind(tip, question)
            except MetadataError:
                return _NOT_READY
            if metadata is None:
                return Failure(
                    int(ErrorCode.REPLICA_NOT_AVAILABLE),
                    f"no copied segment that ends on the leader's chain holds offset "
                    f"{question.offset} of epoch {question.epoch}",
                )
            try:
                epochs = self._parsed(metadata, IndexType.LEADER_EPOCH, epoch_checkpoint.parse)
                snapshot = self._parsed(
                    metadata, IndexType.PRODUCER_SNAPSHOT, producer_snapshot.check
                )
            except DAMAGE as error:
                return Failure(int(ErrorCode.CORRUPT_MESSAGE), str(error))
            except RemoteStorageError as error:
                return Failure(int(ErrorCode.KAFKA_STORAGE_ERROR), str(error))
            return AuxiliaryStateAnswer(
                question.topic_id,
                question.partition,
                question.leader_epoch,
                chain=[
                    (entry.epoch, entry.start_offset) for entry in epoch_checkpoint.parse(epochs)
                ],
                producer_snapshot=snapshot,
                end_offset=metadata.end_offset + 1,
            )

        def done(
            answer: AuxiliaryStateAnswer | Failure | None, error: BaseException | None
        ) -> None:
            self._auxiliary_jobs -= 1
            reply(answer if answer is not None else Failure(-1, str(error)))

        self._auxiliary_jobs += 1
        self._workers.run(READER_POOL, job, done)

    def _segment_to_begin_behind(
        self, tip: TopicIdPartition, question: AuxiliaryState
    ) -> RemoteLogSegmentMetadata | None:
        """The segment that a follower begins after; of several the one that was finished first."""
        metadata = self._store.metadata
        first = metadata.segment_for(tip, question.epoch, question.offset)
        chain = [(question.epoch, question.offset), *question.above]
        spans = lineage.chain_spans([EpochEntry(*entry) for entry in chain], _OFFSET_END)
        own = {span.epoch: span for span in spans}
        if first is None or lineage.ends_on(first, own):
            return first
        others = [
            segment
            for segment in metadata.list_segments(tip, question.epoch)
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED
            and lineage.holds(segment, question.epoch, question.offset)
            and lineage.ends_on(segment, own)
        ]
        return min(others, key=lambda one: metadata.finished_order(one.id) or 0, default=None)

    def _parsed(
        self,
        metadata: RemoteLogSegmentMetadata,
        kind: IndexType,
        parse: Callable[[bytes], object],
    ) -> bytes:
        """The bytes of an index, checked by `parse`; fetched a second time if they are damaged.

        Raises:
            RemoteObjectDamagedError, DamagedIndexError: Damaged the second time, too.
            RemoteStorageError: The store failed, or the index is missing.
        """
        try:
            return self._parsed_once(metadata, kind, parse)
        except DAMAGE:
            try:
                return self._parsed_once(metadata, kind, parse)
            except DAMAGE as error:
                self.faults.failed(metadata, index_name(kind), error)
                raise

    def _parsed_once(
        self,
        metadata: RemoteLogSegmentMetadata,
        kind: IndexType,
        parse: Callable[[bytes], object],
    ) -> bytes:
        data = self.indexes.raw_uncached(metadata, kind)
        try:
            parse(data)
        except CorruptFileError as error:
            raise DamagedIndexError(f"{index_name(kind)}: {error}") from error
        self.faults.read_well(metadata, index_name(kind))
        return data

    # -- periodic work

    def reconfigure(self, config: TierConfig) -> None:
        """Use the limits of `config` from now on."""
        self.loads.set_bound(config.reader_threads + config.reader_pending_max)
        self.quota.set_limit(config.fetch_bytes_per_second)
        self._fetch_queue.proceed()
        bound = config.index_cache_bytes
        self._workers.run(EXPIRATION_POOL, lambda: self._index_files.set_bound(bound), _logged)

    def stop(self) -> None:
        """Begin no further load; running ones end by themselves."""
        self._stopped = True
        self.loads.set_bound(0)

    def unhealthy(self) -> list[PartitionHealth]:
        """Health reasons: a store that fails reads, objects missing or damaged, caches off."""
        unhealthy = self.faults.unhealthy()
        unhealthy.extend(PartitionHealth(b"", -1, each) for each in self._failing_reads())
        for what, failure in (
            ("chunk cache", self.on_disk.failure),
            ("index cache", self._index_files.failure),
        ):
            if failure is not None:
                off = HealthReason.CACHE_OFF.text(cache=what, error=failure)
                unhealthy.append(PartitionHealth(b"", -1, off))
        return unhealthy

    def _failing_reads(self) -> list[HealthText]:
        """Called at each report: a changed number of failures means that a read has just failed."""
        outage, now_ms = self._store.telemetry.fetch_outage, self._clock.monotonic_ms()
        failed, reason = outage.failed_attempts, outage.reason
        if failed != self._failed_reads:
            self._failed_reads, self._reads_failed_ms = failed, now_ms
        if not failed or now_ms - self._reads_failed_ms >= READS_FAIL_MS:
            return []
        return [HealthReason.READS.text(count=failed, error=reason)]

    @property
    def is_idle(self) -> bool:
        """True if no read of the store runs, except calls that hang."""
        return not self.loads.in_flight and not self._auxiliary_jobs

    def watch(self, call_max_ms: int) -> None:
        """Abandon loads that hang, and forget silent readers."""
        self.loads.give_up_hanging(call_max_ms)
        self._ahead.forget_silent()

    def expire_indexes(self) -> None:
        """Drop indexes, in memory and on disk, that were not used for `index_cache_ttl_ms`."""
        self.indexes.expire()
        self._workers.run(EXPIRATION_POOL, self._index_files.expire, _logged)

    def _watch_metrics(self) -> None:
        gauge, workers = self._store.telemetry.gauge, self._workers
        gauge(
            "kafka_log_remote_RemoteStorageThreadPool_RemoteLogReaderTaskQueueSize",
            "Reads of the remote store that wait for a thread",
            lambda: float(workers.queued(READER_POOL)),
        )
        gauge(
            "kafka_log_remote_RemoteStorageThreadPool_RemoteLogReaderAvgIdlePercent",
            "Idle part of the reader threads in the last minute, 0 to 1",
            lambda: workers.idle_share(READER_POOL),
        )
        gauge(
            "tidemark_remote_throttled_reads",
            "Reads of the remote store that wait for the fetch quota",
            lambda: float(len(self._fetch_queue)),
        )
        gauge(
            "tidemark_remote_chunk_cache_bytes",
            "Bytes of chunks in memory, handed-out ones included",
            lambda: float(self.chunks.total_bytes),
        )
        gauge(
            "tidemark_remote_chunk_cache_leased_bytes",
            "Bytes of chunks in memory that are leased to connections, which have not taken them "
            "yet",
            lambda: float(self.chunks.held_bytes),
        )
        gauge(
            "tidemark_remote_chunk_cache_copied_bytes",
            "Bytes beside the chunk cache, copied for connections when no more of it may be leased",
            lambda: float(self.leases.copied_bytes),
        )
        gauge(
            "tidemark_remote_chunk_cache_holders",
            "Connections that chunks are leased to",
            lambda: float(len(self.leases)),
        )
        gauge(
            "tidemark_remote_reads_waiting_for_room",
            "Reads that wait until a load more may begin",
            lambda: float(self.loads.waiting_for_memory),
        )
        gauge(
            "tidemark_remote_chunk_cache_disk_bytes",
            "Bytes of chunks on disk",
            lambda: float(self.on_disk.total_bytes),
        )
        gauge(
            "tidemark_remote_object_faults",
            "Remote objects found missing or damaged although their segment is finished",
            lambda: float(len(self.faults)),
        )
        gauge(
            "tidemark_remote_read_ahead_depth",
            "Chunks that are loaded ahead of the reader with the most",
            lambda: float(self._ahead.readers.deepest()),
        )
        gauge(
            "tidemark_remote_read_ahead_readers",
            "Readers of the remote tier that continue",
            lambda: float(self._ahead.readers.active),
        )
