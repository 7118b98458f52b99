"""Watches, by this broker's own image, that it is a member of its cluster.

A broker that is fenced or unregistered gets no clients, even if all else is well. It detects that
here, comes back by itself, and is unhealthy until it has. A registration under its id by another
incarnation ends it: two processes of one id must not both continue.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.controller.errors import DuplicateBrokerRegistrationError
from metadata_topic.image.image import MetadataImage
from runtime.clock import Clock
from runtime.health_reasons import HealthLine, HealthReason
from runtime.scheduler import Scheduler, pause

log = logging.getLogger(__name__)

RED_AFTER_MS: Final = 10_000
RETRY_MS: Final = 500
"""Between two attempts to come back."""


class Membership(Enum):
    """The state of one incarnation of a broker in an image."""

    ACTIVE = "active"
    FENCED = "fenced"
    ABSENT = "not registered"
    REPLACED = "replaced"


def membership(image: MetadataImage, node_id: int, incarnation_id: bytes) -> Membership:
    """The state of incarnation `incarnation_id` of broker `node_id`, once it has registered."""
    broker = image.brokers.get(node_id)
    if broker is None:
        return Membership.ABSENT
    if broker.incarnation_id != incarnation_id:
        return Membership.REPLACED
    return Membership.FENCED if broker.fenced else Membership.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipPorts:
    """The parts that a watch uses.

    Attributes:
        register: Registers this incarnation again.
        unfence: Has it unfenced; does not wait.
        waits_for: Why the image may be old: no active controller is known, or not all that is
            committed is applied.
        on_end: Called once, when another process has registered under this id.
    """

    register: Callable[[], Awaitable[object]]
    unfence: Callable[[], object]
    waits_for: Callable[[], Sequence[str]]
    on_end: Callable[[BaseException], None]
    clock: Clock
    scheduler: Scheduler


class MembershipWatch:
    """Checks each image from `begin` to `end`; use it from the event loop's thread only."""

    def __init__(self, node_id: int, incarnation_id: bytes, ports: MembershipPorts) -> None:
        """Watch nothing yet."""
        self._node_id, self._incarnation_id, self._ports = node_id, incarnation_id, ports
        self._state = Membership.ACTIVE
        self._lost_ms: int | None = None
        self._is_on = False
        self._coming_back: asyncio.Task[None] | None = None

    def begin(self, image: MetadataImage) -> None:
        """Begin to watch: this broker serves from now on, and is to stay a member."""
        self._is_on = True
        self.see(image)

    async def end(self) -> None:
        """Stop watching: the broker stops."""
        self._is_on = False
        if self._coming_back is not None:
            self._coming_back.cancel()
            await asyncio.wait({self._coming_back})

    def see(self, image: MetadataImage) -> None:
        """Take a new image."""
        if not self._is_on:
            return
        before, self._state = self._state, membership(image, self._node_id, self._incarnation_id)
        if self._state is Membership.REPLACED:
            self._is_on = False
            theirs = uuid_to_text(image.brokers[self._node_id].incarnation_id)
            self._ports.on_end(
                DuplicateBrokerRegistrationError(
                    f"another process has registered as broker {self._node_id}: its incarnation is "
                    f"{theirs}, ours is {uuid_to_text(self._incarnation_id)}. Give one of the two "
                    "another node.id"
                )
            )
        elif self._state is Membership.ACTIVE:
            self._lost_ms = None
        elif before is Membership.ACTIVE:
            self._lost_ms = self._ports.clock.monotonic_ms()
            log.warning("broker %d is %s: it comes back", self._node_id, self._state.value)
            if self._coming_back is None or self._coming_back.done():
                self._coming_back = asyncio.ensure_future(self._come_back())

    async def _come_back(self) -> None:
        while self._is_on and self._state is not Membership.ACTIVE:
            try:
                if self._state is Membership.ABSENT:
                    await self._ports.register()
                self._ports.unfence()
            except KafkaError as error:
                log.warning("broker %d could not come back yet: %s", self._node_id, error)
            await pause(self._ports.scheduler, RETRY_MS)

    def problems(self) -> Sequence[HealthLine]:
        """Why the broker is unhealthy; nothing while the image may be old."""
        if self._lost_ms is None or not self._is_on or self._ports.waits_for():
            return ()
        lost_ms = self._ports.clock.monotonic_ms() - self._lost_ms
        if lost_ms <= RED_AFTER_MS:
            return ()
        return (
            HealthReason.FENCED.line(broker=self._node_id, state=self._state.value, ms=lost_ms),
        )
