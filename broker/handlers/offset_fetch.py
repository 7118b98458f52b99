"""OffsetFetch (9): committed offsets of groups; without topics, all of them.

The answer waits until earlier writes of the group are committed, so it has no offset that may be
lost.

Versions:

* 1: the lowest that Kafka 4 serves; offsets in Kafka instead of ZooKeeper (KAFKA-1012).
* 2: null asks for all topics; an error of the whole answer (KIP-88).
* 3: throttle time (KIP-124).
* 4: no new field; the client waits out a throttle, not the broker (KIP-219).
* 5: leader epochs (KIP-320).
* 6: flexible (KIP-482).
* 7: require_stable: an error while a transaction with offsets is open (KIP-447).
* 8: several groups at once (KIP-709).
* 9: member id and epoch of the consumer protocol (KIP-848).
* 10: topics by id (KIP-848).
"""

import asyncio
from typing import Any, Final

from broker.coordinator.group import refusals
from broker.coordinator.service import GroupCoordinator
from broker.handlers.errors_out import code_of
from broker.handlers.group_shards import awaited
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request as request_codec
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from runtime.work import Pace, Steps, run_in_steps

_Asked: Final = request_codec(ApiKey.OFFSET_FETCH).cls.Groups
_Response: Final = response(ApiKey.OFFSET_FETCH).cls
_Group: Final = _Response.Groups

_GROUP_WORK: Final = 30
_AT_ONCE_MAX: Final = 1_000
"""Answers with more groups and partitions are encoded in slices."""

_SINCE_TOP_LEVEL_ERROR = 2
_SINCE_GROUPS = 8
_SINCE_TOPIC_IDS = 10


class OffsetFetchHandler(DecodedHandler):
    """Serves OffsetFetch 1-10."""

    api_key = ApiKey.OFFSET_FETCH
    versions = Versions(1, 10)

    def __init__(self, coordinator: GroupCoordinator, cluster: ClusterView) -> None:
        self._coordinator, self._cluster = coordinator, cluster

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Read the offsets; each group gets its own error."""
        version, stable = context.api_version, request.require_stable
        if version >= _SINCE_GROUPS:
            by_id = version >= _SINCE_TOPIC_IDS
            slots, pace = [], Pace()
            for one in request.groups:
                slots.append(await self._slot(one, stable, by_id=by_id))
                if pace.is_step_over(_GROUP_WORK):
                    await asyncio.sleep(0)
            return await _encoded(_Response(groups=slots), slots, version)
        asked = _Asked(group_id=request.group_id, topics=_as_of_groups(request.topics))
        slot = await self._slot(asked, stable, by_id=False)
        answer = await run_in_steps(_folded(asked, slot, version))
        return await _encoded(answer, [slot], version)

    async def _slot(self, asked: Any, stable: bool, *, by_id: bool) -> Any:
        unknown = self._resolve(asked, by_id=by_id)
        try:
            shard = self._coordinator.shard(asked.group_id)
            steps = await awaited(
                shard.read(lambda state: state.fetch_in_steps(asked, require_stable=stable))
            )
            slot = await run_in_steps(steps)
        except KafkaError as error:
            return refusals.fetch(asked.group_id, code_of(error, "fetch offsets"))
        if by_id:
            self._add_ids(slot)
        if unknown and not slot.error_code:
            slot.topics = [*slot.topics, *unknown]
        return slot

    def _resolve(self, asked: Any, *, by_id: bool) -> list[Any]:
        """Set the names of topics that are requested by id, and remove unknown ids.

        As in Kafka, a request by name gets the offsets that were committed for the name, even of an
        earlier topic.

        Returns:
            The answers for the removed topics.
        """
        image, known, unknown = self._cluster.image(), [], []
        for topic in asked.topics or ():
            if by_id:
                found = image.topics_by_id.get(topic.topic_id)
                if found is None:
                    unknown.append(_unknown_id(topic))
                    continue
                topic.name = found.name
            known.append(topic)
        if asked.topics is not None:
            asked.topics = known
        return unknown

    def _add_ids(self, slot: Any) -> None:
        """Set the ids of topics; a topic without one no longer exists and is left out."""
        names = self._cluster.image().topics_by_name
        there = [topic for topic in slot.topics if topic.name in names]
        for topic in there:
            topic.topic_id = names[topic.name].id
        slot.topics = there


def _unknown_id(topic: Any) -> Any:
    partitions = [
        _Group.Topics.Partitions(
            partition_index=index,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
        )
        for index in topic.partition_indexes
    ]
    return _Group.Topics(topic_id=topic.topic_id, partitions=partitions)


def _as_of_groups(topics: list[Any] | None) -> list[Any] | None:
    if topics is None:
        return None
    return [_Asked.Topics(name=one.name, partition_indexes=one.partition_indexes) for one in topics]


def _folded(asked: Any, slot: Any, version: int) -> Steps[Any]:
    """The answer for the only group in the form of versions before 8."""
    if slot.error_code and version < _SINCE_TOP_LEVEL_ERROR:
        return _Response(topics=[_failed(one, slot.error_code) for one in asked.topics])
    topics, pace = [], Pace()
    for topic in slot.topics:
        partitions = []
        for one in topic.partitions:
            partitions.append(
                _Response.Topics.Partitions(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
            )
            if pace.is_step_over():
                yield
        topics.append(_Response.Topics(name=topic.name, partitions=partitions))
    return _Response(topics=topics, error_code=slot.error_code)


async def _encoded(answer: Any, slots: list[Any], version: int) -> Any:
    """The answer; a long one is encoded in slices."""
    size = sum(1 + sum(len(topic.partitions) for topic in slot.topics) for slot in slots)
    if size <= _AT_ONCE_MAX:
        return answer
    return await run_in_steps(response(ApiKey.OFFSET_FETCH).encode_steps(answer, version))


def _failed(topic: Any, code: int) -> Any:
    partitions = [
        _Response.Topics.Partitions(
            partition_index=index, committed_offset=-1, metadata="", error_code=code
        )
        for index in topic.partition_indexes
    ]
    return _Response.Topics(name=topic.name, partitions=partitions)


def make(parts: HandlerParts) -> OffsetFetchHandler:
    """Make the handler of OffsetFetch."""
    return OffsetFetchHandler(parts.groups, parts.cluster)
