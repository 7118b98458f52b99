"""SaslHandshake (17): which SASL mechanism authenticates a connection.

Served on listeners with an authenticator alone. Version 0 is told by ApiVersions, as librdkafka
before 2.11 wants it, and closes the connection: after it messages come without a header.

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
        """Note the mechanism, or name those that there are."""
        error, mechanisms = context.session.handshake(request.mechanism)
        return _Response(error_code=int(error), mechanisms=mechanisms)


def make(_: "HandlerParts") -> SaslHandshakeHandler:
    """Make the handler of SaslHandshake."""
    return SaslHandshakeHandler()
