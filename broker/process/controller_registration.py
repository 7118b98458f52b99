"""A controller registers with the active controller, until the metadata have it.

The active controller registers itself, see `metadata_topic.quorum.active.activation`.
"""

import asyncio
import logging
from typing import Any, Final

from broker.node.active_controller import ActiveController
from broker.node.broker_lifecycle import listeners_and_features
from kafka_client.transport import Network
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from metadata_topic.controller.brokers import Registration
from metadata_topic.image.records import CONTROLLER_REGISTRATION_LEVEL
from metadata_topic.quorum.node import MetadataNode
from runtime.ports import Ports
from runtime.rng import Backoff
from runtime.scheduler import pause

log = logging.getLogger(__name__)

POLL_MS: Final = 500
ANSWER_MS: Final = 30_000
RETRY_MS_MAX: Final = 10_000
JITTER: Final = 0.2


def register_in_metadata(
    node: MetadataNode, ports: Ports, network: Network | None = None
) -> "asyncio.Task[None]":
    """Begin; the task ends when this incarnation of the controller was in the metadata.

    Another process of this id may register after it. Neither begins again, so that they do not
    fill the log: `identity_watch` ends one of them.
    """
    return asyncio.create_task(_register(node, ports, network))


async def _register(node: MetadataNode, ports: Ports, network: Network | None) -> None:
    active = ActiveController(node, {}, ports, kind="controller", network=network)
    backoff = Backoff(POLL_MS, RETRY_MS_MAX, JITTER, ports.rng)
    try:
        while not is_registered(node):
            delay_ms: float = POLL_MS
            if may_ask(node):
                if refusal := await _ask(active, node.registration):
                    log.info("this controller is not registered yet: %s", refusal)
                # Also after success: Kafka's controllers write a record for each request.
                delay_ms = backoff.next_ms()
            await pause(ports.scheduler, round(delay_ms))
    finally:
        active.close()
    log.info("this controller is registered: node_id=%d", node.node_id)


def is_registered(node: MetadataNode) -> bool:
    """True if the metadata have this incarnation of the controller."""
    known = node.image.controllers.get(node.node_id)
    return known is not None and known.incarnation_id == node.registration.incarnation_id


def may_ask(node: MetadataNode) -> bool:
    """True if another node leads, and the committed metadata version can hold a controller."""
    return (
        not node.is_leader
        and node.knows_active_controller
        and node.image.metadata_version >= CONTROLLER_REGISTRATION_LEVEL
    )


async def _ask(active: ActiveController, registration: Registration) -> str:
    """Register; returns why it failed, or nothing."""
    api_key = ApiKey.CONTROLLER_REGISTRATION
    try:
        answer = await active.ask(api_key, 0, question_of(registration), timeout_ms=ANSWER_MS)
    except KafkaError as error:
        return str(error)
    code = ErrorCode.of(answer.error_code)
    return "" if code == ErrorCode.NONE else f"{code.name}: {answer.error_message}"


def question_of(me: Registration) -> Any:
    """Make the ControllerRegistration request."""
    cls = request(ApiKey.CONTROLLER_REGISTRATION).cls
    return cls(
        controller_id=me.node_id,
        incarnation_id=me.incarnation_id,
        **listeners_and_features(cls, me),
    )
