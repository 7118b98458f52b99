"""Clients of the simulated quorum: they ask for topics, are told, or are not, and remember."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.configs import Operation, incremental_alter_configs
from metadata_topic.controller.errors import (
    ControllerOverloadedError,
    NotControllerError,
    TopicExistsError,
    UnknownTopicError,
    UnwrittenDecisionError,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_deletion import delete_topics
from metadata_topic.controller.topic_specs import TopicDefaults, TopicSpec
from metadata_topic.controller.topics import create_topics
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.quorum.active.decisions import Decide, Done, Failed, Outcome
from metadata_topic.quorum.active.submit import DecisionTimedOut
from runtime.work import Steps
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.history import Call, Kind, Said, is_linearizable

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.quorum_world.world import QuorumWorld

Answer = tuple[Said, bytes | None]
_DEFAULTS = TopicDefaults()
_KINDS = (*(Kind.CREATE,) * 4, *(Kind.DELETE,) * 3, Kind.ALTER, Kind.DESCRIBE)
NOT_CARRIED_OUT = "is not carried out"


def _allowed(_name: str, _configs: dict[str, str]) -> None:
    """Any config will do."""


NOT_BEGUN = (NotControllerError, ControllerOverloadedError, UnwrittenDecisionError)
"""By these errors nothing is carried out."""


class _Rules:
    def is_list(self, resource_type: int, key: str) -> bool:
        return False

    def default_of(self, resource_type: int, key: str) -> str | None:
        return None

    def validate(self, resource_type: int, name: str, new: Any, existing: Any) -> None:
        """All values are fine."""


class _Change:
    def __init__(self, value: str) -> None:
        self.name, self.config_operation, self.value = "retention.ms", int(Operation.SET), value


class _Resource:
    def __init__(self, name: str, value: str) -> None:
        self.resource_type, self.resource_name = int(ResourceType.TOPIC), name
        self.configs = [_Change(value)]


def _said(error: KafkaError | None, refusal: type[KafkaError]) -> Said:
    if error is None:
        return Said.DONE
    return Said.REFUSED if isinstance(error, refusal) else Said.NOTHING


def decide_create(call: Call, partitions: int) -> Decide[Answer]:
    """Make a topic; without partitions as long as no broker could have them.

    The call remembers how many partitions were decided.
    """

    def decide(image: MetadataImage) -> Steps[ControllerResult[Answer]]:
        assert call.topic_id is not None
        if not any(broker.is_active for broker in image.brokers.values()):
            if call.name in image.topics_by_name:
                return ControllerResult((), (Said.REFUSED, None))
            call.partitions = 0
            record = make("TopicRecord", name=call.name, topic_id=call.topic_id)
            return ControllerResult((record,), (Said.DONE, call.topic_id))
        made = yield from create_topics.steps(
            image,
            [TopicSpec(call.name, partitions, 1)],
            defaults=_DEFAULTS,
            topic_ids=[call.topic_id],
            validate_config=_allowed,
        )
        [one] = made.response
        call.partitions = sum(record.name == "PartitionRecord" for record in made.records)
        return ControllerResult(made.records, (_said(one.error, TopicExistsError), call.topic_id))

    return decide


def decide_delete(call: Call) -> Decide[Answer]:
    """Remove a topic by name."""

    def decide(image: MetadataImage) -> Steps[ControllerResult[Answer]]:
        made = yield from delete_topics.steps(image, [(call.name, ZERO_UUID)])
        [one] = made.response
        return ControllerResult(made.records, (_said(one.error, UnknownTopicError), one.topic_id))

    return decide


def decide_alter(call: Call, value: str) -> Decide[Answer]:
    """Change a config of a topic."""

    def decide(image: MetadataImage) -> Steps[ControllerResult[Answer]]:
        resource = _Resource(call.name, value)
        made = yield from incremental_alter_configs.steps(image, [resource], rules=_Rules())
        [one] = made.response
        return ControllerResult(made.records, (_said(one.error, UnknownTopicError), None))

    return decide


def decide_describe(call: Call) -> Decide[Answer]:
    """Find a topic by name."""

    def decide(image: MetadataImage) -> ControllerResult[Answer]:
        topic = image.topics_by_name.get(call.name)
        return ControllerResult((), (Said.DONE, None if topic is None else topic.id))

    return decide


class Clients:
    """See the module.

    Attributes:
        created, removed: ids of topics in committed records; what was created in its order.
        open: calls that a life of a node has and did not answer: (node, its life, until when).
    """

    def __init__(self, world: "QuorumWorld") -> None:
        self.world = world
        self.calls: list[Call] = []
        self.created: dict[bytes, str] = {}
        self.removed: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.open: dict[int, tuple[Any, int, int]] = {}
        self._made: dict[bytes, Call] = {}
        self._waiting: dict[int, Call] = {}
        self._leader: int | None = None
        self._is_over = False
        world.oracle.listeners.append(self._committed)

    def start(self) -> None:
        """Let each client begin."""
        for client in range(self.world.plan.clients):
            self._think(client)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._is_over = True

    # -- asking ---------------------------------------------------------------------------------

    def _think(self, client: int) -> None:
        plan, rng = self.world.plan, self.world.work_rng
        pause_us = 1 + int(rng.random() * 2000 * plan.propose_every_ms * plan.clients)
        if not self._is_over:
            self.world.at(self.world.now_us + pause_us, self._ask, client)

    def _ask(self, client: int) -> None:
        if self._is_over:
            return
        world, rng = self.world, self.world.work_rng
        kind = _KINDS[int(rng.random() * len(_KINDS))]
        name = f"t{int(rng.random() * world.plan.names)}"
        number = len(self.calls)
        call = Call(number, kind, name, world.now_us)
        if kind is Kind.CREATE:
            call.topic_id = b"topic" + number.to_bytes(11, "big")
            self._made[call.topic_id] = call
        self.calls.append(call)
        self._waiting[number] = call
        decide = self._decision(call)
        node = self._whom()
        world.at(world.now_us + world.plan.patience_ms * 1000, self._told, client, call, None)
        if not world.net.is_lost_for_clients():
            world.at_any_life(world.net.arrival(), node, self._arrives, client, node, call, decide)

    def _decision(self, call: Call) -> Decide[Answer]:
        random = self.world.work_rng.random()
        match call.kind:
            case Kind.CREATE:
                return decide_create(call, 1 + int(random**3 * 12))
            case Kind.DELETE:
                return decide_delete(call)
            case Kind.ALTER:
                return decide_alter(call, str(int(random * 1_000_000)))
            case _:
                return decide_describe(call)

    def _whom(self) -> "QuorumNode":
        rng, voters = self.world.work_rng, self.world.plan.leaders
        random = rng.random()
        if self._leader is None or random < 0.15:
            return self.world.nodes[voters[int(rng.random() * len(voters))]]
        return self.world.nodes[self._leader]

    # -- at the node ----------------------------------------------------------------------------

    def _arrives(self, client: int, node: "QuorumNode", call: Call, decide: Decide[Answer]) -> None:
        if node.replica is None:
            self._goes_back(client, call, (Said.NOTHING, None))
            return
        life, timeout_ms = node.life, self.world.plan.patience_ms
        is_told, is_asking = False, True
        until = self.world.now_us + 2 * timeout_ms * 1000 + 1_000_000

        def done(outcome: Outcome[Answer]) -> None:
            nonlocal is_told
            if node.life != life or node.process is None or node.process.has_ended:
                return
            if is_told:
                self.world.breaks("a call is answered once", f"{node}: {call}")
            is_told = True
            self.open.pop(call.number, None)
            if isinstance(outcome, Done):
                self._leader = node.id
            elif self._leader == node.id:
                self._leader = None
            answer = self._answered(node, call, outcome, began=not is_asking)
            self._goes_back(client, call, answer)

        self.open[call.number] = (node, life, until)
        node.replica.submit(decide, done, timeout_ms=timeout_ms)
        is_asking = False

    def _answered(
        self, node: "QuorumNode", call: Call, outcome: Outcome[Answer], *, began: bool
    ) -> Answer:
        """Validate an answer where it is given."""
        if isinstance(outcome, Failed):
            error = outcome.error
            is_refused = (
                not began
                or isinstance(error, NOT_BEGUN)
                or (isinstance(error, DecisionTimedOut) and NOT_CARRIED_OUT in str(error))
            )
            if not isinstance(error, KafkaError) or error.code not in (
                ErrorCode.NOT_CONTROLLER,
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.UNKNOWN_SERVER_ERROR,
            ):
                self.world.breaks("a failure is one that is known", f"{node}: {call}: {error!r}")
            if is_refused:
                self._refuse(node, call)
            return (Said.NOTHING if is_refused else Said.UNKNOWN), call.topic_id
        said, topic_id = outcome.response
        if said is Said.REFUSED or call.kind is Kind.DESCRIBE:
            call.by_deposed = node.core.epoch < self.world.oracle.newest_epoch
        if said is Said.DONE and call.kind is Kind.CREATE and call.topic_id not in self.created:
            self.world.breaks("success means that it is committed", f"{node}: {call}")
        if said is Said.DONE and call.kind is Kind.DELETE and topic_id not in self.removed:
            self.world.breaks("success means that it is committed", f"{node}: {call}")
        if said is not Said.DONE:
            self._refuse(node, call)
        return said, topic_id

    def _refuse(self, node: "QuorumNode", call: Call) -> None:
        if call.kind is Kind.CREATE and call.topic_id is not None:
            self.refused.add(call.topic_id)
            if call.topic_id in self.created:
                self.world.breaks("what was refused is in no image", f"{node}: {call}")

    def _committed(self, epoch: int, offset: int, record: MetadataRecord) -> None:
        if record.name == "TopicRecord":
            topic_id = record.value.topic_id
            self.created[topic_id] = record.value.name
            if topic_id in self.refused:
                raise Violation("what was refused is in no image", f"{record} at {offset}")
        elif record.name == "RemoveTopicRecord":
            self.removed.add(record.value.topic_id)

    # -- back -----------------------------------------------------------------------------------

    def _goes_back(self, client: int, call: Call, answer: Answer) -> None:
        world = self.world
        if not world.net.is_lost_for_clients():
            world.at(world.net.arrival(), self._told, client, call, answer)

    def _told(self, client: int, call: Call, answer: Answer | None) -> None:
        if self._waiting.pop(call.number, None) is None:
            return
        if answer is not None:
            call.said, topic_id = answer
            if call.said is not Said.UNKNOWN:
                call.answered_us = self.world.now_us
            if topic_id is not None:
                call.topic_id = topic_id
        self._think(client)

    # -- the end --------------------------------------------------------------------------------

    def validate_open(self) -> None:
        """Every call that reached a node that still lives was answered in time."""
        for number, (node, life, until) in self.open.items():
            if node.life == life and until < self.world.now_us:
                call = self.calls[number]
                raise Violation("every call is answered", f"{node}: {call} until {until // 1000}")

    def validate_whole(self) -> None:
        """All records of a decision count, or none of them."""
        for topic in self.world.oracle.reference.topics_by_id.values():
            call = self._made[topic.id]
            if len(topic.partitions) != call.partitions:
                what = f"{call}: {len(topic.partitions)} of {call.partitions} partitions"
                raise Violation("a decision counts as a whole", what)

    def validate_history(self) -> None:
        """What clients were told of each name can have happened one after the other."""
        committed = list(self.created)
        for name in sorted({call.name for call in self.calls}):
            calls = self._relevant([call for call in self.calls if call.name == name])
            verdict = is_linearizable(calls, committed)
            if not verdict:
                told = "\n".join(map(str, calls))
                found = "no order" if verdict is False else "not the log's, nor another in time"
                what = f"{name}: {found}:\n{told}"
                raise Violation("the history of a name is linearizable", what)

    def _relevant(self, calls: list[Call]) -> list[Call]:
        """Those that took effect, or were told a state; of unknown deletions those that could."""
        told = [
            call for call in calls if call.said in (Said.DONE, Said.REFUSED) and not call.by_deposed
        ]
        unknown = [call for call in calls if call.said is Said.UNKNOWN]
        told += [c for c in unknown if c.kind is Kind.CREATE and c.topic_id in self.created]
        ids = {topic_id for topic_id, name in self.created.items() if name == calls[0].name}
        gone = {call.topic_id for call in told if call.kind is Kind.DELETE}
        if (ids & self.removed) - gone:
            told += [call for call in unknown if call.kind is Kind.DELETE]
        return told


Told = Callable[[Outcome[Answer]], None]
