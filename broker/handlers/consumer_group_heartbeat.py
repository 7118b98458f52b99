"""ConsumerGroupHeartbeat (68): refused, because groups of KIP-848 are not served yet.

ApiVersions lists it all the same, as does a Kafka whose `group.coordinator.rebalance.protocols` is
`classic`. If the API is absent, a consumer of librdkafka with `group.protocol=consumer` retries
without end and reports no error to its program. If it is refused with UNSUPPORTED_VERSION, it ends
with an error. The Java client ends in both cases, and franz-go continues with the classic protocol.

Versions:

* 0: a member of a group whose broker assigns the partitions (KIP-848).
* 1: a subscription by pattern, which the broker resolves; the member makes its own id (KIP-848).
"""

from typing import Any, Final

from broker.handlers.parts import HandlerParts, Unserved
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

_Response: Final = response(ApiKey.CONSUMER_GROUP_HEARTBEAT).cls


class ConsumerGroupHeartbeatHandler(DecodedHandler):
    """Refuses ConsumerGroupHeartbeat 0-1."""

    api_key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    versions = Versions(0, 1)

    def __init__(self, unserved: Unserved) -> None:
        self._unserved = unserved

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Refuse the request, with the remedy in the error text and in the log."""
        said = self._unserved.refused(
            context, "Groups of the consumer protocol", "set group.protocol=classic"
        )
        return _Response(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message=f"Group {request.group_id[:100]}: {said}",
        )


def make(parts: HandlerParts) -> ConsumerGroupHeartbeatHandler:
    """Make the handler of ConsumerGroupHeartbeat."""
    return ConsumerGroupHeartbeatHandler(parts.unserved)
