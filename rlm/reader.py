"""Reads of the remote tier for clients: look up, wait for what is missing, answer by the deadline.

Belongs to the owner's thread; only loads of indexes and chunks run in the reader pool, so a cached
read costs no thread switch and a slow store holds no thread per waiting client. Each read tries
from the top whenever something it waited for has changed: metadata, index, chunk. What to answer
when time is up depends on what it was waiting for (docs/tiering.md, "Remote reads").
"""

import logging
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from kafka_protocol.errors import ErrorCode
from kafka_protocol.files import txn_index
from kafka_protocol.types import TopicIdPartition
from rlm.chunk import Chunk, Selection, select
from rlm.chunk_cache import ChunkCache
from rlm.index_cache import IndexCache
from rlm.link import Reply
from rlm.loads import Loads, Wait
from rlm.messages import Read, ReadAnswer, Region
from rlm.quota import RateQuota
from rlm.segment_index import SegmentIndex
from rlm.telemetry import Telemetry
from rlmm.api import MetadataNotReadyError, RemoteLogMetadataManager
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from runtime.clock import Clock
from runtime.disk import OpenFile
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)

NOT_READY_RETRY_MS = 25
REGIONS_MAX = 16
SEQUENCES_MAX = 4_096


class NotReady(Enum):
    """Reasons to wait that no load will end."""

    METADATA = "metadata not ready"
    QUOTA = "fetch quota"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one chunk that goes into an answer."""

    chunk: Chunk
    selection: Selection


class RemoteReader:
    """Serves `Read` messages."""

    def __init__(
        self,
        *,
        metadata: RemoteLogMetadataManager,
        indexes: IndexCache,
        chunks: ChunkCache,
        loads: Loads,
        quota: RateQuota,
        clock: Clock,
        scheduler: Scheduler,
        telemetry: Telemetry,
    ) -> None:
        self.metadata, self.indexes, self.chunks = metadata, indexes, chunks
        self.loads, self.quota = loads, quota
        self.clock, self.scheduler, self.telemetry = clock, scheduler, telemetry
        # Where a reader that goes on would ask next, and how many chunks ahead it has earned.
        self._sequences: OrderedDict[tuple[bytes, int, int], int] = OrderedDict()

    def read(self, partition: TopicIdPartition, question: Read, reply: Reply) -> None:
        """Answer now, or when what is missing has come, or at the deadline."""
        self.telemetry.read_asked(partition.topic)
        _OneRead(self, partition, question, reply).attempt()

    # -- read-ahead

    def streak(self, question: Read) -> int:
        """How many answers in a row led to this question; forgets it."""
        key = (question.topic_id, question.partition, question.offset)
        return self._sequences.pop(key, 0)

    def remember(self, question: Read, next_offset: int, streak: int) -> None:
        """A reader that goes on will ask for `next_offset`."""
        self._sequences[question.topic_id, question.partition, next_offset] = streak
        while len(self._sequences) > SEQUENCES_MAX:
            self._sequences.popitem(last=False)

    def read_ahead(
        self,
        partition: TopicIdPartition,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        number: int,
        depth: int,
    ) -> None:
        """Load up to `depth` chunks after `number`, across the segment's end."""
        for ahead in range(number + 1, number + 1 + depth):
            if ahead < index.chunk_count:
                self.chunks.prefetch(metadata, index, ahead)
                continue
            following = self.metadata.segment_for(
                partition, metadata.leader_epochs[-1].epoch, metadata.end_offset + 1
            )
            if following is not None and self.loads.has_room():
                next_index = self.indexes.get(following, _nobody)
                if isinstance(next_index, SegmentIndex):
                    self.chunks.prefetch(following, next_index, 0)
            return


