"""ControllerRegistration (70): registers a controller with its endpoints and features.

Versions:

* 0: KIP-919; flexible from the start.

Every controller sends it to the active one, until the metadata have its incarnation. As in Kafka 4,
the field on the migration from ZooKeeper is ignored.
"""

from functools import partial
from typing import Any, Final

from broker.handlers.errors_out import code_of, message_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.brokers import Registration, register_controller
from metadata_topic.image.model import Endpoint

_Response: Final = response(ApiKey.CONTROLLER_REGISTRATION).cls


class ControllerRegistrationHandler(DecodedHandler):
    """Answers ControllerRegistration on a controllers' listener."""

    api_key = ApiKey.CONTROLLER_REGISTRATION
    versions = Versions(0, 0)

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Store the registration in the metadata."""
        registration = Registration(
            request.controller_id,
            request.incarnation_id,
            tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
            {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features},
        )
        try:
            await self._submit(partial(register_controller, registration=registration))
        except Exception as error:  # noqa: BLE001  (reported as a code)
            code = code_of(error, "register a controller")
            return _Response(error_code=int(code), error_message=message_of(error))
        return _Response()
