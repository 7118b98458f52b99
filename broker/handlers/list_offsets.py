"""ListOffsets (2): offsets by time, and the beginnings and ends of the local and the remote log.

| timestamp | offset |
|---|---|
| -1 | latest: high watermark, or last stable offset for read committed; for a replica the log end |
| -2 | earliest: the log start, wherever it lies |
| -3 | the record with the largest timestamp, among the local ones |
| -4 | earliest local |
| -5 | latest in the remote tier, -1 if there is none |
| -6 | earliest that is not in the remote tier yet, -1 if nothing is copied there |

A time is looked up in the remote tier first, because its records are older, then locally.

Versions:

* 1: one offset with its timestamp, instead of many (KIP-79).
* 2: isolation level (KIP-98), throttle time (KIP-124).
* 3: no new field; the client waits out a throttle, not the broker (KIP-219).
* 4: leader epochs, known to the client and of the offset found (KIP-320).
* 5: no new field; OFFSET_NOT_AVAILABLE may be answered after an election (KIP-207).
* 6: flexible (KIP-482).
* 7: no new field; timestamp -3 (KIP-734).
* 8: no new field; timestamp -4 (KIP-405).
* 9: no new field; timestamp -5 (KIP-1005).
* 10: how long the client waits for the remote tier (KIP-1075).
* 11: no new field; timestamp -6 (KIP-1023).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.handlers.holding import Holding
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.remote.tier import RemoteTier
from broker.replica.errors import OffsetNotAvailable
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.types import is_read_committed
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from local_log.log import lookups
from runtime.clock import Clock
from runtime.executors import Pool
from runtime.work import Steps, at_once, run_in_steps

_Response: Final = response(ApiKey.LIST_OFFSETS).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_WHERE_TO_BEGIN: Final = (EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
"""A follower uses these to find where a log begins that it builds from the remote tier."""

_SINCE_TIMEOUT: Final = 10
_SINCE_NOT_AVAILABLE: Final = 5

SLICE_PARTITIONS: Final = 500
"""Partitions answered in one slice."""

AT_ONCE: Final = 64
"""Concurrent look-ups of one request, so that look-ups of other requests are not delayed."""

SLICE_ANSWERS: Final = 100

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch; -1 stands for none."""
NOT_FOUND: Final[Found] = (-1, -1, -1)


@dataclass(slots=True)
class _Later:
    """The look-ups of a request that read records, and their deadline (monotonic)."""

    deadline_ms: int
    calls: list[Callable[[], Awaitable[None]]] = field(default_factory=list)


