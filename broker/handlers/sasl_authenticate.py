"""SaslAuthenticate (36): the messages of a SASL mechanism.

Only listeners with an authenticator serve it. A session does not expire: the connection is
authenticated until it closes.

Versions:

* 0: the client's message (KIP-152).
* 1: how long the session lasts (KIP-368); 0: without end.
* 2: flexible (KIP-482).
"""

from typing import TYPE_CHECKING, Any, Final

from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts

_Response: Final = response(ApiKey.SASL_AUTHENTICATE).cls


class SaslAuthenticateHandler(DecodedHandler):
    """Serves SaslAuthenticate 0-2."""

    api_key = ApiKey.SASL_AUTHENTICATE
    versions = Versions(0, 2)

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Pass the message to the session; no answer and no log has its content."""
        error, text, message = context.session.authenticate(bytes(request.auth_bytes))
        return _Response(error_code=int(error), error_message=text, auth_bytes=message)


def make(_: "HandlerParts") -> SaslAuthenticateHandler:
    """Make the handler of SaslAuthenticate."""
    return SaslAuthenticateHandler()
