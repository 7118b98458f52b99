"""The first remote record at or after a timestamp, for ListOffsets.

The search visits the segments on the epoch chain whose largest timestamp is high enough, in offset
order. In a segment it begins at the position from the time index, and takes the first batch whose
largest timestamp is high enough. In that batch it takes the first such record. Belongs to the
owner's thread, except for decoding the one batch.
"""

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.records.walk import glimpse_records
from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlm.link.endpoint import Reply
from rlm.link.messages import OffsetForTimestamp, TimestampAnswer
from rlm.read.chunk import Chunk
from rlm.read.leases import Caches
from rlm.read.loads import Wait
from rlm.read.reader import NO_END
from rlm.read.remote_store import RemoteStore
from rlm.workers import READER_POOL, Workers
from rlmm import lineage
from rlmm.api import MetadataNotReadyError
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from runtime.disk import Disk
from runtime.scheduler import Scheduler, Timer

Found = tuple[int, int, int]  # timestamp, offset, epoch


class TimestampSearches:
    """Serves `OffsetForTimestamp` messages."""

    def __init__(
        self,
        *,
        store: RemoteStore,
        caches: Caches,
        workers: Workers,
        disk: Disk,
        scheduler: Scheduler,
    ) -> None:
        self.store, self.readiness = store, store.readiness
        self.indexes, self.chunks, self.loads = caches.indexes, caches.chunks, caches.loads
        self.workers, self.disk, self.scheduler = workers, disk, scheduler

    def search(
        self, partition: TopicIdPartition, question: OffsetForTimestamp, reply: Reply
    ) -> None:
        """Answer now, when the missing parts have arrived, or at the deadline."""
        _OneSearch(self, partition, question, reply).begin()


