"""DescribeCluster (60) on the controllers' listener: the controllers, and the active one.

Versions:

* 0: refused, because the request cannot ask for controllers (KIP-700).
* 1: whether brokers or controllers are meant (KIP-919).
* 2: fenced brokers (KIP-1073); controllers are never fenced.
"""

from typing import Any, Final

from broker.handlers.controllers.parts import ControllerParts
from broker.handlers.describe_cluster import ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ALL_CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.wire.rpc import WireIdentity

_Response: Final = response(ApiKey.DESCRIBE_CLUSTER).cls
_ENDPOINT_TYPES: Final = 1
"""First version with endpoint types and their errors."""


class DescribeControllersHandler(DecodedHandler):
    """Serves DescribeCluster 0-2 on the controllers' listener."""

    api_key = ApiKey.DESCRIBE_CLUSTER
    versions = Versions(0, 2)

    def __init__(self, identity: WireIdentity, quorum: MetadataNode) -> None:
        self._identity, self._quorum = identity, quorum

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Describe the controllers; MISMATCHED_ENDPOINT_TYPE if asked for brokers."""
        if request.endpoint_type == ENDPOINT_BROKERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if context.api_version < _ENDPOINT_TYPES:
                code = ErrorCode.INVALID_REQUEST
            return _Response(
                error_code=int(code),
                error_message="The request was sent to an endpoint of type CONTROLLER, but we "
                "wanted an endpoint of type BROKER",
            )
        if request.endpoint_type != ENDPOINT_CONTROLLERS:
            return _Response(
                error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
                error_message=f"Unsupported endpoint type {request.endpoint_type}",
            )
        view, asked = self._quorum.describe(), request.include_cluster_authorized_operations
        return _Response(
            endpoint_type=ENDPOINT_CONTROLLERS,
            cluster_id=self._identity.cluster_id,
            controller_id=view.leader_id,
            brokers=[
                _Response.Brokers(broker_id=node.id, host=one.host, port=one.port)
                for node in view.nodes
                for one in node.endpoints
                if one.name == context.listener_name
            ],
            cluster_authorized_operations=(
                ALL_CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED
            ),
        )


def make(parts: ControllerParts) -> DescribeControllersHandler:
    """Make the handler of DescribeCluster."""
    return DescribeControllersHandler(parts.identity, parts.quorum)
