"""ListOffsets (2): offsets by time, and the special ones of a partition that lies in two tiers.

| timestamp | asks for | from version |
|---|---|---|
| -1 | latest: high watermark, or last stable offset for read committed | 1 |
| -2 | earliest: the log start, wherever it lies | 1 |
| -3 | the record with the largest timestamp, among the local ones | 7 |
| -4 | earliest local | 8 |
| -5 | latest in the remote tier, -1 without | 9 |
| -6 | earliest that is not in the remote tier yet | 11 |

A time is looked up in the remote tier first, because its records are older, then locally.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from broker.handlers.errors_out import code_of
from broker.handlers.holding import Holding
from broker.handlers.registry import Handler, RequestContext
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from rlm.judgement import Judgement
from runtime.clock import Clock
from runtime.executors import Pool

_Response: Final = response(ApiKey.LIST_OFFSETS).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_FIRST_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_FIRST_WITH_TIMEOUT: Final = 10
_READ_COMMITTED: Final = 1
_JUDGEMENT_WAIT_MAX_MS: Final = 5_000

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch; -1 where there is none."""
NOT_FOUND: Final[Found] = (-1, -1, -1)


class RemoteOffsets(Protocol):
    """What ListOffsets needs of the remote tier."""

    def offset_for_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, deadline_ms: int
    ) -> "asyncio.Future[Found | None]":
        """First remote record at or after a time; fails with a KafkaError."""
        ...

    def highest_tiered_offset(self, topic_partition: TopicPartition) -> int:
        """Last offset (inclusive) in the remote tier, -1 if none."""
        ...

    def earliest_pending_upload(self, topic_partition: TopicPartition) -> int:
        """First offset that is not in the remote tier, -1 if unknown."""
        ...


class ListOffsetsHandler:
    """Serves ListOffsets 1-11."""

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        clock: Clock,
        pool: Pool,
        holding: Holding,
        remote: RemoteOffsets | None,
        remote_timeout_ms: Callable[[], int],
    ) -> None:
        """Look into the partitions of `replicas`.

        Args:
            replicas: what is hosted here.
            clock: for deadlines.
            pool: reads segments for look-ups by time (log-io).
            holding: waits for judgements.
            remote: None where there is no remote tier.
            remote_timeout_ms: `remote.list.offsets.request.timeout.ms` now.
        """
        self._replicas, self._clock, self._pool = replicas, clock, pool
        self._remote, self._remote_timeout_ms = remote, remote_timeout_ms
        self._holding = holding

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer one request; its partitions are looked up side by side."""
        timeout_ms = self._remote_timeout_ms()
        if context.api_version >= _FIRST_WITH_TIMEOUT and request.timeout_ms > 0:
            timeout_ms = min(timeout_ms, request.timeout_ms)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        committed = request.isolation_level == _READ_COMMITTED
        by_topic: dict[str, list[Any]] = {}
        for topic in request.topics:
            if topic.partitions:
                by_topic.setdefault(topic.name, []).extend(topic.partitions)
        topics = []
        for name, partitions in by_topic.items():
            counts = Counter(asked.partition_index for asked in partitions)
            answers = await asyncio.gather(
                *(
                    self._answer(context, name, asked, committed, deadline_ms, counts)
                    for asked in _first_of_each(partitions)
                )
            )
            topics.append(_Topic(name=name, partitions=answers))
        return _Response(topics=topics)

    async def _answer(
        self,
        context: RequestContext,
        topic: str,
        asked: Any,
        committed: bool,
        deadline_ms: int,
        counts: "Counter[int]",
    ) -> Any:
        index = asked.partition_index
        try:
            _check_timestamp(asked.timestamp, context.api_version, counts[index])
            partition = self._replicas.require(topic, index)
            partition.check_leader(asked.current_leader_epoch)
            found = await self._find(partition, asked.timestamp, committed, deadline_ms)
        except Exception as error:  # noqa: BLE001 - becomes this partition's answer
            return _Partition(partition_index=index, error_code=int(code_of(error, "list offsets")))
        timestamp, offset, epoch = found
        return _Partition(
            partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=epoch
        )

    async def _find(
        self, partition: Partition, timestamp: int, committed: bool, deadline_ms: int
    ) -> Found:
        log = partition.log
        visible_end = partition.last_stable_offset if committed else partition.high_watermark
        if timestamp == LATEST:
            partition.check_log_end()
            return (-1, visible_end, partition.leader_epoch)
        if timestamp == EARLIEST:
            partition.check_log_start_known()
            return (-1, log.log_start_offset, self._epoch_of(partition, log.log_start_offset))
        if timestamp == EARLIEST_LOCAL:
            start = max(log.local_log_start_offset, log.log_start_offset)
            return (-1, start, self._epoch_of(partition, start))
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return self._tiered(partition, timestamp)
        found: Found | None
        if timestamp == MAX_TIMESTAMP:
            found = await self._pool.run(log.max_timestamp)
        else:
            found = await self._by_time(partition, timestamp, deadline_ms)
        if found is None or found[1] >= visible_end:
            if timestamp >= 0:
                await self._judged(partition, deadline_ms)
                partition.check_sound()
            return NOT_FOUND
        return found

    async def _judged(self, partition: Partition, deadline_ms: int) -> None:
        """Wait where a judgement is still to come: who asks by time asks once."""
        if not partition.is_sound and partition.verdict is Judgement.OPEN:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            await self._holding.until_sound([partition], min(left_ms, _JUDGEMENT_WAIT_MAX_MS))

    def _tiered(self, partition: Partition, timestamp: int) -> Found:
        if self._remote is None or not partition.log.config.remote_storage_enable:
            return NOT_FOUND
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
            found = await self._pool.run(log.offset_for_timestamp, timestamp)
            if log.local_log_start_offset == local_start:
                return found
            # What left the local log meanwhile was not looked through, perhaps in neither tier.

    @staticmethod
    def _epoch_of(partition: Partition, offset: int) -> int:
        is_remote = offset < partition.log.first_base_offset
        if is_remote and (partition.is_chain_lost or not partition.is_sound):
            return -1  # a consumer would validate its position by it
        epoch = partition.log.epochs.epoch_for(offset)
        return -1 if epoch is None else epoch


def _first_of_each(partitions: Sequence[Any]) -> list[Any]:
    """A partition that is named twice is answered once, and refused (`_check_timestamp`)."""
    return list({asked.partition_index: asked for asked in reversed(partitions)}.values())[::-1]


def _check_timestamp(timestamp: int, version: int, times_asked: int) -> None:
    if times_asked > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the same partition twice")
    if timestamp >= 0:
        return
    first = _FIRST_VERSION.get(timestamp)
    if first is None or version < first:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} in version {version}")


def make(
    replicas: ReplicaManager,
    *,
    clock: Clock,
    pool: Pool,
    holding: Holding,
    remote: RemoteOffsets | None = None,
    remote_timeout_ms: Callable[[], int] = lambda: 30_000,
) -> Handler:
    """Make the handler of ListOffsets 1-11."""
    handler = ListOffsetsHandler(
        replicas,
        clock=clock,
        pool=pool,
        holding=holding,
        remote=remote,
        remote_timeout_ms=remote_timeout_ms,
    )
    return Handler(ApiKey.LIST_OFFSETS, 1, 11, handler.handle)
