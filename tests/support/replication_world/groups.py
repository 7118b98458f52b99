"""Consumers with a group: what was committed is what they continue from, whichever broker has it.

Each has a group of its own, without members (generation -1), on `__consumer_offsets` with three
replicas. A commit says its number in the metadata of each offset: so an answer of OffsetFetch tells
which commit it is of. It is never one before the last that was acknowledged, or that OffsetFetch
told, when the question left, while `Validator` knows that nothing of the partition may be lost.

A coordinator that is deposed and does not know it yet may answer OffsetFetch with what it has: so
it is in Kafka. It cannot answer a commit, and once its image names another one it answers nothing.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.coordinator.service import partition_of
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import OFFSETS_TOPIC, TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from tests.support.quorum_world.errors import Violation
from tests.support.replication_world.clients import Consumer

if TYPE_CHECKING:
    from tests.support.replication_world.clients import DataClients
    from tests.support.replication_world.node import ReplicaNode
    from tests.support.replication_world.validator import Told

ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
WAITS = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # a coordinator that has not heard of it yet
    }
)
THINKS_US = 60_000
NOTHING = -1
"""The number of no commit."""


class Known(NamedTuple):
    """The newest commit that is certain, and how often what counts was given up before."""

    number: int
    rebases: int


class Asked:
    """A question under way.

    Attributes:
        is_led: by a broker that leads the partition of the group, when the question arrives.
        is_known_led: the broker believes so.
    """

    def __init__(self, node: "ReplicaNode", told: "Told") -> None:
        self.node, self.told, self.rebases = node, told, told.rebases
        self.is_led = self.is_known_led = False

    def arrives(self) -> None:
        """Note who leads by the quorum and by the broker's image."""
        name, leads = self.told.name, self.told.image
        topic = self.node.metadata.image.topics_by_name.get(name.topic)
        here = None if topic is None else topic.partitions.get(name.partition)
        self.is_known_led = here is not None and here.leader == self.node.id
        self.is_led = (
            here is not None
            and leads.leader == self.node.id
            and here.leader_epoch == leads.leader_epoch
        )


