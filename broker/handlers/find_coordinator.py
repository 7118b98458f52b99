"""FindCoordinator (10): the broker that coordinates a group.

The first request of every consumer. It creates `__consumer_offsets` if the topic does not exist,
and waits briefly for it; a client that gets COORDINATOR_NOT_AVAILABLE asks again. The consumer of a
tier has no group (`NO_GROUP`) and does not create it.

Transactions are not served yet. Only CLUSTER_AUTHORIZATION_FAILED ends every producer with a text
that both Java and librdkafka show. Java drops the text of the error about the transactional id, and
librdkafka retries any other error without end. Share groups are not served either: they get
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

from collections.abc import Callable, Sequence
from enum import IntEnum
from inspect import isawaitable
from typing import Any, Final, NamedTuple

from broker.coordinator.service import GroupCoordinator
from broker.handlers.parts import TRANSACTIONS, HandlerParts, Unserved
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ClusterView
from broker.topics.offsets_topic import OFFSETS_TOPIC
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import NO_GROUP
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import EncodedArray, response
from kafka_protocol.wire.schema import Versions
from runtime.work import Pace, Steps, result_or_rest

_response: Final = response(ApiKey.FIND_COORDINATOR)
_Response: Final = _response.cls
_Coordinator: Final = _Response.Coordinators

_SINCE_SEVERAL = 4
_KEY_WORK: Final = 2
"""Approximate microseconds for one key."""
_CHARACTERS_OF_WORK: Final = 20
"""Characters of a group id hashed in about a microsecond."""


class KeyType(IntEnum):
    """The type of a key."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Found(NamedTuple):
    """The answer for one key.

    Attributes:
        message: From version 4 on. If it is empty, earlier versions have the error's standard text.
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
        """Find the coordinators; an awaitable where the topic must be created first."""
        if (
            request.key_type == KeyType.GROUP
            and not self._coordinator.topic.exists
            and any(key != NO_GROUP for key in _keys(context, request))
        ):
            return self._make_and_answer(context, request)
        return self._answer(context, request)

    async def _make_and_answer(self, context: RequestContext, request: Any) -> Any:
        await self._coordinator.topic.make()
        answer = self._answer(context, request)
        return await answer if isawaitable(answer) else answer

    def _answer(self, context: RequestContext, request: Any) -> Any:
        """The answer; an awaitable of it where it is made in slices."""
        find = self._finder(context, request.key_type)
        if context.api_version >= _SINCE_SEVERAL:
            return result_or_rest(_steps(request.coordinator_keys, find, context.api_version))
        one = find(request.key)
        return _Response(
            error_code=one.error,
            error_message=one.message or _OWN_TEXTS.get(one.error),
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def _finder(self, context: RequestContext, key_type: int) -> Callable[[str], Found]:
        """Returns a function that answers one key from the current metadata."""
        if key_type in _UNSERVED:
            code, what, remedy = _UNSERVED[KeyType(key_type)]
            refused = Found(code, self._unserved.refused(context, what, remedy))
            return lambda _: refused
        if key_type != KeyType.GROUP:
            unknown = Found(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is unknown.")
            return lambda _: unknown
        at = {
            broker.id: Found(ErrorCode.NONE, "", broker.id, broker.host, broker.port)
            for broker in self._cluster.addresses(context.listener_name)
        }
        topic = self._cluster.image().topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            # A start with tiering would otherwise create the topic before any group exists.
            own = at.get(self._cluster.node_id, _NOT_YET)
            return lambda key: own if key == NO_GROUP else _NOT_YET
        partitions = topic.partitions

        def find(key: str) -> Found:
            partition = partitions.get(self._coordinator.partition_of(key))
            return _NOT_YET if partition is None else at.get(partition.leader, _NOT_YET)

        return find


def _steps(keys: Sequence[str], find: Callable[[str], Found], version: int) -> Steps[list[object]]:
    """Encode the answer for several keys, in slices."""
    coordinators: list[bytes] = []
    pace = Pace()
    for key in keys:
        one = find(key)
        made = _Coordinator(
            key=key,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
            error_code=one.error,
            error_message=one.message,
        )
        coordinators.append(_response.encode_element("coordinators", made, version))
        if pace.is_step_over(_KEY_WORK + len(key) // _CHARACTERS_OF_WORK):
            yield
    return _response.encode_parts(_Response(coordinators=EncodedArray(coordinators)), version)


def _keys(context: RequestContext, request: Any) -> Sequence[str]:
    is_several: bool = context.api_version >= _SINCE_SEVERAL
    return request.coordinator_keys if is_several else [request.key]


def make(parts: HandlerParts) -> FindCoordinatorHandler:
    """Make the handler of FindCoordinator."""
    return FindCoordinatorHandler(parts.groups, parts.cluster, parts.unserved)
