"""Liveness of brokers: sessions in the memory of the active controller, renewed by heartbeats.

Sessions are not in the log. A new controller has seen no heartbeats, so it gives every unfenced
broker a full session: time measured by an earlier controller never ends one. A session belongs to
one incarnation of a broker, named by its broker epoch. As in Kafka a registration begins no
session, and neither does a new controller for a fenced broker: the first heartbeat does.

Pure: callers pass the time, in ms of the monotonic clock.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from metadata_topic.controller.errors import StaleBrokerEpochError
from metadata_topic.controller.free_descriptors import FreeDescriptors
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage

UNKNOWN_OFFSET: Final = -1


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Find a broker and check that the request comes from its current incarnation.

    Raises:
        StaleBrokerEpochError: Another epoch is registered, or none (as in Kafka the same error).
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise StaleBrokerEpochError(f"Broker {broker_id} is not registered.")
    if broker.epoch != broker_epoch:
        raise StaleBrokerEpochError(
            f"Expected broker epoch {broker.epoch} of broker {broker_id}, but got {broker_epoch}."
        )
    return broker


@dataclass(slots=True)
class BrokerSession:
    """State that the controller keeps of one incarnation of a broker.

    Attributes:
        broker_epoch: Of that incarnation.
        contact_ms: Time of its last heartbeat; None before the first.
        registered_at: Offset of its newest registration record (inclusive). The broker has caught
            up when it has read this record. An incarnation that registers again keeps its epoch.
        metadata_offset: Last offset of the metadata log that it reported as read; -1: unknown.
        shutdown_offset: The broker may stop once all others have read this offset (inclusive); -1
            while it is not in controlled shutdown.
        descriptors: How many more files it may open.
    """

    broker_epoch: int
    contact_ms: int | None
    registered_at: int
    metadata_offset: int = UNKNOWN_OFFSET
    shutdown_offset: int = UNKNOWN_OFFSET
    descriptors: FreeDescriptors = field(default_factory=FreeDescriptors)


class BrokerSessions:
    """Sessions during one term of the active controller."""

    def __init__(self, timeout_ms: int, image: MetadataImage, now_ms: int) -> None:
        """Give every unfenced broker a full session.

        Args:
            timeout_ms: `broker.session.timeout.ms`.
            image: Newest image of the new controller.
            now_ms: Begin of its term.
        """
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, BrokerSession] = {}
        for broker in image.brokers.values():
            if broker.fenced:
                continue
            session = self.touch(broker.id, broker.epoch, now_ms)
            if broker.in_controlled_shutdown:
                # DIFFERS: Kafka's new controller lets the broker stop at once. Brokers that have
                # not read the new leaders yet would still send clients to the stopped one.
                session.shutdown_offset = image.provenance.end_offset

    def touch(self, broker_id: int, broker_epoch: int, now_ms: int) -> BrokerSession:
        """Renew the session of an incarnation; the caller has checked that it is registered."""
        session = self.of(broker_id, broker_epoch)
        session.contact_ms = now_ms
        return session

    def of(self, broker_id: int, broker_epoch: int) -> BrokerSession:
        """Return the session of an incarnation, or a new one without contact."""
        known = self._sessions.get(broker_id)
        if known is None or known.broker_epoch != broker_epoch:
            known = BrokerSession(broker_epoch, None, broker_epoch)
            self._sessions[broker_id] = known
        return known

    def end(self, broker_id: int) -> None:
        """Drop the session of a broker; no error if there is none."""
        self._sessions.pop(broker_id, None)

    def get(self, broker_id: int, broker_epoch: int) -> BrokerSession | None:
        """Return the session of an incarnation, also an expired one; None if there is none."""
        session = self._sessions.get(broker_id)
        return session if session is not None and session.broker_epoch == broker_epoch else None

    def is_live(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """True if the last heartbeat of this incarnation is within the session timeout."""
        session = self.get(broker_id, broker_epoch)
        return session is not None and self._has_contact(session, now_ms)

    def _has_contact(self, session: BrokerSession, now_ms: int) -> bool:
        return session.contact_ms is not None and now_ms - session.contact_ms <= self._timeout_ms

    def ended(self, now_ms: int) -> list[tuple[int, int]]:
        """(broker id, epoch) of each expired session, oldest heartbeat first."""
        over = [
            (session.contact_ms, broker_id, session.broker_epoch)
            for broker_id, session in self._sessions.items()
            if session.contact_ms is not None and not self._has_contact(session, now_ms)
        ]
        return [(broker_id, epoch) for _, broker_id, epoch in sorted(over)]

    def next_end_ms(self, now_ms: int) -> int | None:
        """Return when the next live session expires without a heartbeat; None without sessions."""
        runs = [
            session.contact_ms
            for session in self._sessions.values()
            if session.contact_ms is not None and self._has_contact(session, now_ms)
        ]
        return min(runs) + self._timeout_ms + 1 if runs else None

    def lowest_active_offset(
        self, image: MetadataImage, *, without: Collection[int | None]
    ) -> int | None:
        """Lowest metadata offset (inclusive) that all active brokers have read.

        Args:
            image: Its active brokers count.
            without: Ids of brokers left out.

        Returns:
            -1 if the offset of one of them is unknown; None if no other broker is active.
        """
        offsets = []
        for broker in image.brokers.values():
            if broker.id not in without and broker.is_active:
                session = self.get(broker.id, broker.epoch)
                offsets.append(UNKNOWN_OFFSET if session is None else session.metadata_offset)
        return min(offsets) if offsets else None

    def free_descriptors(self) -> dict[int, int]:
        """Further replicas by broker id, for brokers that report descriptors."""
        left = ((broker_id, one.descriptors.left) for broker_id, one in self._sessions.items())
        return {broker_id: count for broker_id, count in left if count is not None}

    def place(self, replicas: Mapping[int, int], last_offset: int) -> None:
        """Count replicas that brokers get by records up to `last_offset` (inclusive)."""
        for broker_id, count in replicas.items():
            session = self._sessions.get(broker_id)
            if session is not None:
                session.descriptors.place(count, last_offset)