class _OneSearch:
    def __init__(
        self,
        owner: TimestampSearches,
        partition: TopicIdPartition,
        question: OffsetForTimestamp,
        reply: Reply,
    ) -> None:
        self._owner, self._partition = owner, partition
        self._question, self._reply = question, reply
        self._chain = [EpochEntry(epoch, start) for epoch, start in question.chain]
        self._from = question.log_start_offset
        self._waits_for: Wait | None = None
        self._key: tuple[object, ...] | None = None  # of what was last asked for
        # Bytes of a segment without a match: not needed again.
        self._passed: tuple[bytes, int] = (b"", 0)
        self._done = False
        self._decoding = False
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Try, with a timer that ends the search."""
        wait_ms = self._question.wait_ms
        self._timer = self._owner.scheduler.call_later(wait_ms, self.time_is_up)
        self.attempt()

    def attempt(self) -> None:
        """Try from the present position of the search."""
        if self._done or self._decoding:
            return
        try:
            self._search()
        except MetadataNotReadyError:
            self._owner.readiness.wait(self._place, self.attempt)

    def _search(self) -> None:
        while not self._is_over():
            candidate = self._candidate()
            if candidate is None:
                self._answer(-1, -1, -1)
                return
            metadata, part = candidate
            waits_for = self._segment(metadata, part)
            if waits_for is Wait.DAMAGED:
                self._fail(ErrorCode.CORRUPT_MESSAGE, "remote bytes are damaged")
                return
            if waits_for is not None:
                self._waits_for = waits_for
                return

    def _is_over(self) -> bool:
        """True if it is answered, or a pool thread decodes."""
        return self._done or self._decoding

    def _candidate(self) -> tuple[RemoteLogSegmentMetadata, lineage.Span] | None:
        """The first part of a segment on the chain, from the present position, that may hold it."""
        store = self._owner.store
        if not store.is_readable(self._partition):
            raise MetadataNotReadyError("not caught up")
        best: tuple[RemoteLogSegmentMetadata, lineage.Span] | None = None
        for segment in store.metadata.list_segments(self._partition):
            if (
                segment.state is not SegmentState.COPY_SEGMENT_FINISHED
                or segment.end_offset < self._from
                or segment.max_timestamp_ms < self._question.timestamp_ms
            ):
                continue
            for part in lineage.parts_on_chain(segment, self._chain, NO_END):
                if part.last >= self._from:
                    if best is None or part.first < best[1].first:
                        best = (segment, part)
                    break
        return best

    def _segment(self, metadata: RemoteLogSegmentMetadata, part: lineage.Span) -> Wait | None:
        """Continue within one segment; None when the search moved on."""
        owner, question = self._owner, self._question
        self._key = ("index", metadata.id.id)
        index = owner.indexes.get(metadata, self.attempt)
        if isinstance(index, Wait):
            return index
        start = max(self._from, part.first, index.offset_for_timestamp(question.timestamp_ms))
        begin = position = index.position_for(start)
        if self._passed[0] == metadata.id.id:
            position = max(position, self._passed[1])
        while position < metadata.segment_size_bytes:
            key = owner.chunks.key_at(metadata, index, position, small=position == begin)
            self._key = ("chunk", *key)
            chunk = owner.chunks.get(metadata, index, key, self.attempt)
            if isinstance(chunk, Wait):
                return chunk
            owner.chunks.enter(metadata, chunk)
            slot = self._slot(chunk, start)
            if slot is not None:
                if chunk.table.last_offsets[slot] > part.last:
                    break
                self._decode(chunk, slot, part)
                return None
            position = chunk.end
            self._passed = (metadata.id.id, position)
        self._from = part.last + 1
        return None

    def _slot(self, chunk: Chunk, start: int) -> int | None:
        table = chunk.table
        for slot, (last, latest) in enumerate(
            zip(table.last_offsets, table.max_timestamps, strict=True)
        ):
            if last >= start and latest >= self._question.timestamp_ms:
                return slot
        return None

    def _decode(self, chunk: Chunk, slot: int, part: lineage.Span) -> None:
        """Look for the record inside the batch, in a pool: it may be compressed."""
        owner, question, table = self._owner, self._question, chunk.table
        position = table.positions[slot]
        size = table.positions[slot + 1] - position
        data = owner.disk.read_at(chunk.file, position, size)
        last, first = table.last_offsets[slot], max(self._from, part.first)
        self._decoding = True

        def decode() -> Found | None:
            for record in glimpse_records(data):
                if record.timestamp >= question.timestamp_ms and record.offset >= first:
                    return record.timestamp, record.offset, part.epoch
            return None

        def done(found: Found | None, error: BaseException | None) -> None:
            self._decoding = False
            if isinstance(error, KafkaError):
                self._fail(error.code, str(error))
            elif error is not None:
                self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            elif found is not None:
                self._answer(*found)
            else:
                self._from = last + 1
                self.attempt()

        owner.workers.run(READER_POOL, decode, done)

    @property
    def _place(self) -> tuple[bytes, int]:
        return self._partition.topic_id, self._partition.partition

    def _end(self) -> None:
        """End the search and leave all queues."""
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
        self._owner.readiness.leave(self._place, self.attempt)
        if self._key is not None:
            self._owner.loads.leave(self._key, self.attempt)

    def _names(self) -> tuple[bytes, int, int]:
        return self._question.topic_id, self._question.partition, self._question.leader_epoch

    def _answer(self, timestamp_ms: int, offset: int, epoch: int) -> None:
        if not self._done:
            self._end()
            self._reply(
                TimestampAnswer(
                    *self._names(), timestamp_ms=timestamp_ms, offset=offset, offset_epoch=epoch
                )
            )

    def _fail(self, code: ErrorCode, message: str) -> None:
        if not self._done:
            self._end()
            self._reply(TimestampAnswer(*self._names(), error=int(code), message=message))

    def time_is_up(self) -> None:
        """Answer at the deadline."""
        if self._waits_for is Wait.FAILING:
            self._fail(ErrorCode.KAFKA_STORAGE_ERROR, "the remote store fails")
        else:
            self._fail(ErrorCode.REQUEST_TIMED_OUT, "the remote tier did not get there in time")
