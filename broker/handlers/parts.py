"""What the broker hands to its handlers."""

from dataclasses import dataclass
from functools import cached_property

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.coordinator.service import GroupCoordinator
from broker.handlers.holding import Holding
from broker.handlers.unserved import Unserved
from broker.network.registry import HandlerTable
from broker.node.active_controller import ActiveController
from broker.node.broker_life import BrokerLife
from broker.remote.tier import RemoteTier
from broker.replica.manager import ReplicaManager
from broker.topics.auto_creation import AutoTopicCreation
from broker.topics.cluster import ClusterView
from broker.topics.creation import TopicCreation
from local_log.manager.log_dirs import LogManager
from metadata_topic.quorum.node import MetadataNode
from runtime.ports import Ports


@dataclass(frozen=True)
class HandlerParts:
    """What handlers are made of.

    Attributes:
        tier: None without a remote tier.
        active: the way to the active controller.
    """

    config: BrokerConfig
    live: LiveConfig
    cluster: ClusterView
    creation: TopicCreation
    own_topics: AutoTopicCreation
    node: MetadataNode
    registration: BrokerLife
    replicas: ReplicaManager
    logs: LogManager
    groups: GroupCoordinator
    tier: RemoteTier | None
    ports: Ports
    active: ActiveController

    @cached_property
    def table(self) -> HandlerTable:
        """The table that the handlers are put into; ApiVersions answers from it."""
        return HandlerTable()

    @cached_property
    def holding(self) -> Holding:
        """One for all APIs: a connection waits once, whatever it asks."""
        return Holding(self.ports.clock, self.ports.scheduler)

    @cached_property
    def unserved(self) -> Unserved:
        """One for all APIs: a client that asks for transactions asks in more than one."""
        return Unserved()
