"""Requests of brokers and admin clients to the active controller; others answer NOT_CONTROLLER.

DescribeConfigs is an exception: each controller answers for itself, and for topics from its image
(KIP-919).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from broker.config.live_config import LiveConfig
from broker.config.rules import CLUSTER_SECRET_KEY
from broker.handlers.alter_configs import AlterConfigsHandler
from broker.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from broker.handlers.broker_heartbeat import BrokerHeartbeatHandler
from broker.handlers.broker_registration import BrokerRegistrationHandler
from broker.handlers.controllers.alter_partition import AlterPartitionHandler
from broker.handlers.controllers.controller_registration import ControllerRegistrationHandler
from broker.handlers.controllers.producer_ids import AllocateProducerIdsHandler
from broker.handlers.controllers.raised_leader_epochs import RaiseLeaderEpochsHandler
from broker.handlers.controllers.removed_topics import UpdateRemovedTopicsHandler
from broker.handlers.controllers.replica_directories import AssignReplicasToDirsHandler
from broker.handlers.create_partitions import CreatePartitionsHandler
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.describe_configs import DescribeConfigsHandler
from broker.handlers.elect_leaders import ElectLeadersHandler
from broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.handlers.list_partition_reassignments import ListPartitionReassignmentsHandler
from broker.handlers.unregister_broker import UnregisterBrokerHandler
from broker.network.registry import DecodedHandler, HandlerTable, RequestContext
from broker.topics.cluster import ClusterView
from broker.topics.creation import Descriptors, Settled, Submit, TopicCreation
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from metadata_topic.quorum.active.broker_control import BrokerControl
from runtime.clock import Clock
from runtime.incidents import Incident
from runtime.log_context import LimitedLog, escape
from runtime.rng import Rng

log = logging.getLogger(__name__)

_CODES: Final = {ApiKey.BROKER_REGISTRATION: ErrorCode.DUPLICATE_BROKER_REGISTRATION}


class FromTheWire(DecodedHandler):
    """Guards requests that a broker sends for itself, on a listener.

    A client of the controllers' listener could guess the epoch of the broker in this process, fence
    that broker or take over its id. Other brokers have no channel but the listener; protecting
    their ids would need authentication.

    DIFFERS: Kafka's combined node sends its own requests over the network, and accepts them from
    any client.
    """

    def __init__(
        self,
        here: DecodedHandler,
        own_broker_id: int,
        clock: Clock,
        *,
        is_active: Callable[[], bool] = lambda: True,
        lone_tier: bool = False,
    ) -> None:
        """Refuse requests in the name of `own_broker_id`, with one log line a minute.

        Args:
            here: Serves all other requests.
            own_broker_id: Id of the broker in this process.
            clock: For the log lines.
            is_active: Returns True if this controller is the active one. Otherwise no request is
                refused here, and `here` answers NOT_CONTROLLER. With mixed-up addresses, the broker
                in this process can reach this controller instead of another one. Then it must not
                conclude that its id was taken over.
            lone_tier: This node has a remote tier and no cluster secret. Then no other broker may
                register, because tiers could not authenticate at each other's brokers.
        """
        self.api_key, self.versions = here.api_key, here.versions
        self._refuses_others = lone_tier and here.api_key == ApiKey.BROKER_REGISTRATION
        self._here, self._own_broker_id, self._refusals = here, own_broker_id, LimitedLog(clock)
        self._is_active = is_active

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Pass the request on, or refuse it."""
        if not self._is_active():
            return self._here.handle(context, request)
        if request.broker_id != self._own_broker_id:
            return self._of_another(context, request)
        code = _CODES.get(self.api_key, ErrorCode.STALE_BROKER_EPOCH)
        line = Incident.OWN_BROKER_ASKED.line(
            api=self.api_key.name,
            broker_id=request.broker_id,
            peer=f"{context.peer[0]}:{context.peer[1]}",
            client_id=escape(context.client_id),
        )
        self._refusals.error(log, line, context.peer[0])
        return response(self.api_key).cls(error_code=int(code))

    def _of_another(self, context: RequestContext, request: Any) -> Any:
        if not self._refuses_others:
            return self._here.handle(context, request)
        line = Incident.NO_CLUSTER_SECRET.line(broker_id=request.broker_id, key=CLUSTER_SECRET_KEY)
        self._refusals.error(log, line, request.broker_id)
        return response(self.api_key).cls(error_code=int(ErrorCode.POLICY_VIOLATION))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeParts:
    """The parts of a controller that these handlers use.

    Attributes:
        live: Settings of this node; new topics get their defaults from it.
        cluster: View of the newest committed image.
        creation: Creates topics.
        submit: Submits decisions if this node is the active controller.
        brokers: Registrations and heartbeats.
        own_broker_id: The broker in this process, which does not use the network for its own
            requests; None: there is no broker.
        clock: Clock of the process.
        settled: Waits until this node's broker has removed the files of topics.
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
    rng: Rng,
    descriptors: Descriptors,
) -> TopicCreation:
    """Topic creation that does not wait for replicas on this node."""
    creation = TopicCreation(
        submit,
        defaults=live.topic_defaults,
        validate_config=live.validate_new_topic,
        rng=rng,
    )
    creation.descriptors = descriptors
    return creation


def own_handlers(
    submit: Submit, brokers: BrokerControl, *, heartbeat_interval_ms: int
) -> dict[ApiKey, DecodedHandler]:
    """Handlers of a broker's own requests, for the broker in this process."""
    handlers = (
        BrokerRegistrationHandler(brokers),
        BrokerHeartbeatHandler(brokers, heartbeat_interval_ms=heartbeat_interval_ms),
        AllocateProducerIdsHandler(submit),
        AssignReplicasToDirsHandler(submit, brokers.election_defaults),
        AlterPartitionHandler(submit, brokers.election_defaults),
        RaiseLeaderEpochsHandler(submit),
        UpdateRemovedTopicsHandler(submit),
    )
    return {handler.api_key: handler for handler in handlers}


def add_change_handlers(table: HandlerTable, parts: ChangeParts) -> None:
    """Add the handlers to the table of a controllers' listener."""
    config, own_id = parts.live.current, parts.own_broker_id
    lone_tier = config.remote_log_storage_system_enable and not config.tidemark_cluster_secret_file
    interval_ms = config.broker_heartbeat_interval_ms
    for handler in own_handlers(
        parts.submit, parts.brokers, heartbeat_interval_ms=interval_ms
    ).values():
        table.add(
            handler
            if own_id is None
            else FromTheWire(
                handler,
                own_id,
                parts.clock,
                is_active=lambda: parts.brokers.is_active,
                lone_tier=lone_tier,
            )
        )
    table.add(ControllerRegistrationHandler(parts.submit))
    table.add(CreateTopicsHandler(parts.creation, parts.live, brokers_ask=True))
    table.add(CreatePartitionsHandler(parts.creation))
    table.add(
        DeleteTopicsHandler(
            parts.cluster,
            parts.submit,
            enabled=config.delete_topic_enable,
            settled=parts.settled,
        )
    )
    table.add(IncrementalAlterConfigsHandler(parts.submit, parts.live))
    table.add(AlterConfigsHandler(parts.submit, parts.live))
    table.add(UnregisterBrokerHandler(parts.submit))
    defaults = parts.brokers.election_defaults
    table.add(ElectLeadersHandler(parts.submit, defaults))
    table.add(AlterPartitionReassignmentsHandler(parts.creation, defaults))
    table.add(ListPartitionReassignmentsHandler(parts.submit))
    table.add(DescribeConfigsHandler(parts.cluster, parts.live))
