"""The listener of the controllers: a server of its own, with a table of its own, and no data."""

import logging

from broker.config.broker_config import BrokerConfig
from broker.handlers import create_acls, delete_acls, describe_acls
from broker.handlers.add_raft_voter import AddRaftVoterHandler
from broker.handlers.api_versions import ApiVersionsHandler, features_of
from broker.handlers.controllers import describe_cluster, quorum_requests, update_raft_voter
from broker.handlers.controllers.changes import ChangeParts, add_change_handlers
from broker.handlers.controllers.envelope import EnvelopeHandler
from broker.handlers.controllers.parts import ControllerParts
from broker.handlers.describe_quorum import DescribeQuorumHandler
from broker.handlers.remove_raft_voter import RemoveRaftVoterHandler
from broker.handlers.update_features import UpdateFeaturesHandler
from broker.network.dispatch import decoders
from broker.network.registry import HandlerTable
from broker.network.server import Server
from broker.node.endpoints import controller_addresses, network_limits
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.wire.rpc import WireIdentity
from runtime.ports import Ports

log = logging.getLogger(__name__)

GRACE_MS = 500
"""At a stop the replica has sent all its answers within this time."""


def build_controller_handlers(parts: ControllerParts) -> HandlerTable:
    """Make the handler table of a controllers' listener, for `broker.network.server.Server`."""
    for handler in quorum_requests.make(parts):
        parts.table.add(handler)
    parts.table.add(ApiVersionsHandler(parts.table, parts.features))
    parts.table.add(DescribeQuorumHandler(parts.quorum.describe))
    parts.table.add(describe_cluster.make(parts))
    parts.table.add(update_raft_voter.make(parts))
    for changes in (AddRaftVoterHandler, RemoveRaftVoterHandler, UpdateFeaturesHandler):
        parts.table.add(changes(parts.quorum))
    for acls in (describe_acls, create_acls, delete_acls):
        parts.table.add(acls.make(parts))
    return parts.table


def controllers_table(
    config: BrokerConfig, node: MetadataNode, changes: ChangeParts, ports: Ports
) -> HandlerTable:
    """Make the whole handler table, with changes and Envelope."""
    parts = ControllerParts(
        WireIdentity(node.cluster_id, config.controller_listener_names[0]),
        node,
        lambda: features_of(node.image, node.kraft_version),
    )
    table = build_controller_handlers(parts)
    add_change_handlers(table, changes)
    table.add(
        EnvelopeHandler(table, lambda: node.applied_end, decoders(ports.executors), ports.clock)
    )
    return table


class ControllersListener:
    """Opens and closes the controllers' listener."""

    def __init__(
        self, config: BrokerConfig, node: MetadataNode, changes: ChangeParts, ports: Ports
    ) -> None:
        """Make the handlers; nothing is opened before `open`."""
        table = controllers_table(config, node, changes, ports)
        self._server = Server(table, network_limits(config), ports)
        self._addresses = controller_addresses(config)

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: An address cannot be bound.
        """
        await self._server.start(self._addresses)
        for name, (host, port) in self._server.bound.items():
            log.info("listening: listener=%s address=%s:%d (controllers)", name, host, port)

    async def open_if_it_can(self) -> None:
        """Listen, or log that no tool can reach this controller.

        The only voter does not depend on it: earlier versions did not open its listener, and its
        port may be taken.
        """
        try:
            await self.open()
        except OSError as error:
            log.warning(
                "the controller's listener is not open, so that no tool can ask this one: %s", error
            )

    async def close(self) -> None:
        """Close; answers that are ready are sent."""
        await self._server.stop(GRACE_MS)
