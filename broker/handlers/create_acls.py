"""CreateAcls (30): each is refused, as by a Kafka without an authorizer.

DIFFERS: an entry with an unknown resource type, pattern type, operation or permission is refused
like all others; Kafka closes the connection.

Versions:

* 1: patterns of resource names; literal names are one type of them (KIP-290).
* 2: flexible (KIP-482).
* 3: no new field; users are a type of resource (KIP-373).
"""

from typing import Any, Final

from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

_Response: Final = response(ApiKey.CREATE_ACLS).cls
_REFUSED: Final = _Response.Results(
    error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
)


class CreateAclsHandler(DecodedHandler):
    """Refuses CreateAcls 1-3."""

    api_key = ApiKey.CREATE_ACLS
    versions = Versions(1, 3)

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Refuse each creation with SECURITY_DISABLED."""
        return _Response(results=[_REFUSED for _ in request.creations])


def make(_parts: object) -> CreateAclsHandler:
    """Make the handler of CreateAcls."""
    return CreateAclsHandler()
