"""The parts of a broker that its handlers use."""

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.coordinator.service import GroupCoordinator
from broker.handlers.holding import Holding
from broker.network.registry import HandlerTable, RequestContext
from broker.node.active_controller import ActiveController
from broker.node.broker_lifecycle import BrokerLifecycle
from broker.remote.tier import RemoteTier
from broker.replica.directory_moves import DirectoryMoves
from broker.replica.manager import ReplicaManager
from broker.replication.tier_bootstrap import TierBootstraps
from broker.topics.auto_creation import AutoTopicCreation
from broker.topics.cluster import ClusterView
from broker.topics.creation import TopicCreation
from local_log.manager.log_dirs import LogManager
from metadata_topic.quorum.node import MetadataNode
from runtime.log_context import escape
from runtime.ports import Ports

log = logging.getLogger(__name__)

TRANSACTIONS: Final = "Transactions", "use a producer without transactional.id"
"""Subject of a refusal, and its remedy."""
NAMED_MAX: Final = 1_000
"""Limit on logged pairs, so that invented client ids cannot fill memory or the log."""


class Unserved:
    """Refuses unsupported features; logs each pair of client and feature once."""

    def __init__(self) -> None:
        self._named: set[tuple[str, str]] = set()

    def refused(self, context: RequestContext, what: str, remedy: str) -> str:
        """Log a refusal, unless it was logged for this client.

        Args:
            context: Context of the request.
            what: Subject of "are not served", capitalised.
            remedy: For the owner of the client.

        Returns:
            An error text for the client.
        """
        key = escape(context.client_id, 100), what
        if key not in self._named and len(self._named) < NAMED_MAX:
            self._named.add(key)
            log.warning(
                "%s are not served, a client asked for them: client_id=%s peer=%s; %s",
                what, key[0], context.peer[0], remedy,
            )  # fmt: skip
            if len(self._named) == NAMED_MAX:
                log.warning("further clients that ask for what is not served are not named")
        return f"{what} are not served by this broker; {remedy}."


@dataclass(frozen=True)
class HandlerParts:
    """Parts of the broker for handlers.

    Attributes:
        tier: None without a remote tier.
        active: Client of the active controller.
        bootstraps: Restarts of logs from the remote tier.
        moves: Moves of replicas between log directories.
    """

    config: BrokerConfig
    live: LiveConfig
    cluster: ClusterView
    creation: TopicCreation
    own_topics: AutoTopicCreation
    node: MetadataNode
    registration: BrokerLifecycle
    replicas: ReplicaManager
    logs: LogManager
    groups: GroupCoordinator
    tier: RemoteTier | None
    ports: Ports
    active: ActiveController
    bootstraps: TierBootstraps
    moves: DirectoryMoves

    @cached_property
    def table(self) -> HandlerTable:
        """The handlers; ApiVersions answers from it."""
        return HandlerTable()

    @cached_property
    def holding(self) -> Holding:
        """Shared by all APIs: a connection waits once, for any API."""
        return Holding(self.ports.clock, self.ports.scheduler)

    @cached_property
    def unserved(self) -> Unserved:
        """Shared by all APIs: a transactional client uses more than one."""
        return Unserved()
