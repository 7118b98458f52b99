"""UnregisterBroker (64): removes the registration of a broker that will not come back.

Versions:

* 0: KIP-631; flexible from the start.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.handlers.errors_out import code_of, message_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.unregistration import unregister_broker

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = response(ApiKey.UNREGISTER_BROKER).cls


class UnregisterBrokerHandler(DecodedHandler):
    """Serves UnregisterBroker on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.UNREGISTER_BROKER
    versions = Versions(0, 0)

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Unregister the broker; answers once it is committed."""
        try:
            await self._submit(partial(unregister_broker.steps, broker_id=request.broker_id))
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _refused(error)
        return _Response(error_message="")  # as in Kafka: not null

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error`: nothing was done."""
        del context, request
        return _refused(error)


def _refused(error: Exception) -> Any:
    code = code_of(error, "unregister a broker")
    return _Response(error_code=int(code), error_message=message_of(error))


def make(parts: "HandlerParts") -> UnregisterBrokerHandler:
    """Make the handler of UnregisterBroker."""
    return UnregisterBrokerHandler(parts.node.submit)
