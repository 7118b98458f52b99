"""OffsetDelete (47): forgets offsets of a group, but not of topics that it is subscribed to.

Versions:

* 0: partitions of a group (KIP-496).
"""

from typing import Any, Final

from broker.coordinator.group.decision import Decision, Now, Ticket
from broker.coordinator.group.state import GroupState
from broker.coordinator.service import GroupCoordinator
from broker.handlers.group_shards import changed, decided
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

_Response: Final = response(ApiKey.OFFSET_DELETE).cls
_Topic: Final = _Response.Topics


class OffsetDeleteHandler(DecodedHandler):
    """Serves OffsetDelete 0."""

    api_key = ApiKey.OFFSET_DELETE
    versions = Versions(0, 0)

    def __init__(self, coordinator: GroupCoordinator, cluster: ClusterView) -> None:
        self._coordinator, self._cluster = coordinator, cluster

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer one request."""
        unknown = self._take_unknown(request)

        def decide(state: GroupState, ticket: Ticket, now: Now) -> Decision:
            decision = state.delete_offsets(ticket, request, now=now)
            self._coordinator.metrics.offset_deletions.inc(len(decision.records))
            return decision

        answer = decided(self._coordinator, self.api_key, request, decide)
        return changed(answer, lambda known: _merged(unknown, known)) if unknown else answer

    def _take_unknown(self, request: Any) -> dict[str, Any]:
        """Take partitions that the cluster does not have out of the request.

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
    """One answer: as from Kafka, what was refused first; an error of the group is all there is."""
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
