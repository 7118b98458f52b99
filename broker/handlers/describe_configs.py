"""DescribeConfigs (32): settings of topics and of this node, with the source of each value.

Versions:

* 1: the lowest that Kafka 4 serves; sources and synonyms of values (KIP-226).
* 2: no new field; the client waits out a throttle, not the broker (KIP-219).
* 3: types and documentation (KIP-569).
* 4: flexible (KIP-482).
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from broker.config.live_config import LiveConfig
from broker.handlers.errors_out import code_of, message_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ClusterView, why_missing
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import LongArray, response
from kafka_protocol.wire.schema import Versions
from metadata_topic.image.image import ResourceType
from runtime.work import Pace, Steps, result_or_rest

if TYPE_CHECKING:  # controllers, which serve this, do not load it
    from broker.handlers.parts import HandlerParts
    from broker.remote.tier import RemoteTier

_response: Final = response(ApiKey.DESCRIBE_CONFIGS)
_Response: Final = _response.cls
_Result: Final = _Response.Results
_Config: Final = _Result.Configs
_Synonym: Final = _Config.Synonyms


class DescribeConfigsHandler(DecodedHandler):
    """Answers DescribeConfigs."""

    api_key = ApiKey.DESCRIBE_CONFIGS
    versions = Versions(1, 4)

    def __init__(
        self, cluster: ClusterView, config: LiveConfig, tier: "RemoteTier | None" = None
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._tier = tier

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Describe each resource; one that cannot be described gets its own error.

        A long answer is made and encoded in slices.
        """
        return result_or_rest(self._steps(context, request))

    def _steps(self, context: RequestContext, request: Any) -> Steps[list[object]]:
        # DIFFERS: duplicates are answered once. Kafka answers each, so that a request of 40 KB can
        # have an answer of 130 MB.
        asked: dict[tuple[object, ...], Any] = {}
        pace = Pace()
        for one in request.resources:
            names = frozenset(one.configuration_keys or ())
            asked.setdefault((one.resource_type, one.resource_name, names), one)
            if pace.is_step_over(1 + len(names)):
                yield
        results = (self._result(one, request) for one in asked.values())
        answer = _Response(results=LongArray(len(asked), results))
        encoded: list[object] = yield from _response.encode_steps(answer, context.api_version)
        return encoded

    def _result(self, resource: Any, request: Any) -> Any:
        keys = resource.configuration_keys
        names = frozenset(keys) if keys else None  # no names mean all, as in Kafka
        try:
            entries = self._entries(resource.resource_type, resource.resource_name, names)
        except KafkaError as error:
            return _Result(
                error_code=code_of(error, "DescribeConfigs"),
                error_message=message_of(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        return _Result(
            error_message="",  # as in Kafka
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[
                _encodable(entry, request.include_synonyms, request.include_documentation)
                for entry in entries
            ],
        )

    def _entries(
        self, kind: int, name: str, names: Collection[str] | None
    ) -> Sequence[ConfigEntry]:
        if kind == ResourceType.TOPIC:
            image = self._cluster.image()
            if name not in image.topics_by_name:
                raise ApiError(why_missing(name), "This server does not host this topic-partition.")
            return describe_topic(self._config.current, image.topic_config(name), names)
        if kind == ResourceType.BROKER:
            if not name:
                return describe_broker_default(self._config.current, names)
            if name != str(self._cluster.node_id):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unexpected broker id, expected {self._cluster.node_id} or empty string, but "
                    f"received {name[:100]}",
                )
            public = () if self._tier is None else self._tier.public_settings
            return describe_broker(self._config.current, names, public_settings=public)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _encodable(entry: ConfigEntry, with_synonyms: bool, with_documentation: bool) -> Any:
    synonyms = entry.synonyms if with_synonyms else ()
    return _Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[_Synonym(name=s.name, value=s.value, source=s.source) for s in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if with_documentation else None,
    )


def make(parts: "HandlerParts") -> DescribeConfigsHandler:
    """Make the handler of DescribeConfigs."""
    return DescribeConfigsHandler(parts.cluster, parts.live, parts.tier)
