"""UpdateFeatures (57): finalises levels of features.

Versions:

* 0: KIP-584; flexible from the start.
* 1: safe and unsafe downgrades, and a check alone (KIP-778).
* 2: no answer for each feature: all or nothing (KIP-1022).

All updates are checked first. The replica of the metadata log raises kraft.version before the
others are written. If the leader is lost in between, the answer is an error; sending the same
request again completes it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.handlers.errors_out import code_of, message_of
from broker.handlers.voter_change import asked_of_quorum
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.controller.feature_updates import (
    FeatureUpdate,
    UpdatingController,
    UpgradeType,
    refusal,
    update_features,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import KRAFT_VERSION, MetadataImage
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.raft.messages import UpgradeKraftVersionRequest

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = response(ApiKey.UPDATE_FEATURES).cls


class UpdateFeaturesHandler(DecodedHandler):
    """Serves UpdateFeatures on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.UPDATE_FEATURES
    versions = Versions(0, 2)

    def __init__(self, quorum: MetadataNode) -> None:
        self._quorum = quorum

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Apply the updates; answers once all are committed."""
        updates = [_update(one, context.api_version) for one in request.feature_updates]
        to_level = {one.feature: one for one in updates}.get(KRAFT_VERSION)
        done_before = ""
        try:
            if to_level is not None:
                await self._decide(updates, request.timeout_ms, validate_only=True)
                await self._upgrade_kraft_version(to_level, validate_only=request.validate_only)
                if not request.validate_only:
                    done_before = f"{KRAFT_VERSION} has level {to_level.level}, the others failed: "
            await self._decide(updates, request.timeout_ms, validate_only=request.validate_only)
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _refused(error, done_before)
        if context.api_version >= 2:
            return _Response()
        done = [_Response.Results(feature=one.feature, error_message="NONE") for one in updates]
        return _Response(results=done)

    async def _decide(
        self, updates: Sequence[FeatureUpdate], timeout_ms: int, *, validate_only: bool
    ) -> None:
        quorum = self._quorum

        def decide(image: MetadataImage) -> ControllerResult[None]:
            me = UpdatingController(
                registration=quorum.registration,
                kraft_version=quorum.kraft_version,
                voters=quorum.voters.ids,
                defaults=quorum.brokers.election_defaults,
            )
            return update_features(image, updates, me, validate_only=validate_only)

        await quorum.submit(decide, timeout_ms=timeout_ms)

    async def _upgrade_kraft_version(self, update: FeatureUpdate, *, validate_only: bool) -> None:
        quorum = self._quorum
        asked = UpgradeKraftVersionRequest(quorum.leader_epoch, update.level, validate_only)
        answer = await asked_of_quorum(quorum, asked)
        if answer.error is ErrorCode.INVALID_UPDATE_VERSION:
            raise ApiError(answer.error, refusal(answer.text))
        if answer.error is ErrorCode.REQUEST_TIMED_OUT:
            raise ApiError(answer.error, answer.text)
        if answer.error is not ErrorCode.NONE:
            raise NotControllerError("this node ceased to lead the quorum")

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error`: nothing was done."""
        del context, request
        return _refused(error)


def _update(asked: Any, version: int) -> FeatureUpdate:
    upgrade_type = asked.upgrade_type
    if version == 0 and asked.allow_downgrade:
        upgrade_type = int(UpgradeType.SAFE_DOWNGRADE)
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)


def _refused(error: Exception, done_before: str = "") -> Any:
    code = code_of(error, "update features")
    told = done_before + (message_of(error) or "")
    return _Response(error_code=int(code), error_message=told or None)


def make(parts: "HandlerParts") -> UpdateFeaturesHandler:
    """Make the handler of UpdateFeatures."""
    return UpdateFeaturesHandler(parts.node)