class _OneRead:
    """One question on its way to its answer."""

    def __init__(
        self, reader: RemoteReader, partition: TopicIdPartition, question: Read, reply: Reply
    ) -> None:
        self._reader, self._partition = reader, partition
        self._question, self._reply = question, reply
        self._ends_at_ms = reader.clock.monotonic_ms() + question.wait_ms
        self._streak = reader.streak(question)
        self._waits_for: Wait | NotReady | None = None
        self._key: tuple[object, ...] | None = None
        self._done = False
        self._timed = False

    # -- trying

    def attempt(self) -> None:
        """Try from the top."""
        if self._done:
            return
        try:
            self._waits_for = self._try()
        except MetadataNotReadyError:
            self._again_in(NOT_READY_RETRY_MS)
            self._waits_for = NotReady.METADATA
        if self._waits_for is None:
            return
        if self._waits_for is Wait.DAMAGED:
            self._corrupt()
        elif self._reader.clock.monotonic_ms() >= self._ends_at_ms:
            self._time_is_up()
        elif not self._timed:
            self._timed = True
            self._reader.scheduler.call_later(self._question.wait_ms, self._time_is_up)

    def _again_in(self, delay_ms: float) -> None:
        self._reader.scheduler.call_later(delay_ms, self.attempt)

    def _try(self) -> Wait | NotReady | None:
        """Answer if everything is here (then None), else say what is missing."""
        reader, question = self._reader, self._question
        if not reader.metadata.is_ready(self._partition):
            self._again_in(NOT_READY_RETRY_MS)
            return NotReady.METADATA
        wait_ms = reader.quota.throttle_ms(0, reader.clock.monotonic_ms())
        if wait_ms > 0:
            self._again_in(wait_ms)
            return NotReady.QUOTA
        offset = question.offset
        while offset < question.epoch_end:
            metadata = reader.metadata.segment_for(self._partition, question.offset_epoch, offset)
            if metadata is None:
                self._fail(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is in no segment")
                return None
            pieces = self._segment(metadata, offset)
            if isinstance(pieces, Wait):
                return pieces
            if pieces is None:
                return None
            if pieces:
                return self._with_transactions(metadata, pieces)
            offset = metadata.end_offset + 1  # nothing left in this segment from here on
        self._answer([], question.epoch_end, [])
        return None

    def _segment(
        self, metadata: RemoteLogSegmentMetadata, offset: int
    ) -> list[Piece] | Wait | None:
        """What of one segment goes into the answer; as much as is here, the first must be.

        Returns:
            An empty list if the segment has nothing from `offset` on; None if it was answered here.
        """
        reader = self._reader
        self._key = ("index", metadata.id.id)
        index = reader.indexes.get(metadata, self.attempt)
        if isinstance(index, Wait):
            return index
        first = index.chunk_for(offset)
        while True:
            self._key = ("chunk", metadata.id.id, first)
            chunk = reader.chunks.get(metadata, index, first, self.attempt)
            if isinstance(chunk, Wait):
                return chunk
            if chunk.last_offset >= offset:
                break
            first += 1
            if first == index.chunk_count:
                return []
        pieces = self._pieces(metadata, index, first, chunk, offset)
        last = first + max(0, len(pieces) - 1)
        self._look_ahead(metadata, index, last, pieces)
        if pieces:
            return pieces
        # The next batch is of a later epoch, or larger than the answer may be.
        slot = bisect_left(chunk.table.last_offsets, offset)
        is_later = chunk.table.last_offsets[slot] >= self._question.epoch_end
        self._answer([], self._question.epoch_end if is_later else -1, [])
        return None

    def _pieces(
        self,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        number: int,
        first: Chunk,
        offset: int,
    ) -> list[Piece]:
        """Batches of `first` and of the chunks after it that are here, within the bound."""
        question, pieces = self._question, list[Piece]()
        chunk: Chunk | None = first
        left = question.max_bytes
        while chunk is not None and len(pieces) < REGIONS_MAX:
            picked = select(
                chunk.table,
                offset,
                question.epoch_end,
                left,
                min_one_batch=question.min_one_batch and not pieces,
            )
            if picked is None:
                break
            pieces.append(Piece(chunk, picked))
            left -= picked.size_bytes
            if picked.position + picked.size_bytes < chunk.size_bytes:
                break
            number += 1
            chunk = (
                self._reader.chunks.peek(metadata, number) if number < index.chunk_count else None
            )
        return pieces

    def _look_ahead(
        self,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        number: int,
        pieces: list[Piece],
    ) -> None:
        if pieces:
            next_offset = pieces[-1].selection.next_offset
            self._reader.remember(self._question, next_offset, self._streak + 1)
        depth = 0 if self._streak == 0 else 1 if self._streak < 4 else 2
        wanted = self._question.max_bytes
        if number + 1 < index.chunk_count:
            chunk_bytes = max(1, index.borders[number + 1] - index.borders[number])
            depth = max(depth, min(4, wanted // chunk_bytes))
        if depth:
            self._reader.read_ahead(self._partition, metadata, index, number, depth)

    def _with_transactions(
        self, metadata: RemoteLogSegmentMetadata, pieces: list[Piece]
    ) -> Wait | None:
        """Add the aborted transactions that the pieces' readers must know."""
        end = pieces[-1].selection.next_offset
        aborted: list[tuple[int, int]] = []
        if self._question.read_committed:
            found = self._aborted(metadata, self._question.offset, end)
            if isinstance(found, Wait):
                return found
            aborted = found
        self._answer(pieces, end, aborted)
        return None

    def _aborted(
        self, metadata: RemoteLogSegmentMetadata, start: int, end: int
    ) -> list[tuple[int, int]] | Wait:
        """Transactions aborted within [start, end): their markers may be in later segments."""
        reader = self._reader
        found: list[tuple[int, int]] = []
        for segment in reader.metadata.list_segments(self._partition):
            if (
                segment.state is not SegmentState.COPY_SEGMENT_FINISHED
                or segment.txn_index_empty
                or segment.end_offset < metadata.start_offset
            ):
                continue
            self._key = ("transactions", segment.id.id)
            data = reader.indexes.transactions(segment, self.attempt)
            if isinstance(data, Wait):
                return data
            entries, over = txn_index.overlapping(txn_index.iter_entries(data), start, end)
            found.extend((entry.producer_id, entry.first_offset) for entry in entries)
            if over:
                break
        return found

    # -- answering

    def _answer(
        self, pieces: list[Piece], next_offset: int, aborted: list[tuple[int, int]]
    ) -> None:
        if self._done:
            return
        self._done = True
        question, files, regions = self._question, list[OpenFile](), list[Region]()
        for piece in pieces:
            selection = piece.selection
            regions.append(
                Region(len(files), piece.chunk.token, selection.position, selection.size_bytes)
            )
            files.append(piece.chunk.file)
            self._reader.chunks.hand_out(piece.chunk)
        size_bytes = sum(region.size_bytes for region in regions)
        if size_bytes:
            self._reader.quota.record(size_bytes, self._reader.clock.monotonic_ms())
            self._reader.telemetry.read_answered(self._partition.topic, size_bytes)
        self._reply(
            ReadAnswer(
                question.topic_id,
                question.partition,
                question.leader_epoch,
                regions=regions,
                next_offset=next_offset,
                aborted=aborted,
            ),
            files,
        )

    def _fail(self, code: ErrorCode, message: str) -> None:
        if self._done:
            return
        self._done = True
        self._reader.telemetry.read_failed(self._partition.topic)
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
        log.error(
            "remote bytes are damaged and are not served: partition=%s offset=%d cause=%s",
            self._partition.topic_partition,
            self._question.offset,
            cause,
        )
        self._reader.telemetry.corrupt(self._partition.topic)
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


def _nobody() -> None:
    """Nobody waits for what is loaded ahead."""
