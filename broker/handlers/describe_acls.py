"""DescribeAcls (29): refused, as by a Kafka without an authorizer.

MirrorMaker and consoles ask for ACLs regularly. They accept SECURITY_DISABLED as "there are none",
and log a stack trace each time if the API is absent.

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

_Response: Final = response(ApiKey.DESCRIBE_ACLS).cls


class DescribeAclsHandler(DecodedHandler):
    """Refuses DescribeAcls 1-3."""

    api_key = ApiKey.DESCRIBE_ACLS
    versions = Versions(1, 3)

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer SECURITY_DISABLED."""
        return _Response(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",  # Kafka's text of this API
        )


def make(_parts: object) -> DescribeAclsHandler:
    """Make the handler of DescribeAcls."""
    return DescribeAclsHandler()
