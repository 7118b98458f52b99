"""DeleteRecords (21): raise the log start of partitions.

The answer leaves when the new log start is checkpointed and fsynced, here and on every in-sync
follower. If a log start fell back after a crash, records that were reported as deleted would be
visible again. The remote tier may have deleted some of them by then (docs/tiering.md §3).

Versions:

* 0: offsets to delete up to (KIP-107).
* 1: no new field; the client waits out a throttle, not the broker (KIP-219).
* 2: flexible (KIP-482).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.handlers.errors_out import code_of
from broker.handlers.holding import Holding
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.replica.manager import ReplicaManager
from broker.replica.partition import BROKER_OWNED_TOPICS, Partition
from broker.topics.cluster import GUARDED_TOPICS
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from local_log.errors import OffsetOutOfRange
from runtime.executors import Pool
from runtime.work import Pace, Steps, run_in_steps

_Response: Final = response(ApiKey.DELETE_RECORDS).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions

UP_TO_HIGH_WATERMARK: Final = -1
_UNITS: Final = 5
"""Approximate microseconds to raise or publish one log start."""


class _Raised(NamedTuple):
    """A log start raised in memory, and the leader epoch at that time."""

    answer: Any
    partition: Partition
    leader_epoch: int


class DeleteRecordsHandler(DecodedHandler):
    """Serves DeleteRecords 0-2."""

    api_key = ApiKey.DELETE_RECORDS
    versions = Versions(0, 2)

    def __init__(self, replicas: ReplicaManager, pool: Pool, holding: Holding) -> None:
        """Checkpoints are written on `pool`; `holding` waits for log validations."""
        self._replicas, self._pool, self._holding = replicas, pool, holding

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Raise log starts; answers when each is durable, has failed, or the time is up."""
        by_topic: dict[str, dict[int, Any]] = {}
        for topic in request.topics:  # the last entry of a partition counts, as in Kafka
            by_topic.setdefault(topic.name, {}).update(
                (asked.partition_index, asked) for asked in topic.partitions
            )
        ends = asyncio.get_running_loop().time() + max(request.timeout_ms, 0) / 1_000
        await self._holding.until_validated(self._asked_above(by_topic), request.timeout_ms)
        await self._until_settled(by_topic, ends)
        topics, raised = await run_in_steps(self._raise_all(by_topic))
        if raised:
            await self._make_durable(raised)
            await self._until_cut_everywhere(raised, ends)
        return _Response(topics=topics)

    async def _until_settled(self, by_topic: Mapping[str, Mapping[int, Any]], ends: float) -> None:
        """Wait for new leaders that do not have their high watermark yet."""
        found = (
            self._replicas.get(TopicPartition(name, index))
            for name, partitions in by_topic.items()
            for index in partitions
        )
        waits = (each.until_settled() for each in found if each is not None and each.is_leader)
        futures = [each for each in waits if each is not None]
        await _wait(futures, ends)
        for future in futures:
            future.cancel()  # a change of leader is found below

    async def _until_cut_everywhere(self, raised: list[_Raised], ends: float) -> None:
        """Wait until no in-sync follower could become leader with a lower log start."""
        waiting = {}
        for answer, partition, _ in raised:
            if answer.error_code == 0:
                future = partition.cut_everywhere(answer.low_watermark)
                if future is not None:
                    waiting[future] = answer
        await _wait(list(waiting), ends)
        for future, answer in waiting.items():
            if not future.done():
                future.cancel()
                answer.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
            elif (error := future.exception()) is not None:
                answer.error_code = int(code_of(error, "delete records"))
            if answer.error_code:
                answer.low_watermark = -1

    def _asked_above(self, by_topic: Mapping[str, Mapping[int, Any]]) -> list[Partition]:
        """Partitions whose requested offset is above a high watermark that may still be too low."""
        found = (
            (self._replicas.get(TopicPartition(name, index)), asked.offset)
            for name, partitions in by_topic.items()
            for index, asked in partitions.items()
        )
        return [each for each, offset in found if each is not None and offset > each.high_watermark]

    def _raise_all(
        self, by_topic: Mapping[str, Mapping[int, Any]]
    ) -> Steps[tuple[list[Any], list[_Raised]]]:
        """Raise log starts in memory; returns the answers, and the raised ones."""
        topics: list[Any] = []
        raised: list[_Raised] = []
        pace = Pace()
        for name, partitions in by_topic.items():
            answers = []
            for asked in partitions.values():
                answer = _Partition(partition_index=asked.partition_index, low_watermark=-1)
                answers.append(answer)
                try:
                    partition = self._raise(name, asked.partition_index, asked.offset)
                except Exception as error:  # noqa: BLE001 - becomes this partition's answer
                    answer.error_code = int(code_of(error, "delete records"))
                else:
                    raised.append(_Raised(answer, partition, partition.leader_epoch))
                if pace.is_step_over(_UNITS):
                    yield
            topics.append(_Topic(name=name, partitions=answers))
        return topics, raised

    def _raise(self, topic: str, index: int, offset: int) -> Partition:
        # DIFFERS: refused as KIP-630 promises; Kafka 4.x does not guard these names.
        if topic in GUARDED_TOPICS:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"records of {topic} are not deleted")
        if topic in BROKER_OWNED_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        partition = self._replicas.require(topic, index)
        partition.check_leader(-1)
        partition.check_watermark_settled()
        log = partition.log
        if not log.config.deletes:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not have `delete`"
            )
        high_watermark = partition.high_watermark
        wanted = high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
        if not 0 <= wanted <= high_watermark:
            if wanted > high_watermark:
                partition.check_sound()
            raise OffsetOutOfRange(asked=wanted, start=log.log_start_offset, end=high_watermark)
        if wanted < log.local_log_start_offset:
            partition.check_log_start_known()
        if wanted > log.log_start_offset or not log.log_start_known:
            log.raise_log_start(wanted)
        return partition

    async def _make_durable(self, raised: list[_Raised]) -> None:
        kept = {partition: partition.log.log_start_offset for _, partition, _ in raised}
        partitions = [partition.topic_partition for partition in kept]
        failed = await self._pool.run(self._replicas.logs.keep_log_starts, partitions)
        await run_in_steps(self._publish(raised, kept, failed))

    @staticmethod
    def _publish(
        raised: Sequence[_Raised],
        kept: Mapping[Partition, int],
        failed: Mapping[TopicPartition, KafkaError],
    ) -> Steps[None]:
        pace = Pace()
        for answer, partition, leader_epoch in raised:
            if pace.is_step_over(_UNITS):
                yield
            error = failed.get(partition.topic_partition)
            if error is not None:
                answer.error_code = int(code_of(error, "checkpoint log starts"))
                continue
            if not partition.is_leader or partition.leader_epoch != leader_epoch:
                # Another leader, now or in between, may not have the new log start. A follower has
                # leased its log, so its epoch chain must not be changed here.
                answer.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            partition.log.clip_chain(kept[partition])
            answer.low_watermark = kept[partition]  # may be higher by now, but not durable
            partition.log_start_raised()


async def _wait(futures: list[asyncio.Future[None]], ends: float) -> None:
    """Wait until all are done or `ends` (event loop time) has passed."""
    if futures:
        left_s = ends - asyncio.get_running_loop().time()
        await asyncio.wait(futures, timeout=max(left_s, 0))


def make(parts: HandlerParts) -> DeleteRecordsHandler:
    """Make the handler of DeleteRecords."""
    return DeleteRecordsHandler(parts.replicas, parts.ports.executors.commit, parts.holding)