class GroupConsumer(Consumer):
    """Reads, commits, and now and then begins again at what OffsetFetch answers.

    Attributes:
        acknowledged, resumed: how many commits were, and how often it began again.
    """

    bytes_max = 20_000

    def __init__(self, clients: "DataClients", number: int) -> None:
        super().__init__(clients, number)
        self.group_id = f"group-{number}"
        self.acknowledged = self.resumed = 0
        self._coordinator: ReplicaNode | None = None
        self._commits: list[dict[TopicPartition, tuple[int, int]]] = []
        self._waits = self._has_ended = False
        self._known: dict[TopicPartition, Known] = {}

    def think(self) -> None:
        world = self.clients.world
        world.at(world.now_us + 1 + int(world.work_rng.random() * THINKS_US), self.proceed)

    def proceed(self) -> None:
        clients = self.clients
        told, chance = self.told, clients.world.work_rng.random()
        if told is None or not clients.names:
            self.think()
        elif self._coordinator is None:
            self._find()
        elif not (self._waits or self._has_ended) if clients.is_over else chance < 0.2:
            self._resume(self._coordinator, told)
        elif self._waits and (chance < 0.6 or clients.is_over):
            self._commit(self._coordinator, told)
        elif chance < 0.6 and self._offsets and not clients.is_over:
            self._commits.append(dict(self._offsets))
            self._waits = True
            self._commit(self._coordinator, told)
        else:
            super().proceed()

    @property
    def told(self) -> "Told | None":
        """The partition that has the group."""
        count = self.clients.world.plan.offsets_partitions
        name = TopicPartition(OFFSETS_TOPIC, partition_of(self.group_id, count))
        return self.clients.world.validator.by_name.get(name)

    @property
    def late(self) -> str:
        """What it still waits for when all is over; empty: it has read all, from a commit on."""
        told, world = self.told, self.clients.world
        if told is None or world.is_given_up(told):
            return ""
        if self._waits:
            return f"commit {len(self._commits) - 1}"
        if not self._has_ended:
            return "OffsetFetch"
        for name in self.clients.names:
            data = world.validator.by_name[name]
            offset, _ = self._offsets.get(name, (0, 0))
            end = min(data.end, data.weak_from)
            if max(offset, data.start_max) < end and not world.is_given_up(data):
                return f"{name} from {offset} to {end}"
        return ""

    # -- who coordinates

    def _find(self) -> None:
        line = self.clients.line
        node = line.some_broker()
        if node is None:
            self.think()
            return
        question = request(ApiKey.FIND_COORDINATOR).cls(
            key_type=0, coordinator_keys=[self.group_id]
        )
        line.ask(node, ApiKey.FIND_COORDINATOR, question, self._found)

    def _found(self, answer: Any) -> None:
        if answer is not None:
            (one,) = answer.coordinators
            self._count("find", {ErrorCode.of(one.error_code)}, {ErrorCode.NONE, *ELSEWHERE})
            self._coordinator = self.clients.world.nodes.get(one.node_id)
        self.think()

    # -- commits

    def _commit(self, node: "ReplicaNode", told: "Told") -> None:
        """Send the last commit, maybe again."""
        cls = request(ApiKey.OFFSET_COMMIT).cls
        number = len(self._commits) - 1
        topics = defaultdict(list)
        for name, (offset, _) in self._commits[number].items():
            slot = cls.Topics.Partitions(
                partition_index=name.partition,
                committed_offset=offset,
                committed_metadata=str(number),
            )
            topics[name.topic].append(slot)
        question = cls(
            group_id=self.group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[cls.Topics(name=name, partitions=slots) for name, slots in topics.items()],
        )
        asked = Asked(node, told)

        def heard(answer: Any) -> None:
            codes = answer and {
                ErrorCode.of(one.error_code) for topic in answer.topics for one in topic.partitions
            }
            if self._succeeds("commit", codes, asked):
                self._is_acknowledged(asked)
            self.think()

        self.clients.line.ask(node, ApiKey.OFFSET_COMMIT, question, heard, arrives=asked.arrives)

    def _is_acknowledged(self, asked: Asked) -> None:
        self.acknowledged += 1
        self._waits = False
        number = len(self._commits) - 1
        for name in self._commits[number]:
            self._known[name] = Known(number, asked.rebases)

    # -- beginning again

    def _resume(self, node: "ReplicaNode", told: "Told") -> None:
        cls = request(ApiKey.OFFSET_FETCH).cls
        question = cls(groups=[cls.Groups(group_id=self.group_id, topics=None)])
        asked = Asked(node, told)

        def heard(answer: Any) -> None:
            group = answer and answer.groups[0]
            if self._succeeds("resume", group and {ErrorCode.of(group.error_code)}, asked):
                self._resumes(group, asked)
            self.think()

        self.clients.line.ask(node, ApiKey.OFFSET_FETCH, question, heard, arrives=asked.arrives)

    def _resumes(self, group: Any, asked: Asked) -> None:
        found = {
            TopicPartition(topic.name, one.partition_index): one
            for topic in group.topics
            for one in topic.partitions
        }
        self.resumed += 1
        self._has_ended = self.clients.is_over and asked.is_led
        self._offsets = {}
        for name in {**found, **self._known}:
            one = found.get(name)
            number = NOTHING if one is None else self._number_of(name, one, asked)
            self._is_new_enough(name, number, asked)
            if number != NOTHING:
                self._offsets[name] = self._commits[number][name]

    def _number_of(self, name: TopicPartition, one: Any, asked: Asked) -> int:
        number = int(one.metadata)
        offsets = self._commits[number] if number < len(self._commits) else {}
        if one.committed_offset != offsets.get(name, (NOTHING, 0))[0]:
            self._lies("OffsetFetch answers what was committed", asked, f"{name} {one}: {offsets}")
        return number

    def _is_new_enough(self, name: TopicPartition, number: int, asked: Asked) -> None:
        told, known = asked.told, self._known.get(name, Known(NOTHING, asked.rebases))
        is_safe = told.rebases == known.rebases and told.weak_from >= told.end
        if number < known.number and asked.is_led and is_safe:
            self._lies("OffsetFetch answers no older commit", asked, f"{name} {number} {known}")
        if asked.is_led and (number > known.number or not is_safe):
            self._known[name] = Known(number, asked.rebases)

    # -- both

    def _succeeds(self, what: str, codes: set[ErrorCode] | None, asked: Asked) -> bool:
        if codes is None:
            self._coordinator = None
            return False
        self._count(what, codes, {ErrorCode.NONE, *ELSEWHERE, *WAITS})
        if codes & ELSEWHERE:
            self._coordinator = None
        if codes != {ErrorCode.NONE}:
            return False
        if not asked.is_known_led:
            self._lies("who knows that it coordinates no more does not answer", asked, what)
        return True

    def _count(self, what: str, codes: Iterable[ErrorCode], may_be: set[ErrorCode]) -> None:
        for code in sorted(codes):
            self.clients.line.answers[f"{what} {code.name}"] += 1
            if code not in may_be:
                raise Violation("a failure is one that is known", f"{self.group_id} {what} {code}")

    def _lies(self, rule: str, asked: Asked, what: str) -> None:
        raise Violation(rule, f"{self.group_id} {asked.node} {asked.told}: {what}")
