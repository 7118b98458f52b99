"""Fetches from the remote tier: the tier is asked, and its answer is checked again.

A read always ends by its deadline: with regions, with a Kafka error, or empty. Empty means that
nothing came in time; the tier still fetches into its cache, so the client's next try finds it.
While the tier is gone a read is parked until its deadline and then gets KAFKA_STORAGE_ERROR, so
that clients do not retry at once.

A follower asks its tier at each read, which first reads the records of other owners. An answer
under another role is dropped. `broker.replica.follower_reads` decides which reads are allowed.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from broker.remote.buffered_ranges import (
    BufferedRange,
    BufferedRanges,
    Expected,
    Position,
    position_of,
)
from broker.remote.supervisor import Supervisor
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.errors import OffsetOutOfRange
from local_log.log.partition_log import PartitionLog
from rlm.link.endpoint import LinkFailureError, Received
from rlm.link.messages import (
    AuxiliaryState,
    AuxiliaryStateAnswer,
    OffsetForTimestamp,
    Read,
    ReadAnswer,
    Released,
    TimestampAnswer,
)
from runtime.clock import Clock
from runtime.disk import FileRegion, Mapping, OpenFile
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)

READ_AHEAD_BYTES = 4 << 20
"""Bytes that the tier may answer beyond the request."""

AHEAD_MS = 500
"""Time that a read waits in the tier if it was sent before its reader came."""

AUXILIARY_MS = 20_000
"""Time that a follower waits for the state of one segment; then it asks again."""

GRACE_MS = 50
"""Time after its deadline that a read still waits for the tier's own answer."""

T = TypeVar("T")


def epoch_span(log: PartitionLog, offset: int) -> tuple[int, int]:
    """The epoch of `offset` and the first offset after that epoch (exclusive).

    An offset below the whole epoch chain belongs to no epoch: (-1, start of the epoch chain).
    """
    entries = log.epochs.entries()
    end = log.log_end_offset
    for entry in reversed(entries):
        if entry.start_offset <= offset:
            return entry.epoch, end
        end = entry.start_offset
    return -1, end


def _led_elsewhere(read: "RemoteRead") -> ApiError:
    name = f"{read.topic}-{read.partition}"
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is led elsewhere")


@dataclass(frozen=True, slots=True)
class RemoteRead:
    """The part of a fetch for one remote partition.

    Attributes:
        max_bytes: Bound of the answer; `min_one_batch` lets one larger batch through.
        read_committed: Aborted transactions are returned with the batches.
        deadline_ms: On the broker's monotonic clock.
        holder: The connection that it is for, see `Read`.
        may_ask_followers: See `FetchParams`.
    """

    topic_id: bytes
    topic: str
    partition: int
    offset: int
    max_bytes: int
    min_one_batch: bool
    read_committed: bool
    deadline_ms: int
    holder: str
    may_ask_followers: bool = False


@dataclass(frozen=True, slots=True)
class RemoteFetched:
    """Whole batches from the remote tier.

    No regions: nothing came in time, and that is no error.
    """

    regions: list[FileRegion | memoryview] = field(default_factory=list)
    size_bytes: int = 0
    aborted_transactions: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Waiting:
    """A read that is being served; `late` holds its outcome at the deadline."""

    read: RemoteRead
    future: "asyncio.Future[RemoteFetched]"
    late: list[object] | None = None


class ReleaseQueue:
    """Collects released chunks of one tier process and reports them in one message."""

    def __init__(self, loop: asyncio.AbstractEventLoop, supervisor: Supervisor) -> None:
        self._loop, self._supervisor = loop, supervisor
        self._tokens: deque[int] = deque()
        self._armed = self._ended = False

    def add(self, token: int) -> None:
        """Report that this process no longer reads the chunk; from any thread."""
        self._tokens.append(token)
        if not self._armed and not self._loop.is_closed():
            self._armed = True
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        self._armed = False
        tokens = [self._tokens.popleft() for _ in range(len(self._tokens))]
        if tokens and not self._ended:
            self._supervisor.tell(Released(tokens))

    def end(self) -> None:
        """Report nothing more: the tier is gone, and the next one gives its own tokens.

        A chunk of the old one may still be held for a while, by an answer to a slow client.
        """
        self._ended = True


