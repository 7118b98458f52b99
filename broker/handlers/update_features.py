"""UpdateFeatures (57): an operator finalises other levels of features.

Versions:

* 0: KIP-584; flexible from the start.
* 1: safe and unsafe downgrades, and a check alone (KIP-778).
* 2: no answer for each feature: all or nothing (KIP-1022).
"""

from typing import TYPE_CHECKING, Any, Final

from broker.handlers.errors_out import code_of, message_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.feature_updates import (
    FeatureUpdate,
    UpgradeType,
    update_features,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # of brokers; controllers serve this, too

_Response: Final = response(ApiKey.UPDATE_FEATURES).cls


class UpdateFeaturesHandler(DecodedHandler):
    """Answers UpdateFeatures."""

    api_key = ApiKey.UPDATE_FEATURES
    versions = Versions(0, 2)

    def __init__(self, submit: Submit, node_id: int, defaults: ElectionRules) -> None:
        """Decide by `submit`; `defaults`: what the controller's properties say of elections."""
        self._submit, self._node_id, self._defaults = submit, node_id, defaults

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer when the metadata log holds all of it."""
        updates = [_update(one, context.api_version) for one in request.feature_updates]

        def decide(image: MetadataImage) -> ControllerResult[None]:
            return update_features(
                image,
                updates,
                node_id=self._node_id,
                validate_only=request.validate_only,
                defaults=self._defaults,
            )

        try:
            await self._submit(decide, timeout_ms=request.timeout_ms)
        except Exception as error:  # noqa: BLE001  (told as a code)
            return _refused(error)
        if context.api_version >= 2:
            return _Response()
        done = [_Response.Results(feature=one.feature, error_message="NONE") for one in updates]
        return _Response(results=done)

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer that nothing was done."""
        del context, request
        return _refused(error)


def _update(asked: Any, version: int) -> FeatureUpdate:
    upgrade_type = asked.upgrade_type
    if version == 0 and asked.allow_downgrade:
        upgrade_type = int(UpgradeType.SAFE_DOWNGRADE)
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)


def _refused(error: Exception) -> Any:
    code = code_of(error, "update features")
    return _Response(error_code=int(code), error_message=message_of(error))


def make(parts: "HandlerParts") -> UpdateFeaturesHandler:
    """Make the handler of UpdateFeatures."""
    node = parts.node
    return UpdateFeaturesHandler(node.submit, node.node_id, node.brokers.election_defaults)
