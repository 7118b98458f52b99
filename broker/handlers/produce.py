"""Produce (0): append what producers send.

The records of a request are views into the frame; each partition's batch is checked by its header,
patched and appended at once, so nothing is kept of the frame. Only the answer may have to wait,
where acks=-1 asks for a commit that needs an fsync.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.handlers.errors_out import code_of, message_of
from broker.handlers.produce_codec import PartitionAnswer, encode_answer
from broker.handlers.registry import CloseConnection, Handler, RequestContext
from broker.replica.errors import UnknownTopicId
from broker.replica.manager import REMOTE_LOG_METADATA_TOPIC, ReplicaManager
from broker.replica.partition import Partition
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from local_log.errors import InvalidRecord, UnsupportedCompression

CLIENT_FORBIDDEN_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Only the coordinators of the broker write here."""

_ZSTD: Final = 4
_ATTRIBUTES_LOW: Final = 22
"""Position of the attribute byte that holds the codec and the transactional bit."""
_CODEC_MASK: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_FIRST_VERSION_WITH_ZSTD: Final = 7
_FIRST_VERSION_WITH_IDS: Final = 13

_decode = request(ApiKey.PRODUCE).decode

TopicAnswer = tuple[Any, list[PartitionAnswer]]
"""Topic name (str) or id (bytes), and the answers of its partitions."""


@dataclass(slots=True)
class _Pending:
    """An append that is answered when it is committed."""

    partition: Partition
    end_offset: int
    answers: list[PartitionAnswer]
    index: int


class ProduceHandler:
    """Serves Produce 3-13."""

    def __init__(self, replicas: ReplicaManager, tier_client_id: str | None) -> None:
        """Append to the partitions of `replicas`.

        Args:
            replicas: what is hosted here.
            tier_client_id: the secret client id that alone may write `__remote_log_metadata`; None
                while there is no tier.
        """
        self._replicas = replicas
        self._tier_client_id = tier_client_id

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        """Serve one request; see `RawFn`."""
        asked, _ = _decode(frame, context.api_version, offset)
        refused = self._refused_as_a_whole(asked)
        if refused is not None:
            if asked.acks == 0:
                raise CloseConnection(f"produce with acks=0 refused: {refused.name}")
            return encode_answer(context.api_version, _all_refused(asked, context, refused))
        with_ids = context.api_version >= _FIRST_VERSION_WITH_IDS
        waiting: list[_Pending] = []
        topics: list[TopicAnswer] = []
        for topic in asked.topic_data:
            answers: list[PartitionAnswer] = []
            name: str | None
            if with_ids:
                name = self._replicas.topic_names.get(topic.topic_id)
                topics.append((topic.topic_id, answers))
            else:
                name = topic.name
                topics.append((name, answers))
            for data in topic.partition_data:
                answers.append(self._append(context, name, data, asked.acks, answers, waiting))
        if asked.acks == 0:
            self._close_on_error(topics)
            return None
        if waiting:
            return self._answer_later(context, topics, waiting, asked.timeout_ms)
        return encode_answer(context.api_version, topics)

    # -- one partition

    def _append(
        self,
        context: RequestContext,
        topic: str | None,
        data: Any,
        acks: int,
        answers: list[PartitionAnswer],
        waiting: list[_Pending],
    ) -> PartitionAnswer:
        index, records = data.index, data.records
        partition: Partition | None = None
        try:
            partition = self._partition(context, topic, index)
            counters = partition.counters
            counters.produce_requests.value += 1
            _check_records(records, context.api_version)
            info = partition.append(records, now_ms=context.received_ms, required_acks=acks)
        except Exception as error:  # noqa: BLE001 - becomes this partition's answer
            return _failed(index, error, partition, records)
        if not info.is_duplicate:
            counters.bytes_in.value += len(records)
            counters.messages_in.value += info.last_offset - info.first_offset + 1
        if acks == -1 and partition.durable:
            end_offset = info.last_offset + 1
            if partition.high_watermark < end_offset:
                waiting.append(_Pending(partition, end_offset, answers, len(answers)))
        return (
            index,
            0,
            info.first_offset,
            info.log_append_time_ms,
            info.log_start_offset,
            (),
            None,
        )

    def _partition(self, context: RequestContext, topic: str | None, index: int) -> Partition:
        if topic is None:
            raise UnknownTopicId("no topic has this id")
        partition = self._replicas.partitions.get(TopicPartition(topic, index))
        if partition is None or partition.is_internal:
            self._check_topic(context, topic)
            partition = self._replicas.require(topic, index)
        return partition

    def _check_topic(self, context: RequestContext, topic: str) -> None:
        """Keep clients out of topics that are not theirs to write."""
        if topic in CLIENT_FORBIDDEN_TOPICS:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, "clients do not write to internal topics"
            )
        if topic == REMOTE_LOG_METADATA_TOPIC and (
            self._tier_client_id is None or context.client_id != self._tier_client_id
        ):
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"only the tier writes to {topic}")

    # -- the whole request

    def _refused_as_a_whole(self, asked: Any) -> ErrorCode | None:
        """Say why no partition of this request can be served, None if they can."""
        if asked.acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS
        for topic in asked.topic_data:
            for data in topic.partition_data:
                records = data.records
                if (
                    records is not None
                    and len(records) > _ATTRIBUTES_LOW
                    and records[_ATTRIBUTES_LOW] & _TRANSACTIONAL
                ):
                    # No transactional id is ever authorised while there are no transactions.
                    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return None

    def _close_on_error(self, topics: Sequence[TopicAnswer]) -> None:
        """With acks=0 the end of the connection is the only way to say that something failed."""
        for _, answers in topics:
            for answer in answers:
                if answer[1]:
                    raise CloseConnection(
                        f"produce with acks=0 failed: {ErrorCode(answer[1]).name}"
                    )

    async def _answer_later(
        self,
        context: RequestContext,
        topics: Sequence[TopicAnswer],
        waiting: Sequence[_Pending],
        timeout_ms: int,
    ) -> list[object]:
        futures = {}
        for pending in waiting:
            future = pending.partition.committed(pending.end_offset)
            if future is not None:
                futures[future] = pending
        if futures:
            await asyncio.wait(futures, timeout=max(timeout_ms, 0) / 1000)
        for future, pending in futures.items():
            error: BaseException | None
            if future.done():
                error = future.exception()
            else:
                future.cancel()
                error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "not committed in time")
            if error is not None:
                index = pending.answers[pending.index][0]
                pending.answers[pending.index] = _failed(index, error, pending.partition, None)
        return encode_answer(context.api_version, topics)