class ListOffsetsHandler(DecodedHandler):
    """Serves ListOffsets 1-11."""

    api_key = ApiKey.LIST_OFFSETS
    versions = Versions(1, 11)

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        clock: Clock,
        pool: Pool,
        holding: Holding,
        remote: RemoteTier | None = None,
        remote_timeout_ms: Callable[[], int] = lambda: 30_000,
    ) -> None:
        """Serve the partitions of `replicas`.

        Args:
            replicas: Partitions hosted here.
            clock: For deadlines.
            pool: Reads segments for look-ups by time.
            holding: Waits for log validations.
            remote: None without a remote tier.
            remote_timeout_ms: Returns the current `remote.list.offsets.request.timeout.ms`.
        """
        self._replicas, self._clock, self._pool = replicas, clock, pool
        self._remote, self._remote_timeout_ms = remote, remote_timeout_ms
        self._holding = holding

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Find the offsets; returns the answer itself if no record must be read.

        librdkafka sends one request for each partition, thousands in a row. With an iteration of
        the loop for each, they would take a minute on a busy loop.
        """
        timeout_ms = self._remote_timeout_ms()
        if context.api_version >= _SINCE_TIMEOUT and request.timeout_ms > 0:
            timeout_ms = min(timeout_ms, request.timeout_ms)
        later = _Later(self._clock.monotonic_ms() + timeout_ms)
        steps = self._answers(context, request, later)
        if sum(len(topic.partitions) for topic in request.topics) >= SLICE_PARTITIONS:
            return _in_steps(steps, later)
        answer = at_once(steps)
        return _complete(answer, later) if later.calls else answer

    def _answers(self, context: RequestContext, request: Any, later: _Later) -> Steps[Any]:
        """Answer from memory, and add look-ups to `later`; yields between slices."""
        committed = is_read_committed(request.isolation_level)
        by_topic: dict[str, list[Any]] = {}
        for topic in request.topics:
            if topic.partitions:
                by_topic.setdefault(topic.name, []).extend(topic.partitions)
        topics, count = [], 0
        for name, partitions in by_topic.items():
            counts = Counter(asked.partition_index for asked in partitions)
            answers: list[Any] = []
            for asked in _first_of_each(partitions):
                answer = _Partition(partition_index=asked.partition_index)
                answers.append(answer)
                found = self._answer(
                    context, name, asked, committed, counts, answer, replica_id=request.replica_id
                )
                if found is not None:
                    look_up = partial(self._answer_later, context, found, asked, committed)
                    later.calls.append(partial(look_up, later.deadline_ms, answer))
                count += 1
                if count % SLICE_PARTITIONS == 0:
                    yield
            topics.append(_Topic(name=name, partitions=answers))
        return _Response(topics=topics)

    def _answer(
        self,
        context: RequestContext,
        topic: str,
        asked: Any,
        committed: bool,
        counts: "Counter[int]",
        answer: Any,
        *,
        replica_id: int,
    ) -> Partition | None:
        """Answer from memory, or return the partition whose records must be read."""
        try:
            _check_timestamp(asked.timestamp, context.api_version, counts[asked.partition_index])
            partition = self._replicas.require(topic, asked.partition_index)
            partition.check_leader(asked.current_leader_epoch)
            if asked.timestamp == MAX_TIMESTAMP or asked.timestamp >= 0:
                return partition
            if replica_id >= 0:
                _fill(answer, self._for_replica(partition, replica_id, asked.timestamp, committed))
            else:
                _fill(answer, self._known(partition, asked.timestamp, committed))
        except OffsetNotAvailable as error:
            answer.error_code = int(_known_to(context.api_version, error))
        except Exception as error:  # noqa: BLE001 - becomes this partition's answer
            answer.error_code = int(code_of(error, "list offsets"))
        return None

    async def _answer_later(
        self,
        context: RequestContext,
        partition: Partition,
        asked: Any,
        committed: bool,
        deadline_ms: int,
        answer: Any,
    ) -> None:
        try:
            found = await self._find(partition, asked.timestamp, committed, deadline_ms)
            _fill(answer, found)
        except OffsetNotAvailable as error:
            answer.error_code = int(_known_to(context.api_version, error))
        except Exception as error:  # noqa: BLE001 - becomes this partition's answer
            answer.error_code = int(code_of(error, "list offsets"))

    def _for_replica(
        self, partition: Partition, replica_id: int, timestamp: int, committed: bool
    ) -> Found:
        """Like `_known`, and keeps the segments from a reported start for a while.

        The follower builds its state from the remote tier up to that offset, by the epoch chain and
        the log start.
        """
        if timestamp == LATEST:
            return (-1, partition.log.log_end_offset, partition.leader_epoch)
        if timestamp not in _WHERE_TO_BEGIN:
            return self._known(partition, timestamp, committed)
        partition.check_log_start_known()
        partition.check_chain_known()
        found = self._known(partition, timestamp, committed)
        _, offset, _ = found
        if offset >= 0 and partition.followers is not None:
            start = offset + 1 if timestamp == LATEST_TIERED else offset
            partition.followers.reported_start(replica_id, start)
        return found

    def _known(self, partition: Partition, timestamp: int, committed: bool) -> Found:
        """The answer to a timestamp that needs no records."""
        log = partition.log
        if timestamp == LATEST:
            partition.check_watermark_settled()
            visible_end = partition.last_stable_offset if committed else partition.high_watermark
            partition.check_log_end()
            return (-1, visible_end, partition.leader_epoch)
        if timestamp == EARLIEST:
            partition.check_log_start_known()
            return (-1, log.log_start_offset, self._epoch_of(partition, log.log_start_offset))
        if timestamp == EARLIEST_LOCAL:
            start = max(log.local_log_start_offset, log.log_start_offset)
            return (-1, start, self._epoch_of(partition, start))
        return self._tiered(partition, timestamp)

    async def _find(
        self, partition: Partition, timestamp: int, committed: bool, deadline_ms: int
    ) -> Found:
        """Find a record by time, or the one with the largest timestamp."""
        log = partition.log
        visible_end = partition.last_stable_offset if committed else partition.high_watermark
        found: Found | None
        if timestamp == MAX_TIMESTAMP:
            found = await self._pool.run(lookups.max_timestamp, log)
        else:
            found = await self._by_time(partition, timestamp, deadline_ms)
        if found is None or found[1] >= visible_end:
            partition.check_watermark_settled()
            if timestamp >= 0:
                await self._validated(partition, deadline_ms)
                partition.check_sound()
            return NOT_FOUND
        return found

    async def _validated(self, partition: Partition, deadline_ms: int) -> None:
        """Wait for a pending log validation: clients do not retry a request by time."""
        left_ms = deadline_ms - self._clock.monotonic_ms()
        await self._holding.until_validated([partition], left_ms)

    def _tiered(self, partition: Partition, timestamp: int) -> Found:
        if self._remote is None or not partition.log.config.remote_storage_enable:
            return NOT_FOUND
        # DIFFERS: Kafka's -1 for -5 can mean that nothing is there or that it is unknown.
        if partition.is_unvalidated:
            raise OffsetNotAvailable(f"the tier has not validated {partition.topic_partition} yet")
        partition.check_sound()
        topic_partition = partition.topic_partition
        if timestamp == LATEST_TIERED:
            offset = self._remote.highest_tiered_offset(topic_partition)
        else:
            offset = self._remote.earliest_pending_upload(topic_partition)
        return NOT_FOUND if offset < 0 else (-1, offset, self._epoch_of(partition, offset))

    async def _by_time(
        self, partition: Partition, timestamp: int, deadline_ms: int
    ) -> Found | None:
        log = partition.log
        while True:
            partition.check_log_start_known()
            local_start = log.local_log_start_offset
            if self._remote is not None and log.log_start_offset < local_start:
                partition.check_chain_known()
                found = await self._remote.offset_for_timestamp(
                    partition.topic_partition, timestamp, deadline_ms
                )
                if found is not None:
                    return found
            found = await self._pool.run(lookups.offset_for_timestamp, log, timestamp)
            if log.local_log_start_offset == local_start:
                return found
            # Segments that left the local log meanwhile may have been searched in neither tier.

    @staticmethod
    def _epoch_of(partition: Partition, offset: int) -> int:
        is_remote = offset < partition.log.segments.bases[0]
        if is_remote and (partition.is_chain_lost or not partition.is_sound):
            return -1  # a consumer would validate its position by it
        epoch = partition.log.epochs.epoch_for(offset)
        return -1 if epoch is None else epoch


async def _in_steps(steps: Steps[Any], later: _Later) -> Any:
    return await _complete(await run_in_steps(steps), later)


async def _complete(answer: Any, later: _Later) -> Any:
    """Make the look-ups that the answer still lacks."""
    await _side_by_side(later.calls)
    return answer


async def _side_by_side(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Make all calls, at most `AT_ONCE` at a time, across topics."""
    left = iter(calls)

    async def take() -> None:
        for count, call in enumerate(left, 1):
            await call()
            if count % SLICE_ANSWERS == 0:  # answers from memory do not yield to the loop
                await asyncio.sleep(0)

    await asyncio.gather(*(take() for _ in range(min(AT_ONCE, len(calls)))))


