"""DeleteAcls (31): each filter is refused, as by a Kafka without an authorizer.

DIFFERS: a filter with an unknown resource type, pattern type, operation or permission is refused
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

_Response: Final = response(ApiKey.DELETE_ACLS).cls
_REFUSED: Final = _Response.FilterResults(
    error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
)


class DeleteAclsHandler(DecodedHandler):
    """Refuses DeleteAcls 1-3."""

    api_key = ApiKey.DELETE_ACLS
    versions = Versions(1, 3)

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Refuse each filter with SECURITY_DISABLED."""
        return _Response(filter_results=[_REFUSED for _ in request.filters])


def make(_parts: object) -> DeleteAclsHandler:
    """Make the handler of DeleteAcls."""
    return DeleteAclsHandler()
