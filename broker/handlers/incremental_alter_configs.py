"""IncrementalAlterConfigs (44): settings of topics and brokers, one key at a time (KIP-339).

The changes are in force when the answer leaves, because logs and the tier follow the metadata
image.

Versions:

* 0: set, delete, append and subtract, key by key (KIP-339).
* 1: flexible (KIP-482).
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from broker.config.aliases import topic_name_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import GUARDED_TOPICS
from broker.topics.creation import Submit
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.configs import (
    AlteredResource,
    ConfigRules,
    Operation,
    incremental_alter_configs,
)
from metadata_topic.controller.errors import PolicyViolationError
from metadata_topic.controller.result import Decided
from metadata_topic.image.image import MetadataImage, ResourceType

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_KEEPS_ALL: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_THROTTLED: Final = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
"""Reassignment tools set these and remove them again; `--verify` removes them even if not set."""


class IncrementalAlterConfigsHandler(DecodedHandler):
    """Answers IncrementalAlterConfigs, and is the base class of the older AlterConfigs."""

    api_key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    versions = Versions(0, 1)

    response_cls: ClassVar[Any] = message("IncrementalAlterConfigsResponse").cls
    replaces: ClassVar[bool] = False
    """True if overrides that the request does not name are deleted."""

    def __init__(self, submit: Submit, rules: ConfigRules) -> None:
        self._submit = submit
        self._rules = rules

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Alter the settings of each resource; each gets its own error."""
        refused = [_refused(one) for one in request.resources if self._is_guarded(one)]
        wanted = [_today(one) for one in request.resources if not self._is_guarded(one)]
        altered = await self._alter(wanted, validate_only=request.validate_only)
        return self._answer([*refused, *altered])

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error` for each resource: nothing was done."""
        del context
        return self._answer(_failed(one, error) for one in request.resources)

    answered_in = "responses"

    def asked_in(self, _version: int) -> str:
        """Field of the request with the resources."""
        return "resources"

    def guarded(self, resource: Any) -> Any | None:
        """The refusal for a topic that only brokers configure; None for any other."""
        return self._result(_refused(resource)) if self._is_guarded(resource) else None

    async def _alter(self, wanted: Sequence[Any], *, validate_only: bool) -> list[AlteredResource]:
        if not wanted:
            return []

        def decide(image: MetadataImage) -> Decided[list[AlteredResource]]:
            return incremental_alter_configs.steps(
                image,
                wanted,
                rules=self._rules,
                replaces=self.replaces,
                validate_only=validate_only,
            )

        try:
            return await self._submit(decide)
        except KafkaError as error:  # the decision could not be committed
            return [_failed(one, error) for one in wanted]

    def _answer(self, altered: Iterable[AlteredResource]) -> Any:
        return self.response_cls(responses=[self._result(one) for one in altered])

    def _result(self, one: AlteredResource) -> Any:
        return self.response_cls.Responses(
            error_code=ErrorCode.NONE if one.error is None else one.error.code,
            error_message=None if one.error is None else str(one.error),
            resource_type=one.resource_type,
            resource_name=one.resource_name,
        )

    def _is_guarded(self, resource: Any) -> bool:
        name = resource.resource_name
        if resource.resource_type != ResourceType.TOPIC or name not in GUARDED_TOPICS:
            return False
        return self.replaces or name != REMOTE_LOG_METADATA_TOPIC or not _only_keeps(resource)


def _today(resource: Any) -> Any:
    """Replace old names of settings, which are never stored."""
    if resource.resource_type == ResourceType.TOPIC:
        for config in resource.configs:
            config.name = topic_name_of(config.name)
    return resource


def _only_keeps(resource: Any) -> bool:
    """True if no change can delete records of the topic or reduce its in-sync replicas.

    Allowed are the repair of a topic that Kafka compacted or let expire, a higher
    `min.insync.replicas` after replicas were added, and throttles of replicas.
    """
    return all(
        change.name in _THROTTLED
        or (
            change.config_operation == Operation.SET
            and (_KEEPS_ALL.get(change.name) == change.value or _asks_for_two(change))
        )
        for change in resource.configs
    )


def _asks_for_two(change: Any) -> bool:
    value = change.value or ""
    return change.name == "min.insync.replicas" and value.isdecimal() and int(value) > 1


def _refused(resource: Any) -> AlteredResource:
    """DIFFERS: Kafka allows clients to set a retention on `__remote_log_metadata`.

    The metadata of segments would expire with it.
    """
    return _failed(resource, PolicyViolationError("This topic belongs to the brokers."))


def _failed(resource: Any, error: KafkaError) -> AlteredResource:
    return AlteredResource(resource.resource_type, resource.resource_name, error)


def make(parts: "HandlerParts") -> IncrementalAlterConfigsHandler:
    """Make the handler of IncrementalAlterConfigs."""
    return IncrementalAlterConfigsHandler(parts.node.submit, parts.live)
