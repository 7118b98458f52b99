"""Any history of a controller keeps its promises: decisions, commits, depositions, brokers.

A naive quorum is deposed, elected and told what is committed in any order, while callers make
and remove topics, register brokers and let them beat. After each step: what was answered with
success is committed; what was refused is not in the log, unless nobody could know; the image is a
replay of the log, and so is the decided image; decisions lie in the log in the order in which they
were asked for; broker epochs rise; nobody is fenced before a whole session is over.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.errors import (
    ControllerOverloadedError,
    TopicExistsError,
    UnknownTopicError,
)
from metadata_topic.controller.heartbeats import Heartbeat
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.records import make
from metadata_topic.quorum.active.broker_control import BrokerControl
from metadata_topic.quorum.active.decisions import Failed
from metadata_topic.quorum.active.ports import Audience
from metadata_topic.quorum.log.batches import read_batches
from runtime.work import Steps
from tests.support.rounds import IS_PROVING
from tests.support.samples.metadata import registration_of
from tests.support.worlds.naive_quorum import PLAIN, Answer, NaiveQuorum, replay_batch

SESSION_MS = 1_000
BROKERS = 3
TROUBLES = (
    "none",
    "none",
    "elected",
    "deposed",
    "deposed by one who dies",
    "fault",
    "another leads for a while",
)
UNSURE = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
SETTINGS = replace(
    PLAIN,
    append_linger_ms=5,
    max_batch_bytes=2_000,
    decisions_max=12,
    uncommitted_bytes_max=4_000,
    max_idle_interval_ms=500,
    registration=registration_of(9),
)


@dataclass
class Asked:
    """A decision: what it is called in the log, and what its caller heard."""

    mark: bytes
    answer: Answer
    was_active: bool

    @property
    def is_surely_refused(self) -> bool:
        """Whether the caller knows that nothing comes of it."""
        (outcome,) = self.answer.outcomes
        assert isinstance(outcome, Failed)
        if self.answer.code not in UNSURE or not self.was_active:
            return True
        is_full = isinstance(outcome.error, ControllerOverloadedError)
        return is_full or "it is not carried out" in str(outcome.error)


def id_of(number: int) -> bytes:
    return b"topic" + number.to_bytes(11, "big")


class ControllerHistory(RuleBasedStateMachine):
    """One controller under a quorum that does what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.quorum = NaiveQuorum(SETTINGS, commit_delay_ms=None)
        self.quorum.audience = Audience(has_other_voters=True)
        self.control = BrokerControl(
            self.quorum.loop, self.quorum.world, cluster_id="c", session_timeout_ms=SESSION_MS
        )
        self.asked: list[Asked] = []
        self.registrations: list[tuple[int, Answer]] = []
        self.heard_ms: dict[int, int] = {}
        self.term_began_ms = 0
        self.stood: dict[int, tuple[int, bool]] = {}
        self.quorum.loop.watch(self)
        self.names_seen: set[frozenset[str]] = set()
        self.checked_end = 0
        self.checked_loader = ImageLoader(self.quorum.image)

    # What callers do.

    def _ask(self, number: int, decide: Any, timeout_ms: int) -> None:
        active = self.quorum.loop.is_active
        asked = Asked(id_of(number), Answer(), active)
        self.asked.append(asked)
        self.quorum.loop.submit(decide, asked.answer, timeout_ms=timeout_ms)

    @rule(
        topic=st.integers(0, 9),
        size=st.sampled_from([1, 1, 1, 40]),
        steps=st.sampled_from([0, 0, 3]),
        timeout_ms=st.sampled_from([10, 1_000]),
    )
    def create(self, topic: int, size: int, steps: int, timeout_ms: int) -> None:
        number = len(self.asked)
        name = f"t{topic}"

        def decide(image: MetadataImage) -> Steps[ControllerResult[int]]:
            for _ in range(steps):
                yield
            if name in image.topics_by_name:
                raise TopicExistsError(name)
            topic_id = id_of(number)
            records = [make("TopicRecord", name=name, topic_id=topic_id)]
            records += [
                make(
                    "PartitionRecord",
                    2,
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=[1],
                    isr=[1],
                    leader=1,
                )
                for index in range(size)
            ]
            return ControllerResult(tuple(records), number)

        self._ask(number, decide, timeout_ms)

    @rule(topic=st.integers(0, 9))
    def remove(self, topic: int) -> None:
        name = f"t{topic}"

        def decide(image: MetadataImage) -> ControllerResult[bytes]:
            found = image.topics_by_name.get(name)
            if found is None:
                raise UnknownTopicError(name)
            return ControllerResult((make("RemoveTopicRecord", topic_id=found.id),), found.id)

        self._ask(len(self.asked), decide, 1_000)

    @rule()
    def ask(self) -> None:
        self._ask(
            len(self.asked),
            lambda image: ControllerResult((), frozenset(image.topics_by_name)),
            500,
        )

    # What brokers do.

    @rule(broker_id=st.integers(1, BROKERS), life=st.integers(1, 3))
    def register(self, broker_id: int, life: int) -> None:
        answer = Answer()
        self.registrations.append((broker_id, answer))
        self.control.register("c", registration_of(broker_id, life=life), answer)

    @rule(broker_id=st.integers(1, BROKERS), offset=st.sampled_from([-1, 10**9]))
    def beat(self, broker_id: int, offset: int) -> None:
        broker = self.quorum.loop.decided_image.brokers.get(broker_id)
        epoch = -1 if broker is None else broker.epoch
        if self.quorum.loop.is_active and broker is not None:
            self.heard_ms[broker_id] = self.quorum.ports.clock.monotonic_ms()
        self.control.heartbeat(Heartbeat(broker_id, epoch, offset), Answer(), timeout_ms=100)

    @rule()
    def all_beat(self) -> None:
        """Without this, few histories would have brokers that serve."""
        for broker_id in range(1, BROKERS + 1):
            self.beat(broker_id, 10**9)

    @rule()
    def all_start(self) -> None:
        """Likewise."""
        self.commit_and_serve()
        for broker_id in range(1, BROKERS + 1):
            self.register(broker_id, 1)
        self.commit_and_serve()
        self.all_beat()
        self.commit_and_serve()

    # What the quorum does.

    @rule(ms=st.sampled_from([0, 1, 5, 50, 700]))
    def time(self, ms: int) -> None:
        for _ in range(max(1, ms // 50)):
            self.quorum.run(min(ms, 50))
            self.sessions_are_whole()

    @rule(part=st.floats(0, 1), apply=st.booleans())
    def commit(self, part: float, apply: bool) -> None:
        ends = [
            f.end_offset for f, _ in self.quorum.batches if f.end_offset > self.quorum.committed
        ]
        if ends:
            self.quorum.commit(ends[int(part * (len(ends) - 1))], apply=apply)

    @rule()
    def commit_and_serve(self) -> None:
        """Without this, few histories would get far: the quorum is well."""
        if not self.quorum.is_leader:
            self.quorum.elect()
        for _ in range(3):
            self.quorum.run(5)
            self.quorum.commit()

    @initialize()
    def begin(self) -> None:
        self.commit_and_serve()

    @rule(delay_ms=st.sampled_from([None, 1, 20]))
    def speed(self, delay_ms: int | None) -> None:
        """How soon what is proposed is committed by itself."""
        self.quorum.commit_delay_ms = delay_ms

    @rule(what=st.sampled_from(TROUBLES), part=st.floats(0, 1))
    def trouble(self, what: str, part: float) -> None:
        match what:
            case "elected":
                self.quorum.elect(commit=False)
            case "deposed" | "deposed by one who dies" if self.quorum.is_leader:
                ends = [0, *(f.end_offset for f, _ in self.quorum.batches)]
                self.quorum.depose(keep_until=ends[int(part * (len(ends) - 1))])
                if what != "deposed" and not self.quorum.ends_in_transaction:
                    dead = make("FeatureLevelRecord", name="dead", feature_level=1)
                    self.quorum.write_elsewhere([make("BeginTransactionRecord"), dead])
            case "fault" if self.quorum.is_leader:
                self.quorum.fault = OSError(5, "half of it is there")
            case "another leads for a while" if self.quorum.is_leader:
                self.quorum.depose()
                self.time(700)
                self.commit_and_serve()
            case _:
                self.commit_and_serve()

    # What always holds.

    def on_active(self, image: MetadataImage) -> None:
        """A term begins."""
        self.term_began_ms = self.quorum.ports.clock.monotonic_ms()
        self.stood = {b.id: (b.epoch, b.fenced) for b in image.brokers.values()}

    def on_inactive(self) -> None:
        """A term ends."""

    @invariant()
    def sessions_are_whole(self) -> None:
        if not self.quorum.loop.is_active:
            return
        now = self.quorum.ports.clock.monotonic_ms()
        for broker in self.quorum.loop.decided_image.brokers.values():
            if broker.fenced and self.stood.get(broker.id) == (broker.epoch, False):
                heard = max(self.heard_ms.get(broker.id, 0), self.term_began_ms)
                assert now - heard > SESSION_MS, "fenced before its session was over"
            self.stood[broker.id] = (broker.epoch, broker.fenced)

    @invariant()
    def success_is_committed(self) -> None:
        quorum = self.quorum
        created = {
            record.value.topic_id: facts.end_offset
            for facts, data in quorum.batches
            for batch in read_batches(data)
            for record in batch.records
            if record.name == "TopicRecord"
        }
        for asked in self.asked:
            if not asked.answer.is_there:
                continue
            if asked.answer.code == 0 and isinstance(asked.answer.response, int):
                assert created[asked.mark] <= quorum.applied, "answered, and committed here"
            elif asked.answer.code != 0 and asked.is_surely_refused:
                assert asked.mark not in created, "refused, and in the log"

    @invariant()
    def the_log_has_the_order_of_the_decisions(self) -> None:
        marks = [
            record.value.topic_id
            for _, data in self.quorum.batches
            for batch in read_batches(data)
            for record in batch.records
            if record.name == "TopicRecord"
        ]
        assert marks == sorted(set(marks))

    @invariant()
    def images_are_replays_of_the_log(self) -> None:
        quorum = self.quorum
        assert quorum.loop.image == quorum.image
        replayed = self.checked_loader.take()[0]
        for facts, data in quorum.batches:
            if self.checked_end <= facts.base_offset < quorum.applied:
                replay_batch(self.checked_loader, data)
                self.checked_end = facts.end_offset
                replayed = self.checked_loader.take()[0]
                self.names_seen.add(frozenset(replayed.topics_by_name))
        assert quorum.image == replayed
        assert "dead" not in quorum.image.features
        for asked in self.asked:
            if asked.answer.is_there and asked.answer.code == 0:
                response = asked.answer.response
                assert not isinstance(response, frozenset) or response in self.names_seen

    @invariant()
    def the_decided_image_is_the_log_and_what_is_gathered(self) -> None:
        quorum, term = self.quorum, self.quorum.loop._term
        if (
            term is None
            or not term.is_appended
            or quorum.loop.decided_image.provenance.end_offset != (quorum.log_end())
        ):
            return
        whole = quorum.replayed(quorum.log_end())
        assert replace(whole, provenance=term.decided.provenance) == term.decided

    @invariant()
    def nothing_leaks(self) -> None:
        loop = self.quorum.loop
        own = 4 + BROKERS
        assert loop.decision_count <= SETTINGS.decisions_max + own
        waiting = sum(not asked.answer.is_there for asked in self.asked)
        assert waiting <= loop.decision_count
        assert all(len(asked.answer.outcomes) <= 1 for asked in self.asked)

    @invariant()
    def broker_epochs_are_offsets_of_their_own(self) -> None:
        """Of the decision's first record: what the life before led may lose its leader first."""
        seen: dict[int, tuple[int, bytes]] = {}
        for facts, data in self.quorum.batches:
            for batch in read_batches(data):
                for number, record in enumerate(batch.records):
                    if record.name != "RegisterBrokerRecord":
                        continue
                    value = record.value
                    epoch, life = seen.get(value.broker_id, (-1, b""))
                    if value.incarnation_id == life:
                        assert value.broker_epoch == epoch
                    else:
                        assert epoch < value.broker_epoch <= facts.base_offset + number
                    seen[value.broker_id] = (value.broker_epoch, value.incarnation_id)

    def teardown(self) -> None:
        self.quorum.loop.close()
        assert all(len(asked.answer.outcomes) == 1 for asked in self.asked)
        assert all(len(answer.outcomes) == 1 for _, answer in self.registrations)


ControllerHistory.TestCase.settings = settings(
    max_examples=400 if IS_PROVING else 50, stateful_step_count=50, deadline=None
)

TestControllerHistory = pytest.mark.rounds(seconds=10)(ControllerHistory.TestCase)
