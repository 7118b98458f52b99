"""Reads of the remote tier for clients: look up, wait for missing parts, answer by the deadline.

It belongs to the owner's thread. Only loads of indexes and chunks run in the reader pool. So a
cached read costs no thread switch, and a slow store holds no thread per waiting client. A read
tries again when a part that it waited for arrives. It uses a timer only if time alone can help (a
quota, a store that fails). The answer at the deadline depends on the missing part
(docs/tiering.md §6).
"""

import logging
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from weakref import WeakSet

from kafka_protocol.errors import ErrorCode
from kafka_protocol.files import txn_index
from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlm.link.endpoint import Reply
from rlm.link.messages import Read, ReadAnswer, Region
from rlm.read.chunk import Chunk, Selection, select
from rlm.read.chunk_cache import ChunkCache
from rlm.read.fetch_queue import FetchQueue, QueuedRead
from rlm.read.leases import COPY_BYTES_MAX, Caches, Verdict
from rlm.read.loads import Wait
from rlm.read.read_ahead import Answered, ReadAhead
from rlm.read.remote_store import RemoteStore
from rlm.read.segment_index import SegmentIndex
from rlmm import lineage
from rlmm.api import MetadataNotReadyError
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.disk import OpenFile
from runtime.incidents import Incident
from runtime.scheduler import Scheduler, Timer

log = logging.getLogger(__name__)

REGIONS_MAX = 16
READ_AHEAD_BATCHES_MAX = 2_000

SHARE_WAIT_MS = 25
"""Time that a read waits for a release by its connection. The other partitions of its Fetch wait
with it, and the held chunks may be their own answers."""

NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one chunk in an answer."""

    chunk: Chunk
    selection: Selection


@dataclass(frozen=True, slots=True)
class Found:
    """The place in a segment where an answer begins."""

    metadata: RemoteLogSegmentMetadata
    index: SegmentIndex
    chunk: Chunk
    offset: int


def gather(
    chunks: ChunkCache, found: Found, question: Read, *, free_bytes: int, ahead_bytes: int
) -> list[Piece]:
    """Batches of the first chunk and of the cached ones after it, within the bounds.

    Args:
        chunks: The cache.
        found: Where to begin.
        question: Has the bound in bytes, and the end of its epoch.
        free_bytes: Bytes of further chunks that may be leased.
        ahead_bytes: Bytes beyond the request's bound that may be added.
    """
    pieces, batches = list[Piece](), 0
    chunk, left = found.chunk, question.max_bytes + ahead_bytes
    while len(pieces) < REGIONS_MAX:
        picked = select(
            chunk.table,
            found.offset,
            question.epoch_end,
            left,
            min_one_batch=question.min_one_batch and not pieces,
        )
        if picked is None:
            break
        pieces.append(Piece(chunk, picked))
        left -= picked.size_bytes
        batches += picked.end_batch - picked.first_batch
        if ahead_bytes and batches > READ_AHEAD_BATCHES_MAX:
            return gather(chunks, found, question, free_bytes=free_bytes, ahead_bytes=0)
        if picked.position + picked.size_bytes < chunk.size_bytes:
            break
        if chunk.end == found.metadata.segment_size_bytes:
            break
        following = chunks.peek(found.metadata, found.index, chunk.end)
        if following is None or following.size_bytes > free_bytes:
            break
        free_bytes -= following.size_bytes
        chunk = following
    return pieces


def batch_table(pieces: Sequence[Piece]) -> tuple[bytes, bytes]:
    """Ends, counted over all pieces, and last offsets of the batches, as in `ReadAnswer`."""
    ends, last_offsets, base = array("q"), array("q"), 0
    for piece in pieces:
        table, picked = piece.chunk.table, piece.selection
        shift = base - picked.position
        first, end = picked.first_batch, picked.end_batch
        ends.extend(position + shift for position in table.positions[first + 1 : end + 1])
        last_offsets += table.last_offsets[first:end]
        base += picked.size_bytes
    return ends.tobytes(), last_offsets.tobytes()


class NotReady(Enum):
    """Reasons to wait that no load ends."""

    METADATA = "metadata not ready"
    QUOTA = "fetch quota"
    SHARE = "the connection holds its share of the cache"
    COPY = "no memory for a copy"


class RemoteReader:
    """Serves `Read` messages."""

    def __init__(
        self,
        *,
        store: RemoteStore,
        caches: Caches,
        ahead: ReadAhead,
        fetch_queue: FetchQueue,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self.store, self.metadata = store, store.metadata
        self.indexes, self.chunks, self.loads = caches.indexes, caches.chunks, caches.loads
        self.leases, self.readiness = caches.leases, store.readiness
        self.ahead, self.fetch_queue, self.clock, self.scheduler = (
            ahead,
            fetch_queue,
            clock,
            scheduler,
        )
        self._told = WeakSet[BaseException]()

    def read(self, partition: TopicIdPartition, question: Read, reply: Reply) -> None:
        """Answer now, when the missing parts have arrived, or at the deadline."""
        _OneRead(self, partition, question, reply).attempt()

    def is_news(self, cause: BaseException | None) -> bool:
        """True if a failure has not been logged yet; it counts as logged from now on.

        One failure ends every read of its object until the object is fetched again. Remembered as
        long as `Loads` remembers it.
        """
        if cause is None or cause in self._told:
            return False
        self._told.add(cause)
        return True


class _OneRead:
    """One request until its answer."""

    def __init__(
        self, reader: RemoteReader, partition: TopicIdPartition, question: Read, reply: Reply
    ) -> None:
        self._reader, self._partition = reader, partition
        self._question, self._reply = question, reply
        self._ends_at_ms = reader.clock.monotonic_ms() + question.wait_ms
        self._sequence = reader.ahead.take(question)
        self._misses_since_ms: int | None = None
        self._waits_for: Wait | NotReady | None = None
        self._key: tuple[object, ...] | None = None
        self._queued: QueuedRead | None = None
        # Bytes of a segment before the offset: not needed again. In a small cache they may have
        # freed memory for the following ones.
        self._passed: tuple[bytes, int] = (b"", 0)
        self._done = False
        self._timer: Timer | None = None
        self._share_timed = False

    @property
    def _place(self) -> tuple[bytes, int]:
        return self._partition.topic_id, self._partition.partition

    # -- trying

    def attempt(self) -> None:
        """Try from the beginning."""
        if self._done:
            return
        try:
            self._waits_for = self._try()
        except MetadataNotReadyError:
            self._waits_for = self._await_metadata()
        if self._waits_for is None:
            return
        if self._waits_for is Wait.DAMAGED:
            self._corrupt()
        elif self._reader.clock.monotonic_ms() >= self._ends_at_ms:
            self._time_is_up()
        elif self._timer is None:
            wait_ms = self._question.wait_ms
            self._timer = self._reader.scheduler.call_later(wait_ms, self._time_is_up)

    def _await_metadata(self) -> NotReady:
        self._reader.readiness.wait(self._place, self.attempt)
        return NotReady.METADATA

    def _try(self) -> Wait | NotReady | None:
        """Answer if all parts are here (then None), else return the missing one."""
        reader, question = self._reader, self._question
        if not reader.store.is_readable(self._partition):
            return self._await_metadata()
        if self._queued is None:
            self._queued = QueuedRead(question.holder, question.max_bytes, self.attempt)
            reader.fetch_queue.ask(self._queued)
        if not self._queued.is_in:
            return NotReady.QUOTA
        offset = question.offset
        while offset < question.epoch_end:
            metadata = reader.metadata.segment_for(self._partition, question.offset_epoch, offset)
            if metadata is None:
                # The broker has checked the log start offset: a consumer must not reset and skip. A
                # follower's may be too low.
                code = ErrorCode.KAFKA_STORAGE_ERROR
                if question.at_follower:
                    code = ErrorCode.REPLICA_NOT_AVAILABLE
                self._fail(code, f"offset {offset} is in no segment")
                return None
            found = self._segment(metadata, offset)
            if isinstance(found, Wait):
                return found
            if found is not None:
                return self._answer_from(found)
            offset = metadata.end_offset + 1  # nothing left in this segment from here on
        self._answer([], question.epoch_end, [])
        return None

    def _segment(self, metadata: RemoteLogSegmentMetadata, offset: int) -> Found | Wait | None:
        """The chunk of a segment that holds `offset`; None if the segment ends before it."""
        reader = self._reader
        self._key = ("index", metadata.id.id)
        index = reader.indexes.get(metadata, self.attempt, self._question.holder)
        if isinstance(index, Wait):
            return index
        start = position = index.position_for(offset)
        if self._passed[0] == metadata.id.id:
            position = max(position, self._passed[1])
        while position < metadata.segment_size_bytes:
            # First read of this reader: it may want a single record, so fetch only a slice.
            small = not self._sequence.pace.streak and position == start
            key = reader.chunks.key_at(metadata, index, position, small=small)
            self._key = ("chunk", *key)
            chunk = reader.chunks.get(metadata, index, key, self.attempt, self._question.holder)
            if isinstance(chunk, Wait):
                if self._misses_since_ms is None:
                    self._misses_since_ms = reader.clock.monotonic_ms()
                    if self._sequence.pace.streak:
                        ahead = reader.ahead.load
                        ahead(self._partition, self._sequence, metadata, index, key[2])
                return chunk
            if chunk.last_offset >= offset:
                return Found(metadata, index, chunk, offset)
            position = chunk.end
            self._passed = (metadata.id.id, position)
        return None

    def _answer_from(self, found: Found) -> Wait | NotReady | None:
        """Answer with the cached batches from the place on, as far as they may be leased."""
        question = self._question
        verdict = self._reader.leases.verdict(question.holder, found.chunk)
        if verdict is Verdict.WAIT:
            return self._await_share()
        if verdict is Verdict.COPY:
            return self._answer_with_copy(found)
        ahead_bytes = self._read_ahead_bytes()
        pieces = self._pieces(found, ahead_bytes)
        aborted: list[tuple[int, int]] | Wait = []
        if question.read_committed and pieces:
            aborted = self._aborted(found.metadata, pieces[-1].selection.next_offset)
            if aborted and ahead_bytes and not isinstance(aborted, Wait):
                # Each answer must list its own transactions, so this one is not extended.
                ahead_bytes, pieces = 0, self._pieces(found, 0)
                if pieces:
                    aborted = self._aborted(found.metadata, pieces[-1].selection.next_offset)
        if isinstance(aborted, Wait):
            return aborted
        if pieces:
            next_offset = pieces[-1].selection.next_offset
            self._answer(pieces, next_offset, aborted, with_table=ahead_bytes > 0)
        else:
            self._answer([], self._next_offset(found), [])
        self._look_ahead(found, pieces)  # only now: it may evict chunks that were not leased
        return None

    def _next_offset(self, found: Found) -> int:
        """Offset to continue at.

        The next batch is of a later epoch, or larger than the answer may be.
        """
        slot = bisect_left(found.chunk.table.last_offsets, found.offset)
        is_later = found.chunk.table.last_offsets[slot] >= self._question.epoch_end
        return self._question.epoch_end if is_later else -1

    def _await_share(self) -> NotReady:
        """Wait for a release by the connection, which may itself wait for this answer."""
        reader = self._reader
        reader.leases.wait(self._question.holder, self.attempt)
        if not self._share_timed:
            self._share_timed = True
            reader.scheduler.call_later(SHARE_WAIT_MS, self._share_is_held)
        return NotReady.SHARE

    def _share_is_held(self) -> None:
        if self._waits_for is NotReady.SHARE:
            self._time_is_up()

    def _answer_with_copy(self, found: Found) -> Wait | NotReady | None:
        """Answer with a few batches outside the cache, which need no release there."""
        reader, question, table = self._reader, self._question, found.chunk.table
        picked = select(
            table,
            found.offset,
            question.epoch_end,
            question.max_bytes,
            min_one_batch=question.min_one_batch,
        )
        if picked is None:
            self._answer([], self._next_offset(found), [])
            return None
        if picked.size_bytes > COPY_BYTES_MAX:
            bounds = (found.offset, question.epoch_end, COPY_BYTES_MAX)
            picked = select(table, *bounds, min_one_batch=True)
            assert picked is not None, "it has one batch at least"
        aborted: list[tuple[int, int]] | Wait = []
        if question.read_committed:
            aborted = self._aborted(found.metadata, picked.next_offset)
        if isinstance(aborted, Wait):
            return aborted
        file = reader.chunks.copy_of(found.chunk, picked.position, picked.size_bytes)
        if file is None:
            return NotReady.COPY
        token = reader.leases.lease_copy(question.holder, picked.size_bytes)
        regions = [Region(0, token, 0, picked.size_bytes)]
        self._reply_with(regions, [file], picked.next_offset, aborted)
        self._look_ahead(found, [Piece(found.chunk, picked)])
        return None

    def _read_ahead_bytes(self) -> int:
        """Bytes by which the answer may exceed the request: a sequential reader needs them next."""
        question = self._question
        if not self._sequence.pace.streak or not question.read_ahead_bytes:
            return 0
        free_bytes = self._reader.leases.free_read_ahead_bytes(question.holder) - question.max_bytes
        return max(0, min(question.read_ahead_bytes, free_bytes))

    def _pieces(self, found: Found, ahead_bytes: int) -> list[Piece]:
        leases, holder = self._reader.leases, self._question.holder
        free_bytes = (
            leases.free_read_ahead_bytes(holder) if ahead_bytes else leases.free_bytes(holder)
        )
        free_bytes -= found.chunk.size_bytes
        return gather(
            self._reader.chunks,
            found,
            self._question,
            free_bytes=free_bytes,
            ahead_bytes=ahead_bytes,
        )

    def _look_ahead(self, found: Found, pieces: list[Piece]) -> None:
        reader, sequence = self._reader, self._sequence
        if not pieces:
            return
        for piece in pieces:
            if piece.chunk.token != sequence.token:
                waited = self._misses_since_ms is not None and piece is pieces[0]
                reader.chunks.enter(found.metadata, piece.chunk, waited=waited)
                sequence.token = piece.chunk.token
        waited_ms = 0
        if self._misses_since_ms is not None:
            waited_ms = reader.clock.monotonic_ms() - self._misses_since_ms
        reader.ahead.answered(
            Answered(
                self._partition,
                self._question,
                pieces[-1].selection.next_offset,
                sum(piece.selection.size_bytes for piece in pieces),
                waited_ms,
            ),
            sequence,
            found.metadata,
            found.index,
            pieces[-1].chunk.end,
        )

    def _aborted(
        self, metadata: RemoteLogSegmentMetadata, end: int
    ) -> list[tuple[int, int]] | Wait:
        """Transactions aborted from the requested offset to `end`, by later markers, too.

        Only markers on the requested epoch chain count: an abandoned lineage may have aborted
        transactions that this one has committed.
        """
        reader, start = self._reader, self._question.offset
        chain = [EpochEntry(*entry) for entry in self._question.chain]
        found = dict[tuple[int, int], None]()  # another copy of a segment repeats the entries
        for segment in reader.metadata.aborting_segments(self._partition, metadata.start_offset):
            parts = lineage.parts_on_chain(segment, chain, NO_END)
            if not parts:
                continue
            self._key = ("transactions", segment.id.id)
            data = reader.indexes.transactions(segment, self.attempt, self._question.holder)
            if isinstance(data, Wait):
                return data
            on_chain = (
                entry
                for entry in txn_index.iter_entries(data)
                if any(part.first <= entry.last_offset <= part.last for part in parts)
            )
            entries, over = txn_index.overlapping(on_chain, start, end)
            found |= dict.fromkeys((entry.producer_id, entry.first_offset) for entry in entries)
            if over:
                break
        return list(found)

    # -- answering

    def _answer(
        self,
        pieces: list[Piece],
        next_offset: int,
        aborted: list[tuple[int, int]],
        *,
        with_table: bool = False,
    ) -> None:
        if self._done:
            return
        leases, holder = self._reader.leases, self._question.holder
        files, regions = list[OpenFile](), list[Region]()
        for piece in pieces:
            selection, token = piece.selection, leases.lease(holder, piece.chunk)
            regions.append(Region(len(files), token, selection.position, selection.size_bytes))
            files.append(piece.chunk.file)
        table = batch_table(pieces) if with_table else (b"", b"")
        self._reply_with(regions, files, next_offset, aborted, table)

    def _reply_with(
        self,
        regions: list[Region],
        files: list[OpenFile],
        next_offset: int,
        aborted: list[tuple[int, int]],
        table: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        self._end(sum(region.size_bytes for region in regions))
        question = self._question
        self._reply(
            ReadAnswer(
                question.topic_id,
                question.partition,
                question.leader_epoch,
                regions=regions,
                next_offset=next_offset,
                aborted=aborted,
                batch_ends=table[0],
                last_offsets=table[1],
            ),
            files,
        )

    def _end(self, size_bytes: int) -> None:
        """End the read, answered with `size_bytes`, and leave all queues."""
        self._done = True
        if self._queued is not None:
            self._reader.fetch_queue.ended(self._queued, size_bytes)
        if self._timer is not None:
            self._timer.cancel()
        elif self._waits_for is None:
            return  # it never waited
        reader = self._reader
        reader.readiness.leave(self._place, self.attempt)
        reader.leases.leave(self._question.holder, self.attempt)
        if self._key is not None:
            reader.loads.leave(self._key, self.attempt)

    def _fail(self, code: ErrorCode, message: str) -> None:
        if self._done:
            return
        self._end(0)
        question = self._question
        self._reply(
            ReadAnswer(
                question.topic_id,
                question.partition,
                question.leader_epoch,
                error=int(code),
                message=message,
            )
        )

    def _corrupt(self) -> None:
        cause = self._reader.loads.failure(self._key)
        if self._reader.is_news(cause):
            log.error(
                Incident.REMOTE_BYTES.line(
                    partition=self._partition.topic_partition,
                    offset=self._question.offset,
                    cause=str(cause),
                )
            )
        self._reader.store.telemetry.corrupt(self._partition.topic)
        self._fail(ErrorCode.CORRUPT_MESSAGE, f"remote bytes are damaged: {cause}")

    def _time_is_up(self) -> None:
        if self._done:
            return
        match self._waits_for:
            case NotReady.METADATA:
                self._fail(ErrorCode.REPLICA_NOT_AVAILABLE, "remote metadata is not caught up")
            case Wait.FAILING:
                cause = self._reader.loads.failure(self._key)
                self._fail(ErrorCode.KAFKA_STORAGE_ERROR, f"the remote store fails: {cause}")
            case _:
                self._answer([], -1, [])
                self._reader.ahead.in_vain(self._question, self._sequence)
