"""Loads chunks ahead of sequential readers, across the ends of segments.

`read_ahead_policy` decides the depth; the chunks are located here. Owner's thread.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import Read
from rlm.read.leases import Caches
from rlm.read.read_ahead_policy import Pace, after_answer, bounded_depth, run_chunks
from rlm.read.segment_index import SegmentIndex
from rlmm.api import MetadataNotReadyError, RemoteLogMetadataManager
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.clock import Clock

READERS_MAX = 4_096
IDLE_MS = 5_000
"""A reader that has not returned within this time is forgotten."""

Place = tuple[bytes, int, int]
"""Topic id, partition, offset."""

SEGMENTS_MAX = 64
"""Bound of the segments that are visited for one reader."""


@dataclass(slots=True)
class Sequence:
    """One reader.

    Attributes:
        number: Its name.
        token: Of the last chunk whose bytes it got.
        seen_ms: Time of its last request.
    """

    number: int
    pace: Pace
    token: int = 0
    seen_ms: int = 0


class Sequences:
    """All readers, the longest silent first.

    Readers have no names: a request for the offset where an answer ended is taken for the reader of
    that answer. A reader that does not return is forgotten, and the loads ahead of it are dropped.
    """

    def __init__(self, gone: Callable[[int], None]) -> None:
        """`gone` is called with the number of a reader that is forgotten."""
        self._gone = gone
        self._readers: OrderedDict[Place, Sequence] = OrderedDict()
        self._asking: OrderedDict[int, int] = OrderedDict()  # number and since when
        self._next = self._resting = 0

    def __len__(self) -> int:
        """Number of remembered places, including those of readers with a single request."""
        return len(self._readers)

    @property
    def active(self) -> int:
        """Number of sequential readers: those that wait for an answer, and those expected back."""
        return self._resting + len(self._asking)

    def take(self, place: Place, now_ms: int) -> Sequence:
        """The reader that is expected at this place, or a new one."""
        found = self._readers.pop(place, None)
        if found is None:
            self._next += 1
            return Sequence(self._next, Pace())
        if found.pace.streak > 1:
            self._resting -= 1
            self._asking[found.number] = now_ms
        return found

    def remember(self, place: Place, sequence: Sequence, now_ms: int) -> None:
        """Expect the reader at this place next."""
        self.forget_silent(now_ms)
        self._asking.pop(sequence.number, None)
        before = self._readers.pop(place, None)
        if before is not None:  # two readers at one place: one stands for both
            self._uncount(before)
            if before.pace.streak > sequence.pace.streak:
                sequence = before
        sequence.seen_ms = now_ms
        self._readers[place] = sequence
        if sequence.pace.streak > 1:
            self._resting += 1
        if len(self._readers) > READERS_MAX:
            self._forget_first()

    def forget_silent(self, now_ms: int) -> None:
        """Forget readers that have not returned."""
        limit_ms = now_ms - IDLE_MS
        while self._readers and next(iter(self._readers.values())).seen_ms < limit_ms:
            self._forget_first()
        while self._asking and next(iter(self._asking.values())) < limit_ms:
            self._gone(self._asking.popitem(last=False)[0])

    def _forget_first(self) -> None:
        _, sequence = self._readers.popitem(last=False)
        self._uncount(sequence)
        self._gone(sequence.number)

    def _uncount(self, sequence: Sequence) -> None:
        if sequence.pace.streak > 1:
            self._resting -= 1

    def deepest(self) -> int:
        """The largest depth of any reader."""
        return max((each.pace.depth for each in self._readers.values()), default=0)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer to a reader.

    Attributes:
        next_offset: First offset after it (exclusive end).
        waited_ms: Time that it waited for bytes of the log.
    """

    partition: TopicIdPartition
    question: Read
    next_offset: int
    size_bytes: int
    waited_ms: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A chunk ahead of a reader. `index` None: the segment's index is being loaded."""

    metadata: RemoteLogSegmentMetadata
    index: SegmentIndex | None
    number: int
    size_bytes: int


