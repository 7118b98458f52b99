"""What brokers and admin clients ask of the active controller; any other answers 41.

But DescribeConfigs: each controller answers it for itself, and for topics by its image (KIP-919).
"""

from dataclasses import dataclass

from broker.config.live_config import LiveConfig
from broker.handlers.broker_heartbeat import BrokerHeartbeatHandler
from broker.handlers.broker_registration import BrokerRegistrationHandler
from broker.handlers.controllers.own_broker import FromTheWire
from broker.handlers.controllers.producer_ids import AllocateProducerIdsHandler
from broker.handlers.controllers.raised_leader_epochs import RaiseLeaderEpochsHandler
from broker.handlers.controllers.removed_topics import UpdateRemovedTopicsHandler
from broker.handlers.controllers.replica_directories import AssignReplicasToDirsHandler
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.describe_configs import DescribeConfigsHandler
from broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.network.registry import DecodedHandler, HandlerTable
from broker.topics.cluster import ClusterView
from broker.topics.creation import Descriptors, Settled, Submit, TopicCreation
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.quorum.active.broker_control import BrokerControl
from runtime.clock import Clock
from runtime.dice import Dice


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeParts:
    """What these handlers are made of.

    Attributes:
        live: settings of this node, which new topics take their defaults from.
        cluster: the image.
        creation: of topics.
        submit: to the active controller, if it is this node's.
        brokers: their registrations and heartbeats.
        own_broker_id: the broker in this process, which speaks for itself beside the wire; None: a
            process without one.
        clock: of the process.
        settled: waits until this node's broker has taken away the files of topics.
    """

    live: LiveConfig
    cluster: ClusterView
    creation: TopicCreation
    submit: Submit
    brokers: BrokerControl
    own_broker_id: int | None
    clock: Clock
    settled: Settled = lambda _ids: None


def creation_without_broker(
    submit: Submit,
    live: LiveConfig,
    dice: Dice,
    descriptors: Descriptors,
    *,
    replicas_max: int | None = None,
) -> TopicCreation:
    """Creation of topics that does not wait for partitions of this node's own."""
    creation = TopicCreation(
        submit,
        defaults=live.topic_defaults,
        validate_config=live.validate_new_topic,
        dice=dice,
    )
    creation.descriptors, creation.replicas_max = descriptors, replicas_max
    return creation


def own_handlers(
    submit: Submit, brokers: BrokerControl, *, heartbeat_interval_ms: int
) -> dict[ApiKey, DecodedHandler]:
    """What a broker asks in its own name, for the broker in this process."""
    handlers = (
        BrokerRegistrationHandler(brokers),
        BrokerHeartbeatHandler(brokers, heartbeat_interval_ms=heartbeat_interval_ms),
        AllocateProducerIdsHandler(submit),
        AssignReplicasToDirsHandler(submit),
        RaiseLeaderEpochsHandler(submit),
        UpdateRemovedTopicsHandler(submit),
    )
    return {handler.api_key: handler for handler in handlers}


def add_change_handlers(table: HandlerTable, parts: ChangeParts) -> None:
    """Add them to the table of a controllers' listener."""
    config, own_id = parts.live.current, parts.own_broker_id
    interval_ms = config.broker_heartbeat_interval_ms
    for handler in own_handlers(
        parts.submit, parts.brokers, heartbeat_interval_ms=interval_ms
    ).values():
        table.add(handler if own_id is None else FromTheWire(handler, own_id, parts.clock))
    table.add(CreateTopicsHandler(parts.creation, parts.live))
    table.add(
        DeleteTopicsHandler(
            parts.cluster,
            parts.submit,
            enabled=config.delete_topic_enable,
            settled=parts.settled,
        )
    )
    table.add(IncrementalAlterConfigsHandler(parts.submit, parts.live))
    table.add(DescribeConfigsHandler(parts.cluster, parts.live))
