"""Produce (0): appends batches of producers.

The records of a request are views into the frame. Each partition's batch is checked by its header,
patched and appended at once, so the frame is not kept. Only the answer may wait, if acks=-1 needs a
commit with an fsync. Very many batches are appended in slices, and later requests of the connection
do not overtake them.

Versions:

* 3: the lowest with batches of format 2; others are refused; transactional id (KIP-98). 0 to 2 are
  advertised, but not served.
* 4: no new field; KAFKA_STORAGE_ERROR may be answered (KIP-112).
* 5: log start offset, with which a producer distinguishes deleted records from lost ones
  (KAFKA-5793).
* 6: no new field; the client waits out a throttle, not the broker (KIP-219).
* 7: no new field; zstd (KIP-110).
* 8: indexes of invalid records, and an error text (KIP-467).
* 9: flexible (KIP-482).
* 10: the new leader and its endpoint (KIP-951).
* 11: no new field; TRANSACTION_ABORTABLE may be answered (KIP-890).
* 12: no new field; a transactional batch adds its partition to the transaction (KIP-890).
* 13: topics by id instead of name (KIP-516).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from broker.handlers import produce_versions as since
from broker.handlers.errors_out import code_of, message_of
from broker.handlers.long_answers import Answering, answer_or_future, until_all_done
from broker.handlers.parts import HandlerParts
from broker.handlers.produce_codec import PartitionAnswer, encode_answer
from broker.handlers.produce_outline import SLICE_BYTES, SLICE_PARTITIONS, Outline, is_wide
from broker.network.dispatch import decoders
from broker.network.registry import (
    CloseConnection,
    OrderedAnswer,
    RawHandler,
    RequestContext,
    own_body,
)
from broker.remote.config import TIER_PRINCIPAL
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.topics.cluster import Addresses, nowhere
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError, UnknownTopicId
from kafka_protocol.records.batch import CODEC_MASK, TRANSACTIONAL_FLAG, Codec, read_header
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from kafka_protocol.wire.schema import Versions
from local_log.errors import InvalidRecord, MustBeOpened, UnsupportedCompression
from local_log.log.opened_batches import Opening, opened
from local_log.log.results import AppendInfo
from runtime.executors import Executors, InlinePool
from runtime.work import Steps, run_in_steps

CLIENT_FORBIDDEN_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Only the broker's coordinators write to these topics."""

_ATTRIBUTES_LOW: Final = 22
"""Position of the attribute byte that holds the codec and the transactional bit."""

_IF_SHORT: Final = Opening.IF_SHORT

_decode = request(ApiKey.PRODUCE).decode

TopicAnswer = tuple[Any, list[PartitionAnswer]]
"""Topic name (str) or id (bytes), and the answers of its partitions."""


@dataclass(slots=True)
class _Pending:
    """An append whose answer waits for its commit."""

    partition: Partition
    end_offset: int
    leader_epoch: int
    answers: list[PartitionAnswer]
    index: int


@dataclass(slots=True)
class _Unopened:
    """A batch that a thread must decompress before it is appended."""

    partition: Partition
    records: bytearray | memoryview
    answers: list[PartitionAnswer]
    index: int


_Waiting = list[_Pending | _Unopened]


