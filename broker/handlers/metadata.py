"""Metadata (3): the brokers, the topics, and the leaders of partitions.

Every client sends it first, and again after each error about leaders. Topics are named or, from
version 12, identified by id. Missing topics may be auto-created.

An encoded topic depends on the topic, the brokers, the listener and little else. So it is cached
until one of these changes: clients with thousands of partitions refresh often. A long answer is
made in slices.

Versions:

* 0: topics by name; an empty list asks for all. Replicas whose broker is not listed are excluded.
* 1: racks (KIP-36), the controller and which topics are internal; null asks for all (KIP-4).
* 2: cluster id (KIP-78).
* 3: throttle time (KIP-124).
* 4: whether missing topics may be created (KAFKA-5291).
* 5: offline replicas (KIP-112).
* 6: no new field; LISTENER_NOT_FOUND may be answered (KAFKA-6546), and the client waits out a
  throttle, not the broker (KIP-219).
* 7: leader epochs (KIP-320).
* 8: authorized operations (KIP-430).
* 9: flexible (KIP-482).
* 10: topic ids; those in the request are not used yet (KIP-516).
* 11: without the authorized operations of the cluster (KIP-700).
* 12: topics may be asked for by id (KIP-516).
* 13: an error of the whole answer (KIP-1102).
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from inspect import isawaitable
from typing import Any, Final

from broker.handlers.encoded_topics import EncodedTopics, Kind, kind_of
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    ClusterView,
    is_internal,
    is_legal_topic_name,
    why_missing,
)
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import EncodedArray, response
from kafka_protocol.wire.schema import Versions
from metadata_topic.image.model import TopicImage
from runtime.work import Pace, Steps, result_or_rest

_response: Final = response(ApiKey.METADATA)
_Response: Final = _response.cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions
_Broker: Final = _Response.Brokers

_TOPIC_WORK: Final = 2
_PARTITION_WORK: Final = 6
"""Approximate microseconds; for a partition if it is not in the cache."""

_SINCE_NULL_FOR_ALL: Final = 1
_SINCE_UNLISTED_REPLICAS: Final = 1
_SINCE_AUTO_CREATION: Final = 4
_SINCE_LISTENER_NOT_FOUND: Final = 6
_SINCE_OPERATIONS: Final = 8
_SINCE_ASKED_BY_ID: Final = 12

AutoCreate = Callable[[Sequence[str]], Awaitable[None]]
"""Creates the named topics as far as possible; the result is in the image."""


class MetadataHandler(DecodedHandler):
    """Answers Metadata of all versions."""

    api_key = ApiKey.METADATA
    versions = Versions(0, 13)

    def __init__(self, cluster: ClusterView, auto_create: AutoCreate | None) -> None:
        """Describe `cluster`; `auto_create` is None with `auto.create.topics.enable=false`."""
        self._cluster = cluster
        self._auto_create = auto_create
        self._encoded = EncodedTopics()

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Describe topics; an awaitable if topics are created first, or if there are many."""
        version = context.api_version
        wants_all = request.topics is None or (version < _SINCE_NULL_FOR_ALL and not request.topics)
        if not wants_all and version < _SINCE_ASKED_BY_ID and _has_ids_too_early(request.topics):
            return _Response(  # as in Kafka: without brokers
                cluster_id=self._cluster.cluster_id, topics=[_refused(t) for t in request.topics]
            )
        missing = [] if wants_all else self._missing(request, version)
        if missing and self._auto_create is not None:
            return self._create_and_answer(context, request, missing)
        return self._answer(context, request, wants_all=wants_all)

    async def _create_and_answer(
        self, context: RequestContext, request: Any, missing: Sequence[str]
    ) -> Any:
        assert self._auto_create is not None
        await self._auto_create(missing)
        answer = self._answer(context, request, wants_all=False)
        return await answer if isawaitable(answer) else answer

    def _missing(self, request: Any, version: int) -> list[str]:
        """Names to auto-create: legal, unknown, and allowed by the request."""
        if version >= _SINCE_AUTO_CREATION and not request.allow_auto_topic_creation:
            return []
        known = self._cluster.image().topics_by_name
        names = dict.fromkeys(
            topic.name
            for topic in request.topics
            if topic.topic_id == ZERO_UUID and topic.name not in known
        )
        return [name for name in names if is_legal_topic_name(name)]

    def _answer(self, context: RequestContext, request: Any, *, wants_all: bool) -> Any:
        """The encoded answer; an awaitable of it if it is made in slices."""
        return result_or_rest(self._steps(context, request, wants_all=wants_all))

    def _steps(
        self, context: RequestContext, request: Any, *, wants_all: bool
    ) -> Steps[list[object]]:
        version, operations = context.api_version, _topic_operations(context, request)
        kind = kind_of(context.listener_name, version, operations)
        topics: list[bytes] = []
        pace = Pace()
        for one in self._asked(request, operations, wants_all=wants_all):
            if isinstance(one, TopicImage):
                encoded = self._encoded.find(one, kind, self._cluster.image())
                if encoded is None:
                    encoded = yield from self._encode(one, version, kind, pace)
            else:
                encoded = _response.encode_element("topics", one, version)
            topics.append(encoded)
            if pace.is_step_over(_TOPIC_WORK):
                yield
        wants_operations = request.include_cluster_authorized_operations
        answer = _Response(
            brokers=[
                _Broker(node_id=b.id, host=b.host, port=b.port, rack=b.rack)
                for b in self._cluster.addresses(context.listener_name)
            ],
            cluster_id=self._cluster.cluster_id,
            controller_id=self._cluster.controller_id(),
            topics=EncodedArray(topics),
            cluster_authorized_operations=(
                ALL_CLUSTER_OPERATIONS if wants_operations else OPERATIONS_NOT_ASKED
            ),
        )
        return _response.encode_parts(answer, version)

    def _asked(
        self, request: Any, operations: int, *, wants_all: bool
    ) -> Iterator[TopicImage | Any]:
        """The topics of the image, and answers for missing ones."""
        image = self._cluster.image()
        if wants_all:
            yield from image.topics_by_name.values()
            return
        ids = dict.fromkeys(t.topic_id for t in request.topics if t.topic_id != ZERO_UUID)
        if ids:  # like Kafka, which ignores names if there is an id, and puts unknown ids first
            for one in ids:
                if one not in image.topics_by_id:
                    yield _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=one)
            for one in ids:
                if one in image.topics_by_id:
                    yield image.topics_by_id[one]
            return
        for name in dict.fromkeys(t.name for t in request.topics):
            topic = image.topics_by_name.get(name)
            yield _missing_topic(name, operations) if topic is None else topic

    def _encode(self, topic: TopicImage, version: int, kind: Kind, pace: Pace) -> Steps[bytes]:
        """Encode a topic, and add it to the cache."""
        brokers = self._cluster.image().brokers  # may have changed by the end
        partitions: list[bytes] = []
        for index in sorted(topic.partitions):
            made = self._partition(topic, index, kind.listener, version)
            partitions.append(_response.encode_element("topics.partitions", made, version))
            if pace.is_step_over(_PARTITION_WORK):
                yield
        whole = _Topic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=EncodedArray(partitions),
            topic_authorized_operations=kind.operations,
        )
        encoded = _response.encode_element("topics", whole, version)
        self._encoded.keep(topic, kind, brokers, encoded, self._cluster.image())
        return encoded

    def _partition(self, topic: TopicImage, index: int, listener: str, version: int) -> Any:
        view = self._cluster.partition(
            topic.partitions[index],
            listener,
            old=version < _SINCE_LISTENER_NOT_FOUND,
            only_live=version < _SINCE_UNLISTED_REPLICAS,
        )
        return _Partition(
            error_code=view.error,
            partition_index=index,
            leader_id=view.leader,
            leader_epoch=view.leader_epoch,
            replica_nodes=view.replicas,
            isr_nodes=view.isr,
            offline_replicas=view.offline,
        )


def _missing_topic(name: str, operations: int) -> Any:
    return _Topic(
        error_code=why_missing(name),
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=operations,
    )


def _topic_operations(context: RequestContext, request: Any) -> int:
    asked = context.api_version >= _SINCE_OPERATIONS and request.include_topic_authorized_operations
    return ALL_TOPIC_OPERATIONS if asked else OPERATIONS_NOT_ASKED


def _has_ids_too_early(topics: Iterable[Any]) -> bool:
    """Versions 10 and 11 have a field for ids that Kafka rejects."""
    return any(topic.name is None or topic.topic_id != ZERO_UUID for topic in topics)


def _refused(topic: Any) -> Any:
    return _Topic(
        error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
    )


def make(parts: HandlerParts) -> MetadataHandler:
    """Make the handler of Metadata."""
    auto_create = parts.own_topics.auto_create if parts.config.auto_create_topics_enable else None
    return MetadataHandler(parts.cluster, auto_create)
