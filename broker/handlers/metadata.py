"""Metadata (3): which brokers there are, which topics, and who leads their partitions.

The first request of every client, and its answer to every error about leaders. Topics may be asked
for by name or, from version 12, by id; a missing topic may be created on the way.

The topics' part of an answer depends on the image, the listener and little else, so it is made once
per image: clients with thousands of partitions refresh all the time.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from broker.cluster import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    ClusterView,
    is_internal,
    is_legal_topic_name,
    why_missing,
)
from broker.handlers.registry import Handler, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import TopicImage

_Response: Final = message("MetadataResponse").cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions
_Broker: Final = _Response.Brokers

_CACHED_TOPICS_MAX: Final = 10_000

AutoCreate = Callable[[Sequence[str]], Awaitable[None]]
"""Creates those of the named topics that can be created; the image tells what came of it."""


class MetadataHandler:
    """Answers Metadata of all versions."""

    def __init__(self, cluster: ClusterView, auto_create: AutoCreate | None) -> None:
        """Serve `cluster`; `auto_create` is None where `auto.create.topics.enable=false`."""
        self._cluster = cluster
        self._auto_create = auto_create
        self._cached_image: MetadataImage | None = None
        self._cached_topics: dict[tuple[str, str, bool, int], Any] = {}

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer one request; an awaitable only where topics have to be created first."""
        version = context.api_version
        wants_all = request.topics is None or (version == 0 and not request.topics)
        if not wants_all and version < 12 and _has_ids_too_early(request.topics):
            return _Response(  # as Kafka: without brokers
                cluster_id=self._cluster.cluster_id, topics=[_refused(t) for t in request.topics]
            )
        missing = [] if wants_all else self._missing(request, version)
        if missing and self._auto_create is not None:
            return self._create_and_answer(context, request, missing)
        return self._answer(context, request, self._topics(context, request, wants_all))

    async def _create_and_answer(
        self, context: RequestContext, request: Any, missing: Sequence[str]
    ) -> Any:
        assert self._auto_create is not None
        await self._auto_create(missing)
        return self._answer(context, request, self._topics(context, request, wants_all=False))

    def _missing(self, request: Any, version: int) -> list[str]:
        """Names that may be created on the way: legal, unknown, and the client does not mind."""
        if version >= 4 and not request.allow_auto_topic_creation:
            return []
        known = self._cluster.image().topics_by_name
        names = dict.fromkeys(
            topic.name
            for topic in request.topics
            if topic.topic_id == ZERO_UUID and topic.name not in known
        )
        return [name for name in names if is_legal_topic_name(name)]

    def _topics(self, context: RequestContext, request: Any, wants_all: bool) -> list[Any]:
        image = self._cluster.image()
        operations = _topic_operations(context, request)
        if wants_all:
            return [
                self._described(topic, context, operations)
                for topic in image.topics_by_name.values()
            ]
        ids = dict.fromkeys(t.topic_id for t in request.topics if t.topic_id != ZERO_UUID)
        if ids:  # Kafka ignores the names once there is an id, and tells unknown ids first
            known = [image.topics_by_id[i] for i in ids if i in image.topics_by_id]
            unknown = [
                _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=i)
                for i in ids
                if i not in image.topics_by_id
            ]
            return unknown + [self._described(topic, context, operations) for topic in known]
        return self._by_name(
            dict.fromkeys(t.name for t in request.topics), image, context, operations
        )

    def _by_name(
        self, names: Iterable[str], image: MetadataImage, context: RequestContext, operations: int
    ) -> list[Any]:
        answers = []
        for name in names:
            topic = image.topics_by_name.get(name)
            if topic is not None:
                answers.append(self._described(topic, context, operations))
                continue
            answers.append(
                _Topic(
                    error_code=why_missing(name),
                    name=name,
                    is_internal=is_internal(name),
                    topic_authorized_operations=operations,
                )
            )
        return answers

    def _described(self, topic: TopicImage, context: RequestContext, operations: int) -> Any:
        """The topic's part of an answer, made once per image, listener and kind of client."""
        image = self._cluster.image()
        if image is not self._cached_image or len(self._cached_topics) > _CACHED_TOPICS_MAX:
            self._cached_image, self._cached_topics = image, {}
        old = context.api_version < 6
        key = (topic.name, context.listener_name, old, operations)
        found = self._cached_topics.get(key)
        if found is None:
            found = self._cached_topics[key] = _Topic(
                name=topic.name,
                topic_id=topic.id,
                is_internal=is_internal(topic.name),
                partitions=[
                    self._partition(topic, index, context.listener_name, old=old)
                    for index in sorted(topic.partitions)
                ],
                topic_authorized_operations=operations,
            )
        return found

    def _partition(self, topic: TopicImage, index: int, listener: str, *, old: bool) -> Any:
        view = self._cluster.partition(topic.partitions[index], listener, old=old)
        return _Partition(
            error_code=view.error,
            partition_index=index,
            leader_id=view.leader,
            leader_epoch=view.leader_epoch,
            replica_nodes=view.replicas,
            isr_nodes=view.isr,
            offline_replicas=view.offline,
        )

    def _answer(self, context: RequestContext, request: Any, topics: list[Any]) -> Any:
        wants_operations = request.include_cluster_authorized_operations
        return _Response(
            brokers=[
                _Broker(node_id=b.id, host=b.host, port=b.port, rack=b.rack)
                for b in self._cluster.addresses(context.listener_name)
            ],
            cluster_id=self._cluster.cluster_id,
            controller_id=self._cluster.controller_id(),
            topics=topics,
            cluster_authorized_operations=(
                ALL_CLUSTER_OPERATIONS if wants_operations else OPERATIONS_NOT_ASKED
            ),
        )


def make(cluster: ClusterView, auto_create: AutoCreate | None) -> Handler:
    """Make the handler of Metadata 0-13."""
    return Handler(ApiKey.METADATA, 0, 13, MetadataHandler(cluster, auto_create).handle)


def _topic_operations(context: RequestContext, request: Any) -> int:
    asked = context.api_version >= 8 and request.include_topic_authorized_operations
    return ALL_TOPIC_OPERATIONS if asked else OPERATIONS_NOT_ASKED


def _has_ids_too_early(topics: Iterable[Any]) -> bool:
    """Versions 10 and 11 have a field for ids that Kafka refuses to use."""
    return any(topic.name is None or topic.topic_id != ZERO_UUID for topic in topics)


def _refused(topic: Any) -> Any:
    return _Topic(
        error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
    )
