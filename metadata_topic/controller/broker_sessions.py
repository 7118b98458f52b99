"""Who of the brokers lives: sessions, kept alive by heartbeats, in the active controller's memory.

Sessions are not in the log. A new controller knows nothing of the heartbeats before it, so it gives
every broker that serves a whole session: what a former controller measured never ends one. A
session belongs to one incarnation of a broker, named by its epoch. As in Kafka a registration alone
begins none, and a new controller gives none to fenced brokers: the first heartbeat does.

Pure: times are handed in, by the monotonic clock.
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
    """Find a broker and make sure that its current incarnation is speaking.

    Raises:
        StaleBrokerEpochError: it is not registered under this epoch, or, as in Kafka, not at all.
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
    """What the controller knows of one incarnation of a broker.

    Attributes:
        broker_epoch: of that incarnation.
        contact_ms: when it sent its last heartbeat; None: it sent none yet.
        registered_at: offset of its newest registration (inclusive): it has caught up when it has
            read so far. An incarnation that registers again keeps its epoch, and has more to read.
        metadata_offset: how far (inclusive) it has read the metadata log; -1 unknown.
        shutdown_offset: once the others have read so far, it may stop; -1: it does not stop.
        descriptors: how many more files it may open.
    """

    broker_epoch: int
    contact_ms: int | None
    registered_at: int
    metadata_offset: int = UNKNOWN_OFFSET
    shutdown_offset: int = UNKNOWN_OFFSET
    descriptors: FreeDescriptors = field(default_factory=FreeDescriptors)


class BrokerSessions:
    """Sessions of one term of the active controller."""

    def __init__(self, timeout_ms: int, image: MetadataImage, now_ms: int) -> None:
        """Give every broker that is not fenced a whole session.

        Args:
            timeout_ms: `broker.session.timeout.ms`.
            image: the newest one of the new controller.
            now_ms: when its term begins.
        """
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, BrokerSession] = {}
        for broker in image.brokers.values():
            if broker.fenced:
                continue
            session = self.touch(broker.id, broker.epoch, now_ms)
            if broker.in_controlled_shutdown:
                # DIFFERS: Kafka's new controller lets it stop at once, whatever the others have
                # read; they would send clients to leaders that are no more.
                session.shutdown_offset = image.provenance.end_offset

    def touch(self, broker_id: int, broker_epoch: int, now_ms: int) -> BrokerSession:
        """An incarnation of a broker is heard of now.

        The caller knows that it is the registered one.
        """
        session = self.of(broker_id, broker_epoch)
        session.contact_ms = now_ms
        return session

    def of(self, broker_id: int, broker_epoch: int) -> BrokerSession:
        """What is known of the incarnation that is registered, be it nothing."""
        known = self._sessions.get(broker_id)
        if known is None or known.broker_epoch != broker_epoch:
            known = BrokerSession(broker_epoch, None, broker_epoch)
            self._sessions[broker_id] = known
        return known

    def end(self, broker_id: int) -> None:
        """Forget a broker; fine if it is not known."""
        self._sessions.pop(broker_id, None)

    def get(self, broker_id: int, broker_epoch: int) -> BrokerSession | None:
        """The session of an incarnation, be it over; None if there is none."""
        session = self._sessions.get(broker_id)
        return session if session is not None and session.broker_epoch == broker_epoch else None

    def is_live(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this incarnation was heard of within the session timeout."""
        session = self.get(broker_id, broker_epoch)
        return session is not None and self._has_contact(session, now_ms)

    def _has_contact(self, session: BrokerSession, now_ms: int) -> bool:
        return session.contact_ms is not None and now_ms - session.contact_ms <= self._timeout_ms

    def ended(self, now_ms: int) -> list[tuple[int, int]]:
        """(broker id, epoch) of the incarnations whose session ended, longest silent first."""
        over = [
            (session.contact_ms, broker_id, session.broker_epoch)
            for broker_id, session in self._sessions.items()
            if session.contact_ms is not None and not self._has_contact(session, now_ms)
        ]
        return [(broker_id, epoch) for _, broker_id, epoch in sorted(over)]

    def next_end_ms(self, now_ms: int) -> int | None:
        """When the next session that still runs is over, if nothing is heard; None without one."""
        runs = [
            session.contact_ms
            for session in self._sessions.values()
            if session.contact_ms is not None and self._has_contact(session, now_ms)
        ]
        return min(runs) + self._timeout_ms + 1 if runs else None

    def lowest_active_offset(
        self, image: MetadataImage, *, without: Collection[int | None]
    ) -> int | None:
        """How far (inclusive) all active brokers have read.

        Args:
            image: says who is active.
            without: brokers that are not asked.

        Returns:
            -1: not known of all; None: no other broker is active.
        """
        offsets = []
        for broker in image.brokers.values():
            if broker.id not in without and broker.is_active:
                session = self.get(broker.id, broker.epoch)
                offsets.append(UNKNOWN_OFFSET if session is None else session.metadata_offset)
        return min(offsets) if offsets else None

    def free_descriptors(self) -> dict[int, int]:
        """How many more replicas each broker takes that reports its descriptors."""
        left = ((broker_id, one.descriptors.left) for broker_id, one in self._sessions.items())
        return {broker_id: count for broker_id, count in left if count is not None}

    def place(self, replicas: Mapping[int, int], last_offset: int) -> None:
        """Note how many replicas brokers get by records up to `last_offset` (inclusive)."""
        for broker_id, count in replicas.items():
            session = self._sessions.get(broker_id)
            if session is not None:
                session.descriptors.place(count, last_offset)