def _fill(answer: Any, found: Found) -> None:
    answer.timestamp, answer.offset, answer.leader_epoch = found


def _first_of_each(partitions: Sequence[Any]) -> list[Any]:
    """A partition that is named twice is answered once, with an error (`_check_timestamp`)."""
    return list({asked.partition_index: asked for asked in reversed(partitions)}.values())[::-1]


def _known_to(version: int, error: OffsetNotAvailable) -> ErrorCode:
    """Older clients do not know the code; they look for a leader again (KIP-207)."""
    return error.code if version >= _SINCE_NOT_AVAILABLE else ErrorCode.LEADER_NOT_AVAILABLE


def _check_timestamp(timestamp: int, version: int, times_asked: int) -> None:
    if times_asked > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the same partition twice")
    if timestamp >= 0:
        return
    first = _SINCE.get(timestamp)
    if first is None or version < first:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} in version {version}")


def make(parts: HandlerParts) -> ListOffsetsHandler:
    """Make the handler of ListOffsets."""
    live = parts.live
    return ListOffsetsHandler(
        parts.replicas,
        clock=parts.ports.clock,
        pool=parts.ports.executors.reads,
        holding=parts.holding,
        remote=parts.tier,
        remote_timeout_ms=lambda: live.current.remote_list_offsets_request_timeout_ms,
    )
