"""FindCoordinator (10): which broker has a group.

The first question of every consumer. It makes `__consumer_offsets` where that does not exist yet,
and waits for it for a moment; a client that is told 15 asks again. The consumer of a tier has no
group (`NO_GROUP`) and does not make it.

Transactions are not served yet. CLUSTER_AUTHORIZATION_FAILED is the one error that ends every
producer and whose text both Java and librdkafka show; Java drops that of the error about the
transactional id, and librdkafka asks again for ever after any other. Share groups neither:
INVALID_REQUEST, as from a broker of Kafka whose feature share.version is 0.

Versions:

* 0: one group.
* 1: the type of the key: transactions, too (KIP-98); the error's text; throttle time (KIP-124).
* 2: no new field; the client waits out a throttle, not the broker (KIP-219).
* 3: flexible (KIP-482).
* 4: several keys at once (KIP-699).
* 5: no new field; TRANSACTION_ABORTABLE may be answered (KIP-890).
* 6: no new field; share groups are a type of key (KIP-932).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from broker.coordinator.service import GroupCoordinator
from broker.handlers.parts import HandlerParts
from broker.handlers.unserved import TRANSACTIONS, Unserved
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ClusterView
from broker.topics.offsets_topic import OFFSETS_TOPIC
from kafka_protocol.errors import ErrorCode
from kafka_protocol.topics import NO_GROUP
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

_Response: Final = response(ApiKey.FIND_COORDINATOR).cls
_Coordinator: Final = _Response.Coordinators

_SINCE_SEVERAL = 4
_NONE: Final = {NO_GROUP}


class KeyType(IntEnum):
    """What a key names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Found(NamedTuple):
    """The answer for one key.

    Attributes:
        message: from version 4 on; versions before it have the error's own text in its place where
            there is none.
    """

    error: ErrorCode
    message: str = ""
    node_id: int = -1
    host: str = ""
    port: int = -1


_UNSERVED: Final = {
    KeyType.TRANSACTION: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, *TRANSACTIONS),
    KeyType.SHARE: (ErrorCode.INVALID_REQUEST, "Share groups", "use a consumer group"),
}
_NOT_YET: Final = Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
_OWN_TEXTS: Final = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
}


class FindCoordinatorHandler(DecodedHandler):
    """Serves FindCoordinator 0-6."""

    api_key = ApiKey.FIND_COORDINATOR
    versions = Versions(0, 6)

    def __init__(
        self, coordinator: GroupCoordinator, cluster: ClusterView, unserved: Unserved
    ) -> None:
        self._coordinator, self._cluster, self._unserved = coordinator, cluster, unserved

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer one request; an awaitable where the topic is to be made first."""
        is_group = request.key_type == KeyType.GROUP
        if (
            is_group
            and not self._coordinator.topic.exists
            and set(_keys(context, request)) != _NONE
        ):
            return self._make_and_answer(context, request)
        return self._answer(context, request)

    async def _make_and_answer(self, context: RequestContext, request: Any) -> Any:
        await self._coordinator.topic.make()
        return self._answer(context, request)

    def _answer(self, context: RequestContext, request: Any) -> Any:
        keys = _keys(context, request)
        found = [self._find(context, request.key_type, key) for key in keys]
        if context.api_version < _SINCE_SEVERAL:
            [one] = found
            return _Response(
                error_code=one.error,
                error_message=one.message or _OWN_TEXTS.get(one.error),
                node_id=one.node_id,
                host=one.host,
                port=one.port,
            )
        return _Response(
            coordinators=[
                _Coordinator(
                    key=key,
                    node_id=one.node_id,
                    host=one.host,
                    port=one.port,
                    error_code=one.error,
                    error_message=one.message,
                )
                for key, one in zip(keys, found, strict=True)
            ]
        )

    def _find(self, context: RequestContext, key_type: int, key: str) -> Found:
        if key_type in _UNSERVED:
            code, what, way_out = _UNSERVED[KeyType(key_type)]
            return Found(code, self._unserved.refused(context, what, way_out))
        if key_type != KeyType.GROUP:
            return Found(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is unknown.")
        listener = context.listener_name
        topic = self._cluster.image().topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            # A start with tiering would make the topic before anybody has a group.
            return self._at(self._cluster.node_id, listener) if key == NO_GROUP else _NOT_YET
        partition = topic.partitions.get(self._coordinator.partition_of(key))
        if partition is None:
            return _NOT_YET
        return self._at(self._cluster.partition(partition, listener, old=False).leader, listener)

    def _at(self, leader: int, listener: str) -> Found:
        for broker in self._cluster.addresses(listener):
            if broker.id == leader:
                return Found(ErrorCode.NONE, "", broker.id, broker.host, broker.port)
        return _NOT_YET


def _keys(context: RequestContext, request: Any) -> Sequence[str]:
    is_several: bool = context.api_version >= _SINCE_SEVERAL
    return request.coordinator_keys if is_several else [request.key]


def make(parts: HandlerParts) -> FindCoordinatorHandler:
    """Make the handler of FindCoordinator."""
    return FindCoordinatorHandler(parts.groups, parts.cluster, parts.unserved)
