"""UpdateRemovedTopics (32002): reports of a broker's tier on removed topics.

DIFFERS: Kafka has no such request; see `metadata_topic.controller.topic_deletion`.
"""

from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.broker_sessions import check_broker_epoch
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_deletion import note_emptied
from metadata_topic.image.image import MetadataImage

_Response: Final = response(ApiKey.UPDATE_REMOVED_TOPICS).cls


class UpdateRemovedTopicsHandler(DecodedHandler):
    """Answers UpdateRemovedTopics on a controllers' listener."""

    api_key = ApiKey.UPDATE_REMOVED_TOPICS
    versions = Versions(0, 0)

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Remove `emptied` topics from the list."""

        def decide(image: MetadataImage) -> ControllerResult[None]:
            check_broker_epoch(image, request.broker_id, request.broker_epoch)
            return note_emptied(image, request.emptied)

        try:
            await self._submit(decide)
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _Response(error_code=int(code_of(error, "update removed topics")))
        return _Response()
