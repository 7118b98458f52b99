"""Brokers at the active controller: registrations, heartbeats, and expired sessions.

Sessions last for one term of the controller. A heartbeat renews its broker's session when it
arrives, not when it is decided, so a slow controller fences no broker. After a session has expired,
a decision fences the broker, in steps. It checks the session again at its begin and before it
returns its records.

Callback-based, on the loop's thread.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.broker_sessions import (
    UNKNOWN_OFFSET,
    BrokerSessions,
    check_broker_epoch,
)
from metadata_topic.controller.brokers import Registration, fence_broker, register_broker
from metadata_topic.controller.directories import NOTHING_FOUND, FoundReplicas
from metadata_topic.controller.free_descriptors import NOT_REPORTED
from metadata_topic.controller.heartbeats import Heartbeat, HeartbeatAnswer, heartbeat
from metadata_topic.controller.registration_rules import check_cluster, check_registration
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.active.controller_loop import ControllerLoop
from metadata_topic.quorum.active.decisions import Done, Failed, Outcome
from metadata_topic.quorum.active.ports import ControllerWorld
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from runtime.scheduler import Timer
from runtime.work import Steps

log = logging.getLogger(__name__)

_RETRY_MS: Final = 500
FENCED_AT_ONCE: Final = 100
"""Limit of fencings in progress; further expired brokers wait for the next round."""


class BrokerControl:
    """Registrations, heartbeats and sessions of brokers; inactive outside of a term.

    Attributes:
        election_defaults: Election settings in this controller's properties.
    """

    def __init__(
        self,
        loop: ControllerLoop,
        world: ControllerWorld,
        *,
        cluster_id: str,
        session_timeout_ms: int,
        kraft_version: Callable[[], int] = lambda: 0,
        own_broker_id: int | None = None,
    ) -> None:
        """Register as a watcher of the controller's terms.

        Args:
            loop: Takes the decisions.
            world: Ports of the controller.
            cluster_id: Of this cluster.
            session_timeout_ms: `broker.session.timeout.ms`.
            kraft_version: Returns the finalised level, which is not in the image.
            own_broker_id: The broker in this process. It stops together with this controller, so
                its heartbeats begin no session.
        """
        self._loop = loop
        self._clock = world.clock
        self._scheduler = world.scheduler
        self._metrics = world.metrics
        self.election_defaults = world.settings.election_defaults
        self._cluster_id = cluster_id
        self._timeout_ms = session_timeout_ms
        self._kraft_version = kraft_version
        self._own_broker_id = own_broker_id
        self._sessions: BrokerSessions | None = None
        self._fencing: set[tuple[int, int]] = set()
        self._others_wait = False
        self._timer: Timer | None = None
        loop.watch(self)

    # -- terms ----------------------------------------------------------------------------------

    def on_active(self, image: MetadataImage) -> None:
        """Give every unfenced broker a full session."""
        self._sessions = BrokerSessions(self._timeout_ms, image, self._now())
        if self._own_broker_id is not None:
            self._sessions.end(self._own_broker_id)
        self._fencing, self._others_wait = set(), False
        self._arm()

    def on_inactive(self) -> None:
        """Drop all sessions."""
        self._sessions = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_active(self) -> bool:
        """True if this node's controller takes decisions."""
        return self._sessions is not None

    # -- registrations --------------------------------------------------------------------------

    def register(
        self,
        cluster_id: str,
        registration: Registration,
        done: Callable[[Outcome[int]], None],
        *,
        found: FoundReplicas = NOTHING_FOUND,
        free_descriptors: int = NOT_REPORTED,
        timeout_ms: int = DECISION_TIMEOUT_MS,
    ) -> None:
        """Register a broker, fenced; the response is its broker epoch.

        Replicas that it `found` are assigned in the same decision. A broker that is registered with
        `directories_assigned_from` must not have served unassigned replicas. The broker in this
        process skips the checks, because the start of its node has made them. `free_descriptors`
        has the meaning of `Heartbeat`, before this incarnation has read any metadata.

        Besides the errors of `ControllerLoop.submit`, `done` may get InconsistentClusterIdError,
        DuplicateBrokerRegistrationError, UnsupportedFeatureError, and InvalidRegistrationError.
        """
        sessions = self._sessions

        def decide(image: MetadataImage) -> Steps[ControllerResult[int]]:
            check_cluster(cluster_id, self._cluster_id)
            if registration.node_id != self._own_broker_id:
                check_registration(image, registration, kraft_version=self._kraft_version())
            return (
                yield from register_broker.steps(
                    image,
                    registration,
                    has_live_session=self._has_live_session(image, registration),
                    found=found,
                    defaults=self.election_defaults,
                )
            )

        def placed(end_offset: int) -> None:
            broker = self._loop.decided_image.brokers[registration.node_id]
            assert sessions is not None
            session = sessions.of(broker.id, broker.epoch)
            session.registered_at = end_offset - 1
            session.descriptors.report(free_descriptors, UNKNOWN_OFFSET)

        self._loop.submit(decide, done, timeout_ms=timeout_ms, placed=placed)

    def _has_live_session(self, image: MetadataImage, registration: Registration) -> bool:
        previous = image.brokers.get(registration.node_id)
        if previous is None or self._sessions is None:
            return False
        return self._sessions.is_live(previous.id, previous.epoch, self._now())

    # -- heartbeats -----------------------------------------------------------------------------

    def heartbeat(
        self,
        asked: Heartbeat,
        done: Callable[[Outcome[HeartbeatAnswer]], None],
        *,
        timeout_ms: int,
    ) -> None:
        """Take a heartbeat; the answer is the broker's state after the commit.

        `done` may get StaleBrokerEpochError besides the errors of `ControllerLoop.submit`. A
        heartbeat that times out has renewed the session all the same.
        """
        sessions = self._sessions
        if sessions is not None and self._is_registered(asked.broker_id, asked.broker_epoch):
            session = sessions.of(asked.broker_id, asked.broker_epoch)
            if asked.broker_id != self._own_broker_id:
                sessions.touch(asked.broker_id, asked.broker_epoch, self._now())
            session.descriptors.report(asked.free_descriptors, asked.metadata_offset)
            self._arm()

        decided: list[HeartbeatAnswer] = []

        def decide(image: MetadataImage) -> Steps[ControllerResult[HeartbeatAnswer]]:
            assert sessions is not None
            broker = check_broker_epoch(image, asked.broker_id, asked.broker_epoch)
            session = sessions.of(broker.id, broker.epoch)
            session.metadata_offset = asked.metadata_offset
            # The broker in this process reads this image, for any offset in its last heartbeat.
            others = partial(
                sessions.lowest_active_offset, image, without={broker.id, self._own_broker_id}
            )
            result = yield from heartbeat.steps(
                image, asked, session, others, defaults=self.election_defaults
            )
            decided[:] = [result.response]
            return result

        def placed(end_offset: int) -> None:
            assert sessions is not None
            (answer,) = decided
            session = sessions.get(asked.broker_id, asked.broker_epoch)
            if session is None:
                return
            if answer.should_shut_down:
                # DIFFERS: Kafka keeps the session, and refuses the broker's next incarnation for a
                # while. Here the broker itself has announced its end.
                sessions.end(asked.broker_id)
            elif answer.in_controlled_shutdown:
                if session.shutdown_offset < 0:
                    session.shutdown_offset = end_offset - 1
            elif answer.is_fenced:
                session.shutdown_offset = -1

        def answered(outcome: Outcome[HeartbeatAnswer]) -> None:
            if isinstance(outcome, Failed) and _code(outcome) == ErrorCode.REQUEST_TIMED_OUT:
                self._metrics.timed_out_heartbeats.inc()
            done(outcome)

        self._loop.submit(decide, answered, timeout_ms=timeout_ms, placed=placed)

    def _is_registered(self, broker_id: int, broker_epoch: int) -> bool:
        known = self._loop.decided_image.brokers.get(broker_id)
        return known is not None and known.epoch == broker_epoch

    # -- descriptors ----------------------------------------------------------------------------

    def report_descriptors(
        self, broker_id: int, broker_epoch: int, count: int, metadata_offset: int
    ) -> None:
        """Take a descriptor report of the broker in this process, as `FreeDescriptors.report`."""
        if self._sessions is not None and self._is_registered(broker_id, broker_epoch):
            session = self._sessions.of(broker_id, broker_epoch)
            session.descriptors.report(count, metadata_offset)

    def free_descriptors(self) -> dict[int, int]:
        """Further replicas by broker id, for brokers that report their descriptors."""
        return {} if self._sessions is None else self._sessions.free_descriptors()

    def replicas_placed(self, replicas: Mapping[int, int], end_offset: int) -> None:
        """Count replicas that brokers get by records below `end_offset` (exclusive)."""
        if self._sessions is not None:
            self._sessions.place(replicas, end_offset - 1)

    # -- sessions that end ----------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the timer for the next expiry of a session."""
        if self._timer is not None or self._sessions is None:
            return
        now_ms = self._now()
        end_ms = self._sessions.next_end_ms(now_ms)
        if end_ms is not None:
            self._look_after(max(0, end_ms - now_ms))

    def _look_after(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.call_later(delay_ms, self._look)

    def _look(self) -> None:
        self._timer, self._others_wait = None, False
        sessions = self._sessions
        if sessions is None:
            return
        brokers = self._loop.decided_image.brokers
        for broker_id, epoch in sessions.ended(self._now()):
            broker = brokers.get(broker_id)
            if broker is None or broker.epoch != epoch or broker.fenced:
                sessions.end(broker_id)
            elif (broker_id, epoch) not in self._fencing:
                if len(self._fencing) >= FENCED_AT_ONCE:
                    self._others_wait = True
                    break
                self._fence(sessions, broker_id, epoch)
        self._arm()

    def _fence(self, sessions: BrokerSessions, broker_id: int, epoch: int) -> None:
        self._fencing.add((broker_id, epoch))
        log.warning("a broker's session is over: broker=%d epoch=%d", broker_id, epoch)

        def is_over() -> bool:
            return not sessions.is_live(broker_id, epoch, self._now())

        def decide(image: MetadataImage) -> Steps[ControllerResult[bool]]:
            broker = image.brokers.get(broker_id)
            if broker is None or broker.epoch != epoch or not is_over():
                return ControllerResult((), False)
            result = yield from fence_broker.steps(
                image, broker_id=broker_id, broker_epoch=epoch, defaults=self.election_defaults
            )
            if not is_over():  # a heartbeat came while the records were made
                return ControllerResult((), False)
            return ControllerResult(result.records, True)

        done = partial(self._fenced, sessions, broker_id, epoch)
        self._loop.submit(decide, done, is_own=True)

    def _fenced(
        self, sessions: BrokerSessions, broker_id: int, epoch: int, outcome: Outcome[bool]
    ) -> None:
        if self._sessions is not sessions:
            return
        self._fencing.discard((broker_id, epoch))
        if isinstance(outcome, Done):
            if outcome.response and not sessions.is_live(broker_id, epoch, self._now()):
                sessions.end(broker_id)
            if self._others_wait and len(self._fencing) <= FENCED_AT_ONCE // 2:
                self._look_after(0)
            return
        log.warning("a broker could not be fenced: broker=%d error=%s", broker_id, outcome.error)
        if self._timer is None:
            self._look_after(_RETRY_MS)

    def _now(self) -> int:
        return self._clock.monotonic_ms()


def _code(outcome: Failed) -> ErrorCode | None:
    return outcome.error.code if isinstance(outcome.error, KafkaError) else None