def _check_records(records: memoryview | None, version: int) -> None:
    """Check what depends on the request and not on the log."""
    if records is None:
        raise InvalidRecord("a partition without a record batch")
    if (
        version < _FIRST_VERSION_WITH_ZSTD
        and len(records) > _ATTRIBUTES_LOW
        and records[_ATTRIBUTES_LOW] & _CODEC_MASK == _ZSTD
    ):
        raise UnsupportedCompression(_ZSTD)


def _failed(
    index: int, error: Exception | BaseException, partition: Partition | None, records: Any
) -> PartitionAnswer:
    if partition is not None:
        partition.counters.failed_produce.value += 1
        if records is not None:
            partition.counters.bytes_rejected.value += len(records)
    log_start_offset = -1
    record_errors = getattr(error, "record_errors", ())
    if record_errors and partition is not None:
        log_start_offset = partition.log.log_start_offset
    code = int(code_of(error, "append"))
    return (index, code, -1, -1, log_start_offset, record_errors, message_of(error))


def _all_refused(asked: Any, context: RequestContext, code: ErrorCode) -> list[TopicAnswer]:
    with_ids = context.api_version >= _FIRST_VERSION_WITH_IDS
    return [
        (
            topic.topic_id if with_ids else topic.name,
            [(data.index, int(code), -1, -1, -1, (), None) for data in topic.partition_data],
        )
        for topic in asked.topic_data
    ]


def _never(context: RequestContext, request: Any) -> Any:
    raise AssertionError("Produce is served by its raw form")


def make(replicas: ReplicaManager, *, tier_client_id: str | None = None) -> Handler:
    """Make the handler of Produce: 0-13 are advertised, 3-13 served."""
    handler = ProduceHandler(replicas, tier_client_id)
    return Handler(ApiKey.PRODUCE, 3, 13, _never, advertised_min_version=0, raw=handler.raw)
