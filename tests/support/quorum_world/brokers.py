"""Brokers that are nothing but registrations and heartbeats, and the rules of their sessions."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.heartbeats import Heartbeat, HeartbeatAnswer
from metadata_topic.image.records import MetadataRecord
from metadata_topic.quorum.active.decisions import Done, Outcome
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.plan import BROKERS, CLUSTER_ID

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.quorum_world.world import QuorumWorld

_STALE = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
SLACK_MS = 60


class Agent:
    """One broker.

    Attributes:
        epoch: that it was given; -1 before.
        is_stopping: it says that it wants to stop.
    """

    def __init__(self, brokers: "Brokers", broker_id: int) -> None:
        self.brokers, self.id = brokers, broker_id
        self.epoch = -1
        self.life = 0
        self.is_up = True
        self.is_stopping = False
        self.leader: int | None = None

    @property
    def incarnation(self) -> bytes:
        """Of this life."""
        return b"life" + self.id.to_bytes(4, "big") + self.life.to_bytes(8, "big")

    def begin(self) -> None:
        """Begin another life."""
        self.life += 1
        self.epoch, self.is_up, self.is_stopping = -1, True, False

    def beat(self) -> None:
        """Do what is next, and come back."""
        world, brokers = self.brokers.world, self.brokers
        random = world.work_rng.random
        beat_us = world.plan.session_ms * 1000 // 4
        world.at(world.now_us + int(beat_us * (0.5 + random())), self.beat)
        if brokers.is_over:
            return
        if not self.is_up:
            if random() < 0.25:
                self.begin()
            return
        chance = random()
        if chance < 0.02:
            self.is_up = False  # without a word
            if random() < 0.5:
                self.begin()  # and another comes up at once
        elif chance < 0.04:
            self.is_stopping = True
        brokers.ask(self)


class Brokers:
    """All of them, and the oracle of their lives."""

    def __init__(self, world: "QuorumWorld") -> None:
        self.world = world
        self.is_over = False
        self.agents = [Agent(self, BROKERS + place) for place in range(world.plan.brokers)]
        self._epochs: dict[int, tuple[int, bytes]] = {}  # newest committed epoch and incarnation
        self._given: set[tuple[int, bytes, int]] = set()
        self._touches: dict[tuple[int, int, int], list[int]] = {}
        self._asked_to_stop: set[tuple[int, int]] = set()
        self._active_since: dict[int, tuple[int, int, int]] = {}  # by epoch: node, life, local ms
        self._appended: dict[int, tuple[int, int]] = {}  # by epoch: local ms of the last two
        world.oracle.listeners.append(self._committed)

    def start(self) -> None:
        """Let each begin."""
        for agent in self.agents:
            agent.begin()
            self.world.at(int(self.world.work_rng.random() * 1_000_000), agent.beat)

    # -- asking ---------------------------------------------------------------------------------

    def ask(self, agent: Agent) -> None:
        """Send a registration or a heartbeat to whom it takes for the active controller."""
        world = self.world
        rng, voters = world.work_rng, world.plan.leaders
        if agent.leader is None or rng.random() < 0.05:
            agent.leader = voters[int(rng.random() * len(voters))]
        node = world.nodes[agent.leader]
        asked = (agent.life, agent.epoch, agent.is_stopping)
        if not world.net.is_lost_for_clients():
            world.at_any_life(world.net.arrival(), node, self._arrives, agent, node, asked)

    def _arrives(self, agent: Agent, node: "QuorumNode", asked: tuple[int, int, bool]) -> None:
        life, epoch, stops = asked
        if node.replica is None:
            self._goes_back(agent, life, None)
            return
        timeout_ms = self.world.plan.session_ms

        def done(outcome: Outcome[Any]) -> None:
            if node.process is None or node.process.has_ended:
                return
            self._goes_back(agent, life, outcome)

        control = node.replica.brokers
        if epoch < 0:
            incarnation = b"life" + agent.id.to_bytes(4, "big") + life.to_bytes(8, "big")
            registration = Registration(
                agent.id,
                incarnation,
                (),
                SUPPORTED_FEATURES,
                log_dirs=(b"dir-" + agent.id.to_bytes(12, "big"),),
            )

            def registered(outcome: Outcome[int]) -> None:
                if isinstance(outcome, Done):
                    self.registers(node, agent.id, incarnation, outcome.response)
                done(outcome)

            control.register(CLUSTER_ID, registration, registered, timeout_ms=timeout_ms)
            return
        offset = self.world.oracle.high_watermark - 1
        asked_now = Heartbeat(agent.id, epoch, offset, want_shut_down=stops)
        self.hears(node, asked_now)
        control.heartbeat(asked_now, done, timeout_ms=timeout_ms)

    def hears(self, node: "QuorumNode", asked: Heartbeat) -> None:
        """A controller hears of a broker: its session continues, unless it wants to stop."""
        assert node.replica is not None
        broker_id, epoch = asked.broker_id, asked.broker_epoch
        if asked.want_shut_down:
            self._asked_to_stop.add((broker_id, epoch))
        elif node.replica.controller.is_active:
            known = node.replica.controller.decided_image.brokers.get(broker_id)
            if known is not None and known.epoch == epoch:
                key = (node.core.epoch, broker_id, epoch)
                self._touches.setdefault(key, []).append(node.local_ms())

    def registers(self, node: "QuorumNode", broker_id: int, incarnation: bytes, epoch: int) -> None:
        """A registration was answered."""
        if (broker_id, incarnation, epoch) not in self._given:
            self.world.breaks(
                "a broker's epoch is the one that is committed",
                f"{node}: broker {broker_id} got {epoch}",
            )

    def _goes_back(self, agent: Agent, life: int, outcome: Outcome[Any] | None) -> None:
        world = self.world
        if not world.net.is_lost_for_clients():
            world.at(world.net.arrival(), self._told, agent, life, outcome)

    def _told(self, agent: Agent, life: int, outcome: Outcome[Any] | None) -> None:
        if agent.life != life:
            return
        if not isinstance(outcome, Done):
            agent.leader = None
            error = None if outcome is None else outcome.error
            if isinstance(error, KafkaError) and error.code in _STALE:
                agent.begin()
            return
        if isinstance(outcome.response, HeartbeatAnswer):
            if outcome.response.should_shut_down:
                agent.is_up = False
        else:
            agent.epoch = outcome.response

    # -- validating --------------------------------------------------------------------------------

    def note_active(self, node: "QuorumNode", epoch: int) -> None:
        """A controller takes decisions from now on."""
        self._active_since.setdefault(epoch, (node.id, node.life, node.local_ms()))

    def appends(self, node: "QuorumNode", epoch: int, record: MetadataRecord) -> None:
        """A leader has written a record: a fence has a reason, and so has another life."""
        last_ms, now_ms = self._appended.get(epoch, (0, 0))[1], node.local_ms()
        if now_ms > last_ms:
            self._appended[epoch] = (last_ms, now_ms)
        value = record.value
        if record.name == "BrokerRegistrationChangeRecord" and value.fenced == 1:
            self._is_over(node, epoch, value.broker_id, value.broker_epoch, "a fence has a reason")
        elif record.name == "RegisterBrokerRecord":
            known = self.world.oracle.reference.brokers.get(value.broker_id)
            if known is None or known.fenced or known.incarnation_id == value.incarnation_id:
                return
            self._is_over(node, epoch, known.id, known.epoch, "one unfenced life a broker id")

    def _is_over(
        self, node: "QuorumNode", epoch: int, broker_id: int, broker_epoch: int, rule: str
    ) -> None:
        if (broker_id, broker_epoch) in self._asked_to_stop:
            return
        now_ms = node.local_ms()
        _, _, since_ms = self._active_since.get(epoch, (0, 0, now_ms))
        # What waited for the log was decided after the append before.
        decided_ms = min(self._appended[epoch][0], now_ms - self.world.plan.linger_ms - SLACK_MS)
        touches = [since_ms, *self._touches.get((epoch, broker_id, broker_epoch), []), now_ms]
        longest_ms = max(
            later - earlier for earlier, later in pairwise(touches) if later >= decided_ms
        )
        if longest_ms < self.world.plan.session_ms:
            raise Violation(
                rule,
                f"{node} in {epoch}: broker {broker_id} of epoch {broker_epoch}, "
                f"silent for {longest_ms} ms",
            )

    def _committed(self, epoch: int, offset: int, record: MetadataRecord) -> None:
        if record.name != "RegisterBrokerRecord":
            return
        value = record.value
        old_epoch, old_incarnation = self._epochs.get(value.broker_id, (-1, b""))
        new = (value.broker_epoch, value.incarnation_id)
        if value.incarnation_id == old_incarnation:
            if value.broker_epoch != old_epoch:
                raise Violation("a life keeps its epoch", f"{record} at {offset}")
        elif value.broker_epoch <= old_epoch:
            raise Violation("broker epochs rise", f"{record} at {offset}: {old_epoch}")
        self._epochs[value.broker_id] = new
        self._given.add((value.broker_id, value.incarnation_id, value.broker_epoch))
