"""OffsetCommit (8): stores the offsets of a group, from members and from consumers without a group.

Partitions that do not exist get an error each; the others are committed in one batch.

Versions:

* 2: the lowest that Kafka 4 serves; a retention time, which version 5 drops (KIP-211).
* 3: throttle time (KIP-124).
* 4: no new field; the client waits out a throttle, not the broker (KIP-219).
* 5: without the retention time (KIP-211).
* 6: leader epochs (KIP-320).
* 7: static members by their instance id (KIP-345).
* 8: flexible (KIP-482).
* 9: no new field; errors of the consumer protocol may be answered (KIP-848).
* 10: topics by id (KIP-848).
"""

from typing import Any, Final

from broker.coordinator.group.decision import Decision, Now, Ticket
from broker.coordinator.group.state import GroupState
from broker.coordinator.service import GroupCoordinator
from broker.handlers.group_shards import changed, decided_of_any
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

_Response: Final = response(ApiKey.OFFSET_COMMIT).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions

_SINCE_TOPIC_IDS = 10


class OffsetCommitHandler(DecodedHandler):
    """Serves OffsetCommit 2-10."""

    api_key = ApiKey.OFFSET_COMMIT
    versions = Versions(2, 10)

    def __init__(self, coordinator: GroupCoordinator, cluster: ClusterView) -> None:
        self._coordinator, self._cluster = coordinator, cluster

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Commit the offsets; returns a future until they are committed to the log."""
        version = context.api_version
        unknown = self._take_unknown(request, by_id=version >= _SINCE_TOPIC_IDS)
        if unknown and not request.topics:
            return _Response(topics=unknown)

        def decide(state: GroupState, ticket: Ticket, now: Now) -> Decision:
            decision = state.commit_offsets(ticket, request, version=version, now=now)
            self._coordinator.metrics.offset_commits.inc(len(decision.records))
            return decision

        answer = decided_of_any(self._coordinator, self.api_key, request, decide)
        return changed(answer, lambda known: _merged(unknown, known)) if unknown else answer

    def _take_unknown(self, request: Any, *, by_id: bool) -> list[Any]:
        """Remove partitions that do not exist from the request.

        All remaining topics have both name and id.

        Returns:
            The answers for the removed partitions.
        """
        image = self._cluster.image()
        known, unknown = [], []
        for topic in request.topics:
            if by_id:
                found = image.topics_by_id.get(topic.topic_id)
            else:
                found = image.topics_by_name.get(topic.name)
            if found is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else code
                unknown.append(_refused(topic, topic.partitions, code))
                continue
            topic.name, topic.topic_id = found.name, found.id
            there = [one for one in topic.partitions if one.partition_index in found.partitions]
            if len(there) < len(topic.partitions):
                missing = [
                    one for one in topic.partitions if one.partition_index not in found.partitions
                ]
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                unknown.append(_refused(topic, missing, code))
                topic.partitions = there
            if there:
                known.append(topic)
        request.topics = known
        return unknown


def _refused(topic: Any, partitions: list[Any], code: ErrorCode) -> Any:
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _Partition(partition_index=one.partition_index, error_code=code) for one in partitions
        ],
    )


def _merged(unknown: list[Any], known: Any) -> Any:
    """Merge both answers like Kafka: refused partitions first, each topic once."""
    by_topic = {(topic.name, topic.topic_id): topic for topic in unknown}
    for topic in known.topics:
        earlier = by_topic.get((topic.name, topic.topic_id))
        if earlier is None:
            unknown.append(topic)
        else:
            earlier.partitions = [*earlier.partitions, *topic.partitions]
    known.topics = unknown
    return known


def make(parts: HandlerParts) -> OffsetCommitHandler:
    """Make the handler of OffsetCommit."""
    return OffsetCommitHandler(parts.groups, parts.cluster)