class ProduceHandler(RawHandler):
    """Serves Produce 3-13."""

    api_key = ApiKey.PRODUCE
    versions = Versions(3, 13)
    advertised_min_version = 0
    is_change = True

    def __init__(
        self,
        replicas: ReplicaManager,
        executors: Executors | None = None,
        addresses: Addresses = nowhere,
    ) -> None:
        """Append to the partitions of `replicas`.

        Args:
            replicas: Partitions hosted here.
            executors: Threads that decode wide requests and decompress batches; None: no threads.
            addresses: Returns the brokers' endpoints for a listener.
        """
        self._replicas, self._addresses = replicas, addresses
        inline = InlinePool("inline")
        self._decoding = inline if executors is None else decoders(executors)
        self._opening = inline if executors is None else executors.pool("batch-opening", 2)

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        """Append the batches; a wide request is served in slices."""
        if is_wide(context.api_version, frame, offset):
            outline = Outline(context.api_version, own_body(frame, offset))
            serve = partial(self._serve_wide, context, outline)
            # With acks=0 a client may disconnect without waiting.
            return OrderedAnswer(
                serve, outline.elements_max, outline.count, continues=outline.acks == 0
            )
        asked, _ = _decode(frame, context.api_version, offset)
        refused = self._refused_as_a_whole(asked)
        if refused is not None:
            return _refuse(asked, context, refused)
        waiting: _Waiting = []
        topics: list[TopicAnswer] = []
        # `_append_all` without slices, which would cost 5% of the CPU
        for topic in asked.topic_data:
            name, answers = self._topic(context, topic, topics)
            for data in topic.partition_data:
                answers.append(self._append(context, name, data, asked.acks, answers, waiting))
        if waiting:
            return self._answer_later(context, asked, topics, waiting)
        if asked.acks == 0:
            self._close_on_error(topics)
            return None
        return self._encoded(context, topics)

    # -- in slices

    async def _serve_wide(
        self, context: RequestContext, outline: Outline, in_order: OrderedAnswer
    ) -> list[object] | None:
        """Serve a wide request; from the first append on, even if the client disconnects."""
        version = context.api_version
        codes = await self._decoding.run(self._refused_by_name, context, outline)
        if codes is not None:
            if outline.acks == 0:
                raise CloseConnection(f"produce with acks=0 refused: {codes[0].name}")
            return await self._decoding.run(outline.refusal, codes)
        asked, _ = await self._decoding.run(_decode, outline.body, version, 0)
        refused = await self._decoding.run(self._refused_as_a_whole, asked)
        if refused is not None:
            return await self._decoding.run(_refuse, asked, context, refused)
        in_order.continues = True
        waiting: _Waiting = []
        topics = await run_in_steps(self._append_all(context, asked, waiting))
        await self._finish(context, asked, topics, waiting)
        if asked.acks == 0:
            return None
        return await self._decoding.run(self._encoded, context, topics)

    # -- the appends

    def _append_all(
        self, context: RequestContext, asked: Any, waiting: _Waiting
    ) -> Steps[list[TopicAnswer]]:
        """Append in the order of a wide request; yields between slices."""
        topics: list[TopicAnswer] = []
        count = size_bytes = 0
        for topic in asked.topic_data:
            name, answers = self._topic(context, topic, topics)
            for data in topic.partition_data:
                length = 0 if data.records is None else len(data.records)
                if count >= SLICE_PARTITIONS or (count and size_bytes + length > SLICE_BYTES):
                    yield
                    count = size_bytes = 0
                    name = self._name(context, topic)  # the topic may be deleted by now
                answers.append(self._append(context, name, data, asked.acks, answers, waiting))
                count += 1
                size_bytes += length
            if not answers:  # an empty topic costs as much as a partition
                count += 1
                if count >= SLICE_PARTITIONS:
                    yield
                    count = size_bytes = 0
        return topics

    def _topic(
        self, context: RequestContext, topic: Any, topics: list[TopicAnswer]
    ) -> tuple[str | None, list[PartitionAnswer]]:
        """Add an empty answer of a topic; returns its name (None: unknown id) and that answer."""
        answers: list[PartitionAnswer] = []
        with_ids = context.api_version >= since.TOPIC_IDS
        topics.append((topic.topic_id if with_ids else topic.name, answers))
        return self._name(context, topic), answers

    def _name(self, context: RequestContext, topic: Any) -> str | None:
        if context.api_version >= since.TOPIC_IDS:
            return self._replicas.topic_names.get(topic.topic_id)
        name: str = topic.name
        return name

    def _append(
        self,
        context: RequestContext,
        topic: str | None,
        data: Any,
        acks: int,
        answers: list[PartitionAnswer],
        waiting: _Waiting,
    ) -> PartitionAnswer:
        index, records = data.index, data.records
        partition: Partition | None = None
        try:
            partition = self._partition(context, topic, index)
            counters = partition.counters
            counters.produce_requests.value += 1
            _check_records(records, context.api_version)
            info = partition.append(
                records, now_ms=context.received_ms, required_acks=acks, opening=_IF_SHORT
            )
        except MustBeOpened:
            assert partition is not None
            waiting.append(_Unopened(partition, records, answers, len(answers)))
            return (index, 0, -1, -1, -1, (), None)
        except Exception as error:  # noqa: BLE001 - becomes this partition's answer
            return _failed(index, error, partition, records)
        return _appended(partition, info, len(records), acks, answers, len(answers), waiting)

    def _partition(self, context: RequestContext, topic: str | None, index: int) -> Partition:
        if topic is None:
            raise UnknownTopicId("no topic has this id")
        partition = self._replicas.partitions.get(TopicPartition(topic, index))
        if partition is None or partition.is_internal:
            self._check_topic(context, topic)
            partition = self._replicas.require(topic, index)
        return partition

    def _check_topic(self, context: RequestContext, topic: str) -> None:
        """Refuse topics that clients must not write to."""
        if topic in CLIENT_FORBIDDEN_TOPICS:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, "clients do not write to internal topics"
            )
        if topic == REMOTE_LOG_METADATA_TOPIC and context.session.principal != TIER_PRINCIPAL:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"only the tier writes to {topic}")

    # -- the whole request

    def _refused_by_name(
        self, context: RequestContext, outline: Outline
    ) -> Sequence[ErrorCode] | None:
        """The errors of all topics if nothing of a wide request can be appended; else None.

        Runs on a thread: there may be 100,000 topics.
        """
        if not outline.topics:
            return None
        if outline.acks not in (-1, 0, 1):
            return [ErrorCode.INVALID_REQUIRED_ACKS] * len(outline.topics)
        codes: list[ErrorCode] = []
        with_ids = context.api_version >= since.TOPIC_IDS
        for key, _, _, _ in outline.topics:
            name = self._replicas.topic_names.get(key) if with_ids else key
            if name is None:
                codes.append(ErrorCode.UNKNOWN_TOPIC_ID)
                continue
            try:
                self._check_topic(context, name)
            except KafkaError as refused:
                codes.append(refused.code)
            else:
                if name in self._replicas.topic_ids:
                    return None
                codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return codes

    def _refused_as_a_whole(self, asked: Any) -> ErrorCode | None:
        """The error if no partition of the request can be served; else None."""
        if asked.acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS
        for topic in asked.topic_data:
            for data in topic.partition_data:
                records = data.records
                if (
                    records is not None
                    and len(records) > _ATTRIBUTES_LOW
                    and records[_ATTRIBUTES_LOW] & TRANSACTIONAL_FLAG
                ):
                    # Without transactions no transactional id is authorised.
                    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return None

    def _close_on_error(self, topics: Sequence[TopicAnswer]) -> None:
        """Report an error with acks=0: only the end of the connection can."""
        for _, answers in topics:
            for answer in answers:
                if answer[1]:
                    raise CloseConnection(
                        f"produce with acks=0 failed: {ErrorCode(answer[1]).name}"
                    )

    def _answer_later(
        self, context: RequestContext, asked: Any, topics: Sequence[TopicAnswer], waiting: _Waiting
    ) -> Any:
        unopened = False
        for each in waiting:
            if type(each) is _Unopened:
                each.records, unopened = bytearray(each.records), True  # the frame is recycled
        if unopened:
            return OrderedAnswer(
                lambda _: self._finished_answer(context, asked, topics, waiting), continues=True
            )
        return answer_or_future(self._committed_answer(context, asked, topics, waiting))

    def _committed_answer(
        self, context: RequestContext, asked: Any, topics: Sequence[TopicAnswer], waiting: _Waiting
    ) -> Answering[list[object]]:
        """Like `_finished_answer` for a request without unopened batches: needs no task."""
        yield from self._committed(waiting, asked.timeout_ms)
        return self._encoded(context, topics)

    async def _finished_answer(
        self, context: RequestContext, asked: Any, topics: Sequence[TopicAnswer], waiting: _Waiting
    ) -> list[object] | None:
        await self._finish(context, asked, topics, waiting)
        return None if asked.acks == 0 else self._encoded(context, topics)

    def _encoded(self, context: RequestContext, topics: Sequence[TopicAnswer]) -> list[object]:
        """Encode the answer, with the current leaders of partitions that are not led here."""
        if context.api_version < since.CURRENT_LEADER or not any(
            answer[1] == ErrorCode.NOT_LEADER_OR_FOLLOWER
            for _, answers in topics
            for answer in answers
        ):
            return encode_answer(context.api_version, topics)
        with_ids = context.api_version >= since.TOPIC_IDS
        leaders = {}
        for topic, answers in topics:
            name = self._replicas.topic_names.get(topic, "") if with_ids else topic
            for answer in answers:
                if answer[1] == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader = self._replicas.leader(TopicPartition(name, answer[0]))
                    if leader is not None:
                        leaders[topic, answer[0]] = leader
        ids = {leader_id for leader_id, _ in leaders.values()}
        endpoints = [one for one in self._addresses(context.listener_name) if one.id in ids]
        return encode_answer(context.api_version, topics, leaders, endpoints)

    async def _finish(
        self, context: RequestContext, asked: Any, topics: Sequence[TopicAnswer], waiting: _Waiting
    ) -> None:
        """Append batches that a thread decompresses first, and wait for commits.

        Raises:
            CloseConnection: An append failed, and acks=0 has no other answer.
        """
        pending: _Waiting = []
        for each in waiting:
            if type(each) is _Unopened:
                each.answers[each.index] = await self._open(context, each, asked.acks, pending)
            else:
                pending.append(each)
        if asked.acks == 0:
            self._close_on_error(topics)
        else:
            committed = answer_or_future(self._committed(pending, asked.timeout_ms))
            if committed is not None:
                await committed

    async def _open(
        self, context: RequestContext, unopened: _Unopened, acks: int, waiting: _Waiting
    ) -> PartitionAnswer:
        """Decompress a batch on a thread, and append the result."""
        partition, records = unopened.partition, unopened.records
        answers, place = unopened.answers, unopened.index
        index = answers[place][0]
        try:
            header, now_ms = read_header(records), context.received_ms
            config = partition.log.config
            ready = await self._opening.run(opened, records, header, config, now_ms)
            info = partition.append(ready, now_ms=now_ms, required_acks=acks, opening=Opening.DONE)
        except Exception as error:  # noqa: BLE001 - becomes this partition's answer
            return _failed(index, error, partition, records)
        return _appended(partition, info, len(records), acks, answers, place, waiting)

    def _committed(self, waiting: _Waiting, timeout_ms: int) -> Answering[None]:
        """Wait for commits; an append that is not committed in time gets an error."""
        futures = {}
        for pending in waiting:
            assert type(pending) is _Pending
            future = pending.partition.committed(
                pending.end_offset, leader_epoch=pending.leader_epoch
            )
            if future is not None:
                futures[future] = pending
        if futures:
            yield from until_all_done(futures, timeout_s=max(timeout_ms, 0) / 1000)
        for future, pending in futures.items():
            error: BaseException | None
            if future.done():
                error = future.exception()
            else:
                future.cancel()
                error = pending.partition.not_committed_error()
            if error is not None:
                index = pending.answers[pending.index][0]
                pending.answers[pending.index] = _failed(index, error, pending.partition, None)


