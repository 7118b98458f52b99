"""DescribeTopicPartitions (75): partitions of topics, page by page (KIP-966).

Topics are in the order of their names. A page has a limited number of partitions; its cursor names
the first partition that did not fit, at which the next request begins.

Versions:

* 0: pages with a cursor (KIP-966); flexible (KIP-482).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ALL_TOPIC_OPERATIONS, ClusterView, is_internal, why_missing
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from kafka_protocol.wire.schema import Versions
from metadata_topic.image.model import TopicImage
from runtime.work import Pace, Steps, result_or_rest

_Response: Final = message("DescribeTopicPartitionsResponse").cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions
_Cursor: Final = _Response.NextCursor


_TOPIC_WORK: Final = 5
_PARTITION_WORK: Final = 10


class DescribeTopicPartitionsHandler(DecodedHandler):
    """Answers DescribeTopicPartitions."""

    api_key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    versions = Versions(0, 0)

    def __init__(
        self,
        cluster: ClusterView,
        page_partitions_max: int,
        is_offline: Callable[[TopicPartition], bool],
    ) -> None:
        """Serve pages of at most `page_partitions_max` partitions.

        `is_offline` returns whether this broker does not serve its replica because of the state of
        its files, which the metadata do not have.
        """
        self._cluster = cluster
        self._is_offline = is_offline
        self._page_partitions_max = page_partitions_max

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer one page; INVALID_REQUEST for a cursor outside the requested topics."""
        cursor = request.cursor
        first = "" if cursor is None else cursor.topic_name
        asked = {topic.name for topic in request.topics}
        wants_all = not asked
        if cursor is not None and (
            cursor.partition_index < 0 or (not wants_all and first not in asked)
        ):
            return _Response(
                topics=[
                    _Topic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
                    for topic in request.topics
                ]
            )
        known = self._cluster.image().topics_by_name
        # Names are kept sorted: sorting all of them for each page would be slow.
        names = known.keys_from(first) if wants_all else sorted(n for n in asked if n >= first)
        limit = max(1, min(self._page_partitions_max, request.response_partition_limit))
        steps = self._page(
            names,
            first_partition=0 if cursor is None else cursor.partition_index,
            first_topic=first,
            limit=limit,
            listener=context.listener_name,
            silent=wants_all,
        )
        return result_or_rest(steps)

    def _page(
        self,
        names: Iterable[str],
        *,
        first_topic: str,
        first_partition: int,
        limit: int,
        listener: str,
        silent: bool,
    ) -> Steps[Any]:
        known = self._cluster.image().topics_by_name
        answer = _Response()
        remaining, pace = limit, Pace()
        for name in names:
            if remaining == 0:
                answer.next_cursor = _Cursor(topic_name=name, partition_index=0)
                return answer
            topic = known.get(name)
            if topic is None:
                if not silent:
                    answer.topics.append(_failed(name, why_missing(name)))
                continue
            start = first_partition if name == first_topic else 0
            indexes = [index for index in sorted(topic.partitions) if index >= start]
            described = self._described(topic, indexes[:remaining], listener)
            answer.topics.append(described)
            if pace.is_step_over(_TOPIC_WORK + _PARTITION_WORK * len(described.partitions)):
                yield
            if len(indexes) > remaining:
                answer.next_cursor = _Cursor(topic_name=name, partition_index=indexes[remaining])
                return answer
            remaining -= len(indexes)
        return answer

    def _described(self, topic: TopicImage, indexes: Iterable[int], listener: str) -> Any:
        partitions = []
        for index in indexes:
            partition = topic.partitions[index]
            view = self._cluster.partition(partition, listener, old=False)
            offline = set(view.offline)
            if self._is_offline(TopicPartition(topic.name, index)):
                offline.add(self._cluster.node_id)
            partitions.append(
                _Partition(
                    error_code=ErrorCode.NONE,  # as in Kafka, even without a leader
                    partition_index=index,
                    leader_id=view.leader,
                    leader_epoch=view.leader_epoch,
                    replica_nodes=view.replicas,
                    isr_nodes=view.isr,
                    eligible_leader_replicas=list(partition.elr),
                    last_known_elr=list(partition.last_known_elr),
                    offline_replicas=[one for one in view.replicas if one in offline],
                )
            )
        return _Topic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=partitions,
            topic_authorized_operations=ALL_TOPIC_OPERATIONS,
        )


def _failed(name: str, error: ErrorCode) -> Any:
    return _Topic(
        error_code=error,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def make(parts: HandlerParts) -> DescribeTopicPartitionsHandler:
    """Make the handler of DescribeTopicPartitions."""
    return DescribeTopicPartitionsHandler(
        parts.cluster, parts.config.max_request_partition_size_limit, parts.replicas.is_offline
    )