class ReadAhead:
    """The readers, and the loads ahead of them."""

    def __init__(
        self, metadata: RemoteLogMetadataManager, caches: Caches, clock: Clock, chunk_bytes: int
    ) -> None:
        self._metadata, self._clock, self._chunk_bytes = metadata, clock, chunk_bytes
        self._indexes, self._chunks, self._loads = caches.indexes, caches.chunks, caches.loads
        self.readers = Sequences(self._loads.forget_reader)

    def take(self, question: Read) -> Sequence:
        """The reader that sends this request."""
        place = (question.topic_id, question.partition, question.offset)
        return self.readers.take(place, self._clock.monotonic_ms())

    def in_vain(self, question: Read, sequence: Sequence) -> None:
        """Note that a reader got nothing in time, and will repeat its request."""
        place = (question.topic_id, question.partition, question.offset)
        self.readers.remember(place, sequence, self._clock.monotonic_ms())

    def forget_silent(self) -> None:
        """Drop the loads for readers that are gone."""
        self.readers.forget_silent(self._clock.monotonic_ms())

    def answered(
        self,
        answer: Answered,
        sequence: Sequence,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        position: int,
    ) -> None:
        """Note that a reader got bytes up to a chunk that ends at `position` of the segment."""
        now_ms, question = self._clock.monotonic_ms(), answer.question
        sequence.pace = after_answer(
            sequence.pace,
            now_ms=now_ms,
            waited_ms=answer.waited_ms,
            size_bytes=answer.size_bytes,
            chunk_bytes=self._chunk_bytes,
            load_ms=self._chunks.store.load_ms(self._chunk_bytes),
            first_byte_ms=self._chunks.store.first_byte_ms,
        )
        place = (question.topic_id, question.partition, answer.next_offset)
        self.readers.remember(place, sequence, now_ms)
        if sequence.pace.streak > 1:
            self.load(answer.partition, sequence, metadata, index, position)

    def load(
        self,
        partition: TopicIdPartition,
        sequence: Sequence,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        position: int,
    ) -> None:
        """Load the chunks that a reader will need from `position` of a segment on, and after it."""
        readers = max(1, self.readers.active)
        depth = bounded_depth(sequence.pace, self._chunks.share(readers), self._chunk_bytes)
        budget = depth * self._chunk_bytes
        # Large batches make larger chunks: two requests of a reader must still fit.
        run_bytes = min(run_chunks(depth, readers) * self._chunk_bytes, budget // 2)
        wanted = list[_Stretch]()
        is_start = True
        is_first = True  # nothing before the wanted chunks is cached or being loaded
        for each in self._following(partition, metadata, index, position):
            is_full = sum(one.size_bytes for one in [*wanted, each]) > run_bytes
            if wanted and (is_full or wanted[-1].metadata is not each.metadata):
                is_first = False
                if not self._ask(sequence, wanted):
                    return
                wanted = []
            if budget <= 0 or (budget < each.size_bytes and not is_start):
                # A request below its largest size waits until the reader has moved on.
                if is_first and wanted:
                    self._ask(sequence, wanted)
                return
            budget, is_start = budget - each.size_bytes, False
            if each.index is None:
                continue
            first, end = each.index.borders[each.number], each.index.borders[each.number + 1]
            if self._chunks.is_wanted(each.metadata, first, end):
                wanted.append(each)
                continue
            if wanted and not self._ask(sequence, wanted):
                return
            wanted, is_first = [], False
        if wanted:
            self._ask(sequence, wanted)

    def _ask(self, sequence: Sequence, wanted: list[_Stretch]) -> bool:
        """Load adjacent chunks of one segment; returns whether there is room for more."""
        metadata, index = wanted[0].metadata, wanted[0].index
        assert index is not None
        if not self._loads.has_capacity():
            return False
        numbers = [each.number for each in wanted]
        return self._chunks.load_ahead(sequence.number, metadata, index, numbers)

    def _following(
        self,
        partition: TopicIdPartition,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex | None,
        position: int,
    ) -> Iterator[_Stretch]:
        """Chunks from a position on, into the following segments, whose indexes it requests."""
        for _ in range(SEGMENTS_MAX):
            if index is None:
                yield _Stretch(metadata, None, 0, metadata.segment_size_bytes)
            elif position < metadata.segment_size_bytes:
                for number in range(index.chunk_at(position), index.chunk_count):
                    size_bytes = index.borders[number + 1] - index.borders[number]
                    yield _Stretch(metadata, index, number, size_bytes)
            following = self._segment_after(partition, metadata)
            if following is None:
                return
            found = self._indexes.get(following, _nobody)
            metadata, position = following, 0
            index = found if isinstance(found, SegmentIndex) else None

    def _segment_after(
        self, partition: TopicIdPartition, metadata: RemoteLogSegmentMetadata
    ) -> RemoteLogSegmentMetadata | None:
        epoch = metadata.leader_epochs[-1].epoch
        try:
            return self._metadata.segment_for(partition, epoch, metadata.end_offset + 1)
        except MetadataNotReadyError:
            return None


def _nobody() -> None:
    """The default waiter, which does nothing: no reader waits for loads ahead."""