class RemoteReads:
    """Asks the tier for bytes and timestamps, on the broker's loop."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        supervisor: Supervisor,
        clock: Clock,
        scheduler: Scheduler,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._replicas, self._supervisor = replicas, supervisor
        self._clock, self._scheduler, self._loop = clock, scheduler, loop
        self._released = ReleaseQueue(loop, supervisor)
        self._buffered, self._expected = BufferedRanges(clock, scheduler), Expected()

    def on_tier_down(self) -> None:
        """Drop tokens and buffered ranges of the old tier: the next one does not have them."""
        self._released.end()
        self._released = ReleaseQueue(self._loop, self._supervisor)
        self._buffered.clear()

    def read(self, read: RemoteRead) -> "asyncio.Future[RemoteFetched]":
        """Read; the future fails with the KafkaError of the answer.

        It is done on return if a buffered range has the batches.
        """
        future: asyncio.Future[RemoteFetched] = self._loop.create_future()
        self._attempt(_Waiting(read, future))
        return future

    def _attempt(self, waiting: "_Waiting") -> None:
        """Serve from a buffered range, wait for one that is on its way, or ask."""
        read, future = waiting.read, waiting.future
        if future.done():
            return
        try:
            question = self._question(read)
        except KafkaError as error:
            future.set_exception(error)
            return
        position = position_of(question)
        buffered = self._buffered.pop(position)
        if (
            buffered is not None
            and buffered.has_aborted
            and self._has_moved(read, buffered.local_start)
        ):
            buffered = None
        if buffered is not None and self._supervisor.endpoint is not None:
            future.set_result(self._serve(buffered, read))
            return
        if waiting.late is None:
            waiting.late = self._deadline(future, read.deadline_ms, RemoteFetched())
        if position in self._expected:
            self._expected.wait(position, partial(self._attempt, waiting))
        else:
            self._ask(waiting, question, position)

    def _ask(self, waiting: "_Waiting", question: Read, position: Position) -> None:
        read, future, late = waiting.read, waiting.future, waiting.late
        local_start = self._local_start(read)

        def answered(done: "ThreadFuture[Received]") -> None:
            if done.exception() is not None:
                assert late is not None
                late[0] = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the tier process is not there")
                return
            answer = done.result().message
            assert isinstance(answer, ReadAnswer), answer
            regions = list[memoryview]()
            try:
                regions = self._take(answer, done.result().files)
                if future.done():
                    return
                if question.read_committed and self._has_moved(read, local_start):
                    # Segments that left the local log were in neither list of aborted transactions.
                    self._attempt(waiting)
                    return
                fetched = self._accept(read, question, answer, regions)
            except KafkaError as error:
                regions.clear()  # its traceback would keep them leased
                if not future.done():
                    future.set_exception(error)
                return
            if fetched.regions and answer.batch_ends:
                buffered = BufferedRange(
                    position,
                    answer,
                    regions,
                    has_aborted=bool(fetched.aborted_transactions),
                    local_start=local_start,
                )
                fetched = self._serve(buffered, read)
            future.set_result(fetched)

        self._supervisor.ask(question).add_done_callback(answered)

    def _serve(self, buffered: BufferedRange, read: RemoteRead) -> RemoteFetched:
        """Serve a checked read from the buffered range at its position."""
        regions = buffered.take(read.max_bytes, min_one_batch=read.min_one_batch)
        self._buffered.put(buffered)
        if buffered.remaining_bytes < 2 * read.max_bytes:
            self._ask_ahead(buffered, read)
        aborted: list[tuple[int, int]] = []  # the tier has none: else it gives no batch ends
        if buffered.has_aborted and regions:
            aborted = self._locally_aborted(read, buffered.position.offset)
        return RemoteFetched([*regions], sum(map(len, regions)), aborted)

    def _locally_aborted(self, read: RemoteRead, end: int) -> list[tuple[int, int]]:
        log = self._replica(read).log
        found = log.aborted_transactions(read.offset, end)
        return [(each[0], each[1]) for each in found]

    def _local_start(self, read: RemoteRead) -> int:
        return self._replica(read).log.local_log_start_offset

    def _has_moved(self, read: RemoteRead, local_start: int) -> bool:
        """True if segments have left the local log since it began at `local_start`."""
        return self._local_start(read) != local_start

    def _ask_ahead(self, buffered: BufferedRange, read: RemoteRead) -> None:
        """Fetch the next buffered range before its reader asks for it."""
        end = buffered.end_offset
        partition = self._replicas.by_id(read.topic_id, read.partition)
        if partition is None or end >= partition.log.local_log_start_offset:
            return
        ahead = replace(
            read, offset=end, deadline_ms=self._clock.monotonic_ms() + AHEAD_MS, min_one_batch=True
        )
        try:
            question = self._question(ahead)
        except KafkaError:
            return  # the reader's own request gets the error
        position = position_of(question)
        if position in self._expected or position in self._buffered:
            return
        self._expected.ask(position)
        local_start = partition.log.local_log_start_offset

        def answered(done: "ThreadFuture[Received]") -> None:
            if done.exception() is None:
                answer = done.result().message
                assert isinstance(answer, ReadAnswer), answer
                with contextlib.suppress(KafkaError):  # the reader's own request gets the error
                    regions = self._take(answer, done.result().files)
                    fetched = self._accept(ahead, question, answer, regions)
                    is_old = question.read_committed and self._has_moved(ahead, local_start)
                    if fetched.regions and answer.batch_ends and not is_old:
                        self._buffered.put(
                            BufferedRange(
                                position,
                                answer,
                                regions,
                                has_aborted=bool(fetched.aborted_transactions),
                                local_start=local_start,
                            )
                        )
            self._expected.over(position)

        self._supervisor.ask(question).add_done_callback(answered)

    def _question(self, read: RemoteRead) -> Read:
        partition = self._replica(read)
        self._check_may_read(read, partition)
        partition.check_chain_known()
        epoch, epoch_end = epoch_span(partition.log, read.offset)
        if not partition.is_leader:
            epoch_end = min(epoch_end, partition.visible_end(read_committed=read.read_committed))
        chain = partition.log.epochs.entries() if read.read_committed else []
        return Read(
            read.topic_id,
            read.partition,
            partition.leader_epoch,
            offset=read.offset,
            offset_epoch=epoch,
            epoch_end=epoch_end,
            max_bytes=read.max_bytes,
            min_one_batch=read.min_one_batch,
            read_committed=read.read_committed,
            chain=[(entry.epoch, entry.start_offset) for entry in chain if entry.epoch >= epoch],
            wait_ms=max(0, read.deadline_ms - self._clock.monotonic_ms()),
            holder=read.holder,
            read_ahead_bytes=READ_AHEAD_BYTES if partition.is_leader else 0,
            at_follower=not partition.is_leader,
        )

    def _replica(self, read: RemoteRead) -> Partition:
        partition = self._replicas.by_id(read.topic_id, read.partition)
        if partition is None:
            name = f"{read.topic}-{read.partition}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is not here")
        if not (partition.is_leader or read.may_ask_followers):
            raise _led_elsewhere(read)
        return partition

    def _check_may_read(self, read: RemoteRead, partition: Partition) -> None:
        """Refuse a read that this replica may no longer answer."""
        if partition.is_leader:
            self._check_log_start(read, partition)
        else:
            partition.check_follower(read.offset, read_committed=read.read_committed)

    def _check_log_start(self, read: RemoteRead, partition: Partition) -> None:
        log = partition.log
        if read.offset < log.log_start_offset:
            raise OffsetOutOfRange(
                asked=read.offset, start=log.log_start_offset, end=log.log_end_offset
            )

    def _take(self, answer: ReadAnswer, files: tuple[OpenFile, ...]) -> list[memoryview]:
        """Map the chunks; when the last slice of one is gone it is released in the tier.

        Raises:
            ApiError: No descriptors or memory are left; all chunks are given back.
        """
        taken = list[memoryview]()
        for number, (file, region) in enumerate(zip(files, answer.regions, strict=True)):
            end = region.position + region.size_bytes
            ended = partial(self._released.add, region.token)
            try:
                taken.append(Mapping.of(file, end, ended)[region.position :])
            except (OSError, ValueError) as error:
                log.warning("cannot map what the tier leases: %s", error)
                for left in answer.regions[number:]:
                    self._released.add(left.token)
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot map: {error}") from error
        return taken

    def _accept(
        self, read: RemoteRead, question: Read, answer: ReadAnswer, regions: list[memoryview]
    ) -> RemoteFetched:
        """Check the answer against the present role, epoch and log start."""
        same_partition = (answer.topic_id, answer.partition) == (read.topic_id, read.partition)
        if not same_partition or answer.leader_epoch != question.leader_epoch:
            return RemoteFetched()
        partition = self._replica(read)
        is_other = partition.leader_epoch != question.leader_epoch
        if partition.is_leader is question.at_follower or (question.at_follower and is_other):
            raise _led_elsewhere(read)
        if is_other:
            return RemoteFetched()  # the epoch chain may have changed: the client tries again
        self._check_may_read(read, partition)
        if answer.error != ErrorCode.NONE:
            raise ApiError(ErrorCode(answer.error), answer.message)
        aborted = [(producer_id, first) for producer_id, first in answer.aborted]
        if question.read_committed and regions:
            local = self._locally_aborted(read, answer.next_offset)
            aborted = sorted({*aborted, *local})
        return RemoteFetched([*regions], sum(map(len, regions)), aborted)

    def offset_for_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, deadline_ms: int
    ) -> "asyncio.Future[tuple[int, int, int] | None]":
        """First remote record at or after a time: (timestamp, offset, leader epoch), or None.

        Fails with REQUEST_TIMED_OUT at the deadline.
        """
        future: asyncio.Future[tuple[int, int, int] | None] = self._loop.create_future()
        partition = self._replicas.get(topic_partition)
        if partition is None or not partition.is_leader:
            future.set_exception(
                ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition} is not led here")
            )
            return future
        late = ApiError(ErrorCode.REQUEST_TIMED_OUT, "the remote tier did not answer in time")
        self._deadline(future, deadline_ms, late)
        question = OffsetForTimestamp(
            partition.topic_id,
            partition.partition,
            partition.leader_epoch,
            timestamp_ms=timestamp_ms,
            log_start_offset=partition.log.log_start_offset,
            chain=[(entry.epoch, entry.start_offset) for entry in partition.log.epochs.entries()],
            wait_ms=max(0, deadline_ms - self._clock.monotonic_ms()),
        )

        def answered(done: "ThreadFuture[Received]") -> None:
            if future.done() or done.exception() is not None:
                return  # while the tier is gone: parked until the deadline
            answer = done.result().message
            assert isinstance(answer, TimestampAnswer), answer
            if partition.deleted or partition.leader_epoch != question.leader_epoch:
                return
            if answer.error != ErrorCode.NONE:
                future.set_exception(ApiError(ErrorCode(answer.error), answer.message))
            elif answer.offset < 0:
                future.set_result(None)
            else:
                future.set_result((answer.timestamp_ms, answer.offset, answer.offset_epoch))

        self._supervisor.ask(question).add_done_callback(answered)
        return future

    def auxiliary_state(
        self,
        partition: Partition,
        offset: int,
        epoch: int,
        above: Sequence[EpochEntry],
        done: Callable[[AuxiliaryStateAnswer | KafkaError], None],
    ) -> None:
        """Ask for epoch chain and producers as of the end of a remote segment.

        Args:
            partition: Followed here.
            offset: In the segment.
            epoch: The leader epoch of that offset.
            above: Later epochs of the leader's epoch chain; the segment must end on it.
            done: Called once, on the event loop, within `AUXILIARY_MS`. REPLICA_NOT_AVAILABLE:
                the tier has no segment with the offset; it may have one later.
        """
        names = (partition.topic_id, partition.partition, partition.leader_epoch)
        future: asyncio.Future[AuxiliaryStateAnswer | KafkaError] = self._loop.create_future()
        late = ApiError(ErrorCode.REQUEST_TIMED_OUT, "the remote tier did not answer in time")
        self._deadline(future, self._clock.monotonic_ms() + AUXILIARY_MS, late)

        def answered(asked: "ThreadFuture[Received]") -> None:
            if future.done():
                return
            error = asked.exception()
            if isinstance(error, LinkFailureError):
                future.set_result(ApiError(ErrorCode.of(error.code), str(error)))
            elif error is not None:
                gone = ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, "the remote tier is down")
                future.set_result(gone)
            else:
                answer = asked.result().message
                assert isinstance(answer, AuxiliaryStateAnswer), answer
                future.set_result(answer)

        def ended(told: "asyncio.Future[AuxiliaryStateAnswer | KafkaError]") -> None:
            error = told.exception()
            assert error is None or isinstance(error, KafkaError)
            done(told.result() if error is None else error)

        future.add_done_callback(ended)
        question = AuxiliaryState(
            *names,
            offset=offset,
            epoch=epoch,
            above=[(one.epoch, one.start_offset) for one in above],
            wait_ms=AUXILIARY_MS,
        )
        self._supervisor.ask(question).add_done_callback(answered)

    def _deadline(
        self, future: "asyncio.Future[T]", deadline_ms: int, outcome: T | KafkaError
    ) -> list[object]:
        """Have `future` end at the deadline; the returned cell holds its outcome then."""
        cell: list[object] = [outcome]

        def expire() -> None:
            if future.done():
                return
            if isinstance(cell[0], KafkaError):
                future.set_exception(cell[0])
            else:
                future.set_result(cell[0])  # type: ignore[arg-type]

        wait_ms = max(0, deadline_ms - self._clock.monotonic_ms()) + GRACE_MS
        timer = self._scheduler.call_later(wait_ms, expire)
        future.add_done_callback(lambda _: timer.cancel())
        return cell
