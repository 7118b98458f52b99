"""DescribeCluster (60): cluster id, controller and brokers, for admin clients.

Versions:

* 0: brokers, controller, cluster id (KIP-700); flexible (KIP-482).
* 1: whether brokers or controllers are meant (KIP-919).
* 2: fenced brokers on request (KIP-1073).
"""

from typing import TYPE_CHECKING, Any, Final

from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ALL_CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, ClusterView
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from kafka_protocol.wire.schema import Versions

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = message("DescribeClusterResponse").cls
_Broker: Final = _Response.Brokers

ENDPOINT_BROKERS: Final = 1
ENDPOINT_CONTROLLERS: Final = 2


class DescribeClusterHandler(DecodedHandler):
    """Answers DescribeCluster on broker listeners."""

    api_key = ApiKey.DESCRIBE_CLUSTER
    versions = Versions(0, 2)

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Describe the cluster; MISMATCHED_ENDPOINT_TYPE if asked for controllers."""
        if request.endpoint_type == ENDPOINT_CONTROLLERS:
            return _Response(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="The request was sent to an endpoint of type BROKER, but we wanted "
                "an endpoint of type CONTROLLER",
            )
        if request.endpoint_type != ENDPOINT_BROKERS:
            return _Response(
                error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message=f"Unsupported endpoint type {request.endpoint_type}",
            )
        asked = request.include_cluster_authorized_operations
        return _Response(
            cluster_id=self._cluster.cluster_id,
            controller_id=self._cluster.controller_id(),
            brokers=[
                _Broker(
                    broker_id=b.id, host=b.host, port=b.port, rack=b.rack, is_fenced=b.is_fenced
                )
                for b in self._cluster.addresses(
                    context.listener_name, with_fenced=request.include_fenced_brokers
                )
            ],
            cluster_authorized_operations=(
                ALL_CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED
            ),
        )


def make(parts: "HandlerParts") -> DescribeClusterHandler:
    """Make the handler of DescribeCluster."""
    return DescribeClusterHandler(parts.cluster)
