"""The records of `__remote_log_metadata` about some partitions, read by raw Fetch and kept.

Every call reads on to the end of that moment. Records are validated by the broker's own code
(`rlmm.fold`), in the topic's order, so this process knows exactly the segments that the tiers
know. Records of partitions that were not asked for are passed over, nearly all unread.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

from kafka_client.blocking import ClusterError
from kafka_protocol.errors import (
    ErrorCode,
    InflatedTooLargeError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from kafka_protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    has_valid_crc,
    iter_batches,
    read_header,
)
from kafka_protocol.records.records import iter_records
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, TopicPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.asker import Asker, leader_of
from pipeline.cluster.cluster import NotNowError, name_of
from pipeline.cluster.questions import LATEST, list_offsets
from pipeline.plan.live import LiveIndex
from rlmm import records
from rlmm.fold import Fold
from rlmm.lifecycle import PartitionFacts
from rlmm.quick_records import partition_of
from rlmm.store import START, Changes, MemoryStore, PartitionKey, Position, partition_key
from rlmm.topic_based.topic_port import metadata_partition_for
from runtime.clock import Clock
from runtime.executors import ThreadPool

Q = TypeVar("Q")
A = TypeVar("A")

_FETCH_VERSION = 12
_FETCH_BYTES = 8 << 20
_WAIT_MS = 500
_BATCH_FRONT = Struct(">qi")
"""Base offset and length."""


class OneAhead(Generic[Q, A]):
    """One question is on its way at most; used by one thread.

    While one is on its way no other thread may use what `ask` uses.
    """

    def __init__(self, ask: Callable[[Q], A]) -> None:
        """No thread is started yet.

        Args:
            ask: blocks until the answer is there, within a deadline of its own.
        """
        self._ask = ask
        self._pool: ThreadPool | None = None
        self._begun: tuple[Q, Future[A]] | None = None

    def begin(self, question: Q) -> None:
        """Ask this, in a thread."""
        self.drop()
        if self._pool is None:
            self._pool = ThreadPool("pipeline-ahead", 1)
        self._begun = question, self._pool.submit(self._ask, question)

    def answer(self, question: Q) -> A:
        """The answer, or the error: of what was begun if that is the question, else asked now."""
        if self._begun is not None and self._begun[0] == question:
            _, future = self._begun
            self._begun = None
            return future.result()
        self.drop()
        return self._ask(question)

    def drop(self) -> None:
        """Wait for what is on its way, whose answer or error is not needed any more."""
        if self._begun is not None:
            _, future = self._begun
            self._begun = None
            with suppress(Exception):
                future.result()

    def close(self) -> None:
        """End the thread."""
        self.drop()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class DivergedError(NotNowError):
    """The records read of a metadata partition are not those that its log holds now."""


class _Question(NamedTuple):
    """One Fetch: to whom, and where it continues in which metadata partitions."""

    node: int
    positions: tuple[tuple[int, Position], ...]


class MetadataTopic:
    """A reader of the topic, with what it has read so far."""

    def __init__(self, asker: Asker, clock: Clock) -> None:
        self._asker = asker
        self._clock = clock
        self._store = MemoryStore()
        self._wanted: dict[int, set[PartitionKey]] = {}
        self._indexes: dict[PartitionKey, LiveIndex] = {}
        self._fetches = OneAhead(self._ask)
        self.skipped_count = 0

    @property
    def exists(self) -> bool:
        """Whether the cluster has the topic: without it nothing was ever copied."""
        return REMOTE_LOG_METADATA_TOPIC in self._asker.cluster.topics

    def read(
        self, partitions: Iterable[TopicIdPartition], later: Iterable[TopicIdPartition] = ()
    ) -> None:
        """Read all that is written now about these partitions.

        Args:
            partitions: these.
            later: may be asked for next: what is read is kept of them, too. A partition that is
                new here has all that was read of its metadata partition read again.

        Raises:
            ClusterError: the topic cannot be read.
        """
        if not self.exists:
            return
        count = len(self._asker.cluster.topics[REMOTE_LOG_METADATA_TOPIC].leaders)
        wanted = set(partitions)
        for partition in {*wanted, *later}:
            self._want(metadata_partition_for(partition, count), partition_key(partition))
        numbers = {metadata_partition_for(partition, count) for partition in wanted}
        asked = {TopicPartition(REMOTE_LOG_METADATA_TOPIC, number): LATEST for number in numbers}
        found = list_offsets(self._asker, asked)
        ends = {partition.partition: end.offset for partition, end in found.items()}
        for number, end in ends.items():
            if self._store.position(number).offset > end:  # what was read was given up
                self._forget(number)
        try:
            while self._behind(ends):  # each time within a deadline of its own
                self._asker.again(lambda: self._read_on(ends))
        finally:
            self._fetches.drop()

    def close(self) -> None:
        """End what reads ahead."""
        self._fetches.close()

    def index(self, partition: TopicIdPartition) -> LiveIndex:
        """The finished segments of a partition that was read."""
        return self._indexes.setdefault(partition_key(partition), LiveIndex())

    def facts(self, partition: TopicIdPartition) -> PartitionFacts | None:
        """The known state of a partition that was read; None: no record named it."""
        count = len(self._asker.cluster.topics[REMOTE_LOG_METADATA_TOPIC].leaders)
        number = metadata_partition_for(partition, count)
        return self._store.facts(number, partition_key(partition))

    # ------------------------------------------------------------------ inside

    def _want(self, number: int, key: PartitionKey) -> None:
        wanted = self._wanted.setdefault(number, set())
        if key not in wanted:
            self._forget(number)  # its records were passed over
            wanted.add(key)

    def _forget(self, number: int) -> None:
        self._store.drop(number)
        for key in self._wanted.get(number, ()):
            self._indexes.pop(key, None)

    def _behind(self, ends: Mapping[int, int]) -> list[int]:
        """The metadata partitions that were not read to their ends yet."""
        return [n for n, end in ends.items() if self._store.position(n).offset < end]

    def _read_on(self, ends: Mapping[int, int]) -> None:
        """One Fetch to each leader."""
        by_leader: dict[int, list[int]] = {}
        topic = self._asker.cluster.topic(REMOTE_LOG_METADATA_TOPIC)
        behind = self._behind(ends)
        for number in behind:
            by_leader.setdefault(leader_of(topic, number), []).append(number)
        before = [self._store.position(number) for number in behind]
        try:
            for node, numbers in by_leader.items():
                self._fetch(node, numbers, ends, is_sole=len(by_leader) == 1)
        except BaseException:
            self._fetches.drop()  # whoever looks at the cluster now uses its connection
            raise
        if before == [self._store.position(number) for number in behind]:
            raise NotNowError(
                f"{REMOTE_LOG_METADATA_TOPIC}-{behind[0]}: its leader gives nothing at offset"
                f" {before[0].offset}, before offset {ends[behind[0]]} where it said to end"
            )

    def _fetch(
        self, node: int, numbers: list[int], ends: Mapping[int, int], *, is_sole: bool
    ) -> None:
        """Ask; where it is the sole leader, validate the answer while it makes the next one."""
        question = _Question(node, tuple((one, self._store.position(one)) for one in numbers))
        answer = self._fetches.answer(question)
        if answer.error_code:
            raise ClusterError(f"{REMOTE_LOG_METADATA_TOPIC}: {name_of(answer.error_code)}")
        parts = [part for topic in answer.responses for part in topic.partitions]
        following = _following(question, parts, ends)
        if is_sole and following is not None:
            self._fetches.begin(following)
        for part in parts:
            self._take(part, ends[part.partition_index])

    def _ask(self, question: _Question) -> Any:
        request = codec.request(ApiKey.FETCH).cls
        partitions = [
            request.Topics.Partitions(
                partition=number,
                fetch_offset=position.offset,
                last_fetched_epoch=position.leader_epoch,
                partition_max_bytes=_FETCH_BYTES,
            )
            for number, position in question.positions
        ]
        body = request(
            replica_id=-1,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[request.Topics(topic=REMOTE_LOG_METADATA_TOPIC, partitions=partitions)],
        )
        return self._asker.ask(question.node, ApiKey.FETCH, _FETCH_VERSION, body)

    def _take(self, part: Any, end: int) -> None:
        number = part.partition_index
        name = f"{REMOTE_LOG_METADATA_TOPIC}-{number}"
        position = self._store.position(number)
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if position == START and part.log_start_offset > 0:
                self._store.write(number, Changes(), Position(part.log_start_offset, -1))
                return
            self._forget(number)
            raise DivergedError(f"{name}: it does not reach offset {position.offset}")
        if part.error_code:
            raise NotNowError(f"{name}: {name_of(part.error_code)}")
        if part.diverging_epoch.end_offset >= 0:
            self._forget(number)
            raise DivergedError(f"{name}: another log was read up to offset {position.offset}")
        if part.records is not None and len(part.records):
            self._consume(number, part.records, end)

    def _consume(self, number: int, data: Buffer, end: int) -> None:
        """Validate the records of whole batches below `end`, and remember all of it at once."""
        position = before = self._store.position(number)
        fold = Fold(self._store, number)
        seen_ms, wanted = self._clock.wall_ms(), self._wanted[number]
        for at, header in iter_batches(data):
            if header.base_offset >= end:
                break
            if header.next_offset <= position.offset:
                continue
            if not has_valid_crc(data, at, header):
                raise ClusterError(
                    f"{REMOTE_LOG_METADATA_TOPIC}-{number}: the batch at offset"
                    f" {header.base_offset} is damaged: its checksum is wrong"
                )
            if not header.is_control:
                for offset, value in values_of(number, data, at, header):
                    if offset >= position.offset:
                        self._validate(fold, value, offset, seen_ms, wanted)
            position = Position(header.next_offset, header.partition_leader_epoch)
        if position == before:
            raise NotNowError(
                f"{REMOTE_LOG_METADATA_TOPIC}-{number}: no whole batch at offset {before.offset}"
            )
        self._store.write(number, fold.changes, position)
        for (key, segment_id), change in fold.changes.segments.items():
            self._indexes.setdefault(key, LiveIndex()).put(segment_id, change.after)

    def _validate(
        self,
        fold: Fold,
        value: bytes | None,
        offset: int,
        seen_ms: int,
        wanted: set[PartitionKey],
    ) -> None:
        known = None if value is None else partition_of(value)
        if known is not None and partition_key(known) not in wanted:
            return
        try:
            event = records.decode(value)
        except records.UnreadableRecordError:
            self.skipped_count += 1
            return
        if partition_key(event.topic_id_partition) in wanted:
            fold.take(event, order=offset, seen_ms=seen_ms)


def _following(
    question: _Question, parts: Sequence[Any], ends: Mapping[int, int]
) -> _Question | None:
    """The next question if the answer is as it should be; None: nothing, or it is not."""
    positions = dict(question.positions)
    for part in parts:
        if part.error_code or part.diverging_epoch.end_offset >= 0 or not part.records:
            return None
        positions[part.partition_index] = _position_after(part.records)
    left = tuple((number, one) for number, one in positions.items() if one.offset < ends[number])
    return _Question(question.node, left) if parts and left else None


def _position_after(data: Buffer) -> Position:
    """Where a reader continues behind the whole batches; one of another end is asked for again."""
    last = at = 0
    while at + HEADER_SIZE <= len(data):
        _, length = _BATCH_FRONT.unpack_from(data, at)
        if length <= 0 or at + LOG_OVERHEAD + length > len(data):
            break
        last, at = at, at + LOG_OVERHEAD + length
    if at == 0:
        return START
    header = read_header(data, last)
    return Position(header.next_offset, header.partition_leader_epoch)


def values_of(
    number: int, data: Buffer, at: int, header: BatchHeader
) -> Iterable[tuple[int, bytes | None]]:
    """Offsets and values of a batch whose checksum is right.

    Raises:
        ClusterError: it contradicts itself.
    """
    sole = _sole_value(data, at, header)
    if sole is not None:
        return ((header.base_offset, sole),)
    try:
        return [(record.offset, record.value) for record in iter_records(data, at)]
    except (InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError) as error:
        raise ClusterError(
            f"{REMOTE_LOG_METADATA_TOPIC}-{number}: the batch at offset {header.base_offset} is"
            f" damaged: {error}"
        ) from error


def _sole_value(data: Buffer, at: int, header: BatchHeader) -> bytes | None:
    """The value of a batch of one plain record without key and headers; None for any other.

    Nearly all batches of this topic are such: a manager writes one record and waits for it.
    """
    start, end = at + HEADER_SIZE, at + header.size_bytes
    if header.record_count != 1 or header.codec or end - start < 8 or data[end - 1]:
        return None
    length, position = _varint(data, start)
    # No attributes, time and offset as the batch's, and a null key.
    if position + length != end or bytes(data[position : position + 4]) != b"\0\0\0\1":
        return None
    size, position = _varint(data, position + 4)
    if size < 0 or position + size + 1 != end:
        return None
    return bytes(data[position : end - 1])


def _varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint of one or two bytes and the position after it; -1 for a longer one."""
    one, two = data[position], data[position + 1]
    if one < 128:
        return one >> 1 ^ -(one & 1), position + 1
    if two > 127:
        return -1, position
    both = one & 127 | two << 7
    return both >> 1 ^ -(both & 1), position + 2
