"""Read-only view of the cluster for handlers: the image, and the endpoints of each listener.

A Metadata answer has the endpoints of the listener that received the request, so every look-up here
takes the listener's name.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.types import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC
from metadata_topic.controller.topic_specs import INTERNAL_TOPICS, validate_name
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import NO_LEADER, BrokerImage, Endpoint, PartitionImage

GUARDED_TOPICS: Final = frozenset({CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC})
"""Clients may not create, delete or configure these topics: POLICY_VIOLATION (44)."""

ALL_TOPIC_OPERATIONS: Final = 3576
"""Bits of a topic's ACL operations, all allowed: there is no authorizer."""
ALL_CLUSTER_OPERATIONS: Final = 8096
"""Bits of the cluster's ACL operations, all allowed."""
OPERATIONS_NOT_ASKED: Final = -2147483648


def is_internal(topic: str) -> bool:
    """True if clients should treat `topic` as internal to the brokers."""
    return topic in INTERNAL_TOPICS


def is_legal_topic_name(name: str) -> bool:
    """True if Kafka's rules allow a topic of this name."""
    try:
        validate_name(name)
    except KafkaError:
        return False
    return True


def why_missing(name: str) -> ErrorCode:
    """The error code for a missing topic: its name is illegal, or it does not exist."""
    if is_legal_topic_name(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker, as clients of one listener reach it."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


Addresses = Callable[[str], Iterable[BrokerAddress]]
"""Returns the brokers as clients of a listener reach them."""


def nowhere(_listener: str) -> Iterable[BrokerAddress]:
    """Default of `Addresses`: no broker is known."""
    return ()


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition, as clients of one listener see it.

    Attributes:
        error: LEADER_NOT_AVAILABLE or LISTENER_NOT_FOUND without a reachable leader;
            REPLICA_NOT_AVAILABLE where replicas are excluded.
        leader: Broker id, -1 without a reachable leader.
        offline: Replicas whose broker is gone, fenced, without the listener, or registered without
            the replica's log directory.
    """

    error: ErrorCode
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster for the handlers that describe it.

    Attributes:
        node_id: Id of this broker.
        cluster_id: 22 characters, from `meta.properties`.
        image: Returns the newest committed image.
        own_endpoints: Listeners of this broker that are not registered; other brokers do not see
            them.
    """

    node_id: int
    cluster_id: str
    image: Callable[[], MetadataImage]
    own_endpoints: dict[str, Endpoint] = field(default_factory=dict)

    def addresses(self, listener: str, *, with_fenced: bool = False) -> Iterator[BrokerAddress]:
        """Brokers that have `listener`, by ascending id; fenced ones only if asked for."""
        brokers = self.image().brokers
        for broker_id in sorted(brokers):
            broker = brokers[broker_id]
            endpoint = self._endpoint(broker, listener)
            if endpoint is not None and (with_fenced or not broker.fenced):
                yield BrokerAddress(
                    broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced
                )

    def controller_id(self) -> int:
        """The broker that clients should send admin requests to; -1: there is none.

        As in Kafka's KRaft mode any active broker will do; this one needs no forwarding.
        """
        own = self.image().brokers.get(self.node_id)
        if own is not None and not own.fenced:
            return self.node_id
        return next((b.id for b in self.image().brokers.values() if not b.fenced), NO_LEADER)

    def partition(
        self, partition: PartitionImage, listener: str, *, old: bool, only_live: bool = False
    ) -> PartitionView:
        """One partition, for a client of `listener`.

        Args:
            partition: Its state in the image.
            listener: The listener that received the request.
            old: The client does not know LISTENER_NOT_FOUND (Metadata before version 6).
            only_live: Leave out replicas of brokers that the answer does not list (before version
                1).
        """
        brokers = self.image().brokers
        leader = brokers.get(partition.leader)
        error = ErrorCode.NONE
        if leader is None or leader.fenced:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif self._endpoint(leader, listener) is None:
            error = ErrorCode.LEADER_NOT_AVAILABLE if old else ErrorCode.LISTENER_NOT_FOUND
        leader_id = NO_LEADER if error else partition.leader
        replicas, isr = list(partition.replicas), list(partition.isr)
        if only_live:
            replicas, isr = (
                [one for one in some if self._live(one, listener)] for some in (replicas, isr)
            )
            if not error and len(replicas) < len(partition.replicas):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return PartitionView(
            error=error,
            leader=leader_id,
            leader_epoch=partition.leader_epoch,
            replicas=replicas,
            isr=isr,
            offline=[
                replica
                for replica in partition.replicas
                if self._is_offline(replica, listener, partition.directory_of(replica))
            ],
        )

    def _is_offline(self, replica: int, listener: str, directory_id: bytes) -> bool:
        broker = self._live(replica, listener)
        return broker is None or not broker.works_with(directory_id)

    def _live(self, broker_id: int, listener: str) -> BrokerImage | None:
        """The broker if it is active and has `listener`; else None."""
        broker = self.image().brokers.get(broker_id)
        if broker is None or broker.fenced or self._endpoint(broker, listener) is None:
            return None
        return broker

    def _endpoint(self, broker: BrokerImage, listener: str) -> Endpoint | None:
        own = self.own_endpoints.get(listener) if broker.id == self.node_id else None
        return own or broker.endpoint(listener)
