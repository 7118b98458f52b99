"""SaslHandshake (17): chooses the SASL mechanism of a connection.

Only listeners with an authenticator serve it. ApiVersions names version 0, which librdkafka before
2.11 needs. A request of that version closes the connection, because messages without a header would
follow.

Versions:

* 1: the messages come in SaslAuthenticate (KIP-152).
"""

from typing import TYPE_CHECKING, Any, Final

from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts

_Response: Final = response(ApiKey.SASL_HANDSHAKE).cls


class SaslHandshakeHandler(DecodedHandler):
    """Serves SaslHandshake 1."""

    api_key = ApiKey.SASL_HANDSHAKE
    versions = Versions(1, 1)
    advertised_min_version = 0

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Choose the mechanism; if it is unknown, the answer names the offered ones."""
        error, mechanisms = context.session.handshake(request.mechanism)
        return _Response(error_code=int(error), mechanisms=mechanisms)


def make(_: "HandlerParts") -> SaslHandshakeHandler:
    """Make the handler of SaslHandshake."""
    return SaslHandshakeHandler()
