"""The life of a broker whose only controller is in its own process, and the way to that one."""

from typing import Any

from broker.handlers.controllers.changes import own_handlers
from broker.network.registry import DecodedHandler
from broker.node.active_controller import ActiveController
from broker.node.broker_lifecycle import BrokerLifecycle, LifecycleSettings
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.free_descriptors import NOT_REPORTED
from metadata_topic.quorum.node import MetadataNode
from runtime.ports import Ports


def handlers_of(node: MetadataNode) -> dict[ApiKey, DecodedHandler]:
    """What the controller of `node` answers the broker in its process."""
    return own_handlers(node.submit, node.brokers, heartbeat_interval_ms=2_000)


def own_life(node: MetadataNode, registration: Registration, ports: Ports) -> BrokerLifecycle:
    """A life that asks the controller of `node` in process; nothing is asked yet."""
    active = ActiveController(node, handlers_of(node), ports)
    return life_by(active, node, registration, ports)


def life_by(
    active: ActiveController, node: Any, registration: Registration, ports: Ports
) -> BrokerLifecycle:
    """A life that asks through `active`; `node` has the image that its broker knows."""

    async def free_descriptors() -> int:
        return NOT_REPORTED

    def on_end(error: BaseException) -> None:
        raise error

    settings = LifecycleSettings(
        cluster_id=node.cluster_id,
        heartbeat_interval_ms=2_000,
        offline_dirs=lambda: (),
        free_descriptors=free_descriptors,
        on_end=on_end,
    )
    return BrokerLifecycle(active, node, registration, settings, ports.scheduler)
