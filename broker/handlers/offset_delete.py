"""OffsetDelete (47): deletes offsets of a group, but not of topics that it is subscribed to.

Versions:

* 0: partitions of a group (KIP-496).
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from broker.coordinator.group.decision import Decision, Now, Ticket
from broker.coordinator.group.state import GroupState
from broker.coordinator.service import GroupCoordinator
from broker.handlers.group_shards import awaited, changed, decided
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request as request_codec
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

_AT_ONCE_MAX: Final = 500
"""Partitions deleted in one slice: some milliseconds."""
_Request: Final = request_codec(ApiKey.OFFSET_DELETE).cls
_Response: Final = response(ApiKey.OFFSET_DELETE).cls
_Topic: Final = _Response.Topics


class OffsetDeleteHandler(DecodedHandler):
    """Serves OffsetDelete 0."""

    api_key = ApiKey.OFFSET_DELETE
    versions = Versions(0, 0)

    def __init__(self, coordinator: GroupCoordinator, cluster: ClusterView) -> None:
        self._coordinator, self._cluster = coordinator, cluster

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Delete the offsets; a long request is split into several batches."""
        unknown = self._take_unknown(request)
        if sum(len(topic.partitions) for topic in request.topics) <= _AT_ONCE_MAX:
            answer = self._decided(request)
        else:
            answer = self._decided_in_slices(request)
        return changed(answer, lambda known: _merged(unknown, known)) if unknown else answer

    def _decided(self, request: Any) -> Any:
        def decide(state: GroupState, ticket: Ticket, now: Now) -> Decision:
            decision = state.delete_offsets(ticket, request, now=now)
            self._coordinator.metrics.offset_deletions.inc(len(decision.records))
            return decision

        return decided(self._coordinator, self.api_key, request, decide)

    async def _decided_in_slices(self, request: Any) -> Any:
        """Delete in slices; like DeleteGroups it may stop half way if the broker stops."""
        answer: Any = None
        for one in _slices(request):
            part = await awaited(self._decided(one))
            if part.error_code:
                return part
            answer = part if answer is None else _joined(answer, part)
            await asyncio.sleep(0)
        return answer

    def _take_unknown(self, request: Any) -> dict[str, Any]:
        """Remove partitions that do not exist from the request.

        Returns:
            The answers for them, by topic.
        """
        image, unknown = self._cluster.image().topics_by_name, {}
        for topic in request.topics:
            known = image[topic.name].partitions if topic.name in image else ()
            missing = [one for one in topic.partitions if one.partition_index not in known]
            if missing or topic.name not in image:
                unknown[topic.name] = _unknown(topic.name, missing)
            topic.partitions = [one for one in topic.partitions if one.partition_index in known]
        request.topics = [topic for topic in request.topics if topic.partitions]
        return unknown


def _slices(request: Any) -> Iterator[Any]:
    """Split the request into requests of at most `_AT_ONCE_MAX` partitions."""
    topics: list[Any] = []
    left = _AT_ONCE_MAX
    for topic in request.topics:
        partitions = topic.partitions
        while partitions:
            some, partitions = partitions[:left], partitions[left:]
            topics.append(_Request.Topics(name=topic.name, partitions=some))
            left -= len(some)
            if not left:
                yield _Request(group_id=request.group_id, topics=topics)
                topics, left = [], _AT_ONCE_MAX
    if topics:
        yield _Request(group_id=request.group_id, topics=topics)


def _joined(answer: Any, part: Any) -> Any:
    """Merge the answers of two slices; a topic that was split becomes one again."""
    first, *rest = part.topics
    if answer.topics[-1].name == first.name:
        answer.topics[-1].partitions.extend(first.partitions)
    else:
        answer.topics.append(first)
    answer.topics.extend(rest)
    return answer


def _unknown(name: str, partitions: list[Any]) -> Any:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _Topic(
        name=name,
        partitions=[
            _Topic.Partitions(partition_index=one.partition_index, error_code=code)
            for one in partitions
        ],
    )


def _merged(unknown: dict[str, Any], known: Any) -> Any:
    """Merge like Kafka: refused partitions first; an error of the group replaces all."""
    if known.error_code:
        return known
    topics = dict(unknown)
    for topic in known.topics:
        earlier = topics.setdefault(topic.name, topic)
        if earlier is not topic:
            earlier.partitions = [*earlier.partitions, *topic.partitions]
    known.topics = list(topics.values())
    return known


def make(parts: HandlerParts) -> OffsetDeleteHandler:
    """Make the handler of OffsetDelete."""
    return OffsetDeleteHandler(parts.groups, parts.cluster)