def _check_records(records: memoryview | None, version: int) -> None:
    """Check the part that depends on the request and not on the log."""
    if records is None:
        raise InvalidRecord("a partition without a record batch")
    if (
        version < since.ZSTD
        and len(records) > _ATTRIBUTES_LOW
        and records[_ATTRIBUTES_LOW] & CODEC_MASK == Codec.ZSTD
    ):
        raise UnsupportedCompression(Codec.ZSTD)


def _appended(
    partition: Partition,
    info: AppendInfo,
    size_bytes: int,
    acks: int,
    answers: list[PartitionAnswer],
    place: int,
    waiting: _Waiting,
) -> PartitionAnswer:
    """The answer of an append; added to `waiting`, with its `place`, if it needs a commit."""
    if not info.is_duplicate:
        counters = partition.counters
        counters.bytes_in.value += size_bytes
        counters.messages_in.value += info.last_offset - info.first_offset + 1
    is_slow = partition.followers is not None or partition.is_flushing or partition.durable
    if is_slow and partition.waits_for_commit(acks):
        end_offset = info.last_offset + 1
        if partition.high_watermark < end_offset:
            epoch = partition.leader_epoch
            waiting.append(_Pending(partition, end_offset, epoch, answers, place))
    return (
        partition.partition,
        0,
        info.first_offset,
        info.log_append_time_ms,
        info.log_start_offset,
        (),
        None,
    )


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


def _refuse(asked: Any, context: RequestContext, code: ErrorCode) -> list[object]:
    if asked.acks == 0:
        raise CloseConnection(f"produce with acks=0 refused: {code.name}")
    with_ids = context.api_version >= since.TOPIC_IDS
    topics = [
        (
            topic.topic_id if with_ids else topic.name,
            [(data.index, int(code), -1, -1, -1, (), None) for data in topic.partition_data],
        )
        for topic in asked.topic_data
    ]
    return encode_answer(context.api_version, topics)


def make(parts: HandlerParts) -> ProduceHandler:
    """Make the handler of Produce."""
    return ProduceHandler(parts.replicas, parts.ports.executors, parts.cluster.addresses)
