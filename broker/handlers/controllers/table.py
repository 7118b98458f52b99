"""Which APIs controllers serve each other, brokers and admin clients.

No API for data is here: a request of one closes the connection, as in Kafka. The controllers' side
of registration, heartbeats and changes is added by those who build it: `parts.table.add(handler)`.
"""

from broker.handlers import create_acls, delete_acls, describe_acls
from broker.handlers.api_versions import ApiVersionsHandler
from broker.handlers.controllers import describe_cluster, quorum_requests
from broker.handlers.controllers.parts import ControllerParts
from broker.handlers.describe_quorum import DescribeQuorumHandler
from broker.network.registry import HandlerTable


def build_controller_handlers(parts: ControllerParts) -> HandlerTable:
    """Make the table of a controllers' listener, for `broker.network.server.Server`."""
    for handler in quorum_requests.make(parts):
        parts.table.add(handler)
    parts.table.add(ApiVersionsHandler(parts.table, parts.features))
    parts.table.add(DescribeQuorumHandler(parts.quorum.describe))
    parts.table.add(describe_cluster.make(parts))
    for acls in (describe_acls, create_acls, delete_acls):
        parts.table.add(acls.make(parts))
    return parts.table
