"""ListConfigResources (74): names of the resources that can have settings.

All topics and brokers are listed, with or without settings of their own, also fenced brokers.
Groups and client metrics subscriptions are listed only if they have settings.

Versions:

* 0: client metrics subscriptions; the API was called ListClientMetricsResources (KIP-714).
* 1: other types, and which types are asked for (KIP-1142).
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final

from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import LongArray, response
from kafka_protocol.wire.schema import Versions
from metadata_topic.image.image import ResourceType
from runtime.work import Pace, Steps, result_or_rest

_response: Final = response(ApiKey.LIST_CONFIG_RESOURCES)
_Response: Final = _response.cls
_Resource: Final = _Response.ConfigResources

_LISTED: Final = (
    frozenset({ResourceType.CLIENT_METRICS}),
    frozenset(set(ResourceType) - {ResourceType.UNKNOWN}),
)
"""By version: the types that a request may name."""


class ListConfigResourcesHandler(DecodedHandler):
    """Serves ListConfigResources 0-1."""

    api_key = ApiKey.LIST_CONFIG_RESOURCES
    versions = Versions(0, 1)

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def handle(self, context: RequestContext, request: Any) -> Any:
        """List the resources; an awaitable for a long list."""
        listed = _LISTED[context.api_version]
        types = frozenset(request.resource_types) or listed
        if not types <= listed:
            return _Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return result_or_rest(self._steps(context, types))

    def _steps(self, context: RequestContext, types: frozenset[int]) -> Steps[list[object]]:
        found: list[tuple[str, int]] = []
        pace = Pace()
        for kind in sorted(types, reverse=True):  # as in Kafka
            for name in self._names(kind, context.listener_name):
                found.append((name, kind))
                if pace.is_step_over():
                    yield
        resources = (_Resource(resource_name=name, resource_type=kind) for name, kind in found)
        answer = _Response(config_resources=LongArray(len(found), resources))
        encoded: list[object] = yield from _response.encode_steps(answer, context.api_version)
        return encoded

    def _names(self, kind: int, listener: str) -> Iterator[str]:
        image = self._cluster.image()
        if kind == ResourceType.TOPIC:
            yield from image.topics_by_name
        elif kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            yield from (str(b.id) for b in self._cluster.addresses(listener, with_fenced=True))
        else:
            with_settings = image.configs.keys_from((kind, ""))
            yield from (name for _, name in takewhile(lambda key: key[0] == kind, with_settings))


def make(parts: HandlerParts) -> ListConfigResourcesHandler:
    """Make the handler of ListConfigResources."""
    return ListConfigResourcesHandler(parts.cluster)
