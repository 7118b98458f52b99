"""Clients of partitions: producers, consumers, and who asks for elections and deletions.

They speak to brokers in frames, which the product's dispatcher serves. What they send or should
hear may be late or lost; nothing is cut off for them. What they are told must be so.
"""

import struct
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.network.dispatch import Peer
from broker.network.registry import CloseConnection
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import has_valid_crc, iter_batches, read_header
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import OFFSETS_TOPIC, TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from metadata_topic.controller.configs import Operation
from metadata_topic.image.image import ResourceType
from tests.support.quorum_world.errors import Violation
from tests.support.replication_world.doomed_topics import DoomedTopics
from tests.support.replication_world.follower_readers import FollowerReader
from tests.support.replication_world.moves import Mover
from tests.support.replication_world.plan import (
    DATA_PORT,
    DURABLE,
    TIERED,
    TopicPlan,
    is_tiered,
)
from tests.support.replication_world.restoring import Restorer
from tests.support.replication_world.tier_lies import Lie

if TYPE_CHECKING:
    from tests.support.replication_world.groups import GroupConsumer
    from tests.support.replication_world.node import ReplicaNode
    from tests.support.replication_world.validator import Told
    from tests.support.replication_world.world import ReplicationWorld

PATIENCE_MS = 4_000
"""A client waits so long for an answer, then asks again."""
TIMEOUT_MS = 1_500
RETRY_US = 100_000
RECORDS_MAX = 3
PROBES = 1
"""Number of producers that are not idempotent, and send one batch."""
BEGAN_MS = 1_700_000_000_000
VERSIONS = {
    ApiKey.PRODUCE: 10,
    ApiKey.FETCH: 12,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}
Heard = Callable[[Any], None]
"""Is given the answer, None if there was none in time."""
AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
FORGOTTEN = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Line:
    """How clients reach brokers.

    Attributes:
        answers: how many came, by what they say.
    """

    def __init__(self, world: "ReplicationWorld") -> None:
        self.world = world
        self.answers: Counter[str] = Counter()
        self._asked = 0

    def leader_of(self, name: TopicPartition) -> "tuple[ReplicaNode | None, int]":
        """Who leads a partition, in which epoch, by the image of some broker."""
        world = self.world
        found = self.some_broker()
        topic = None if found is None else found.metadata.image.topics_by_name.get(name.topic)
        known = None if topic is None else topic.partitions.get(name.partition)
        if known is None:
            return None, -1
        leader = world.nodes.get(known.leader)
        listens = leader is not None and DATA_PORT in leader.listening
        return leader if listens else None, known.leader_epoch

    def some_broker(self) -> "ReplicaNode | None":
        """One that listens."""
        listening = [one for one in self.world.brokers if DATA_PORT in one.listening and one.up]
        if not listening:
            return None
        return listening[int(self.world.work_rng.random() * len(listening))]  # type: ignore[return-value]

    def ask(
        self,
        node: "ReplicaNode",
        api_key: ApiKey,
        question: Any,
        heard: Heard,
        *,
        arrives: Callable[[], None] | None = None,
        leaves: Heard | None = None,
    ) -> None:
        """Ask a broker; `heard` is called once, `arrives` when the question is there.

        `leaves`: is given the answer as it leaves the broker.
        """
        world = self.world
        self._asked += 1
        waiting = [heard]

        def told(answer: Any) -> None:
            if waiting:
                waiting.pop()(answer)

        world.at(world.now_us + PATIENCE_MS * 1000, told, None)
        if not world.net.is_lost_for_clients():
            served = partial(self._arrives, node, api_key, question, told, (arrives, leaves))
            world.at_node(world.net.arrival(), node, node.on_loop, served)

    def _arrives(
        self,
        node: "ReplicaNode",
        api_key: ApiKey,
        question: Any,
        told: Heard,
        looks: tuple[Callable[[], None] | None, Heard | None],
    ) -> None:
        arrives, leaves = looks
        if arrives is not None:
            arrives()
        listening = node.listening.get(DATA_PORT)
        if listening is None:
            self._back(told, None)
            return
        version, codec = VERSIONS[api_key], request(api_key)
        head = struct.pack(">hhihx", api_key, version, 1, -1)
        frame = bytearray(head + bytes(codec.encode(question, version)))
        name, dispatcher = listening
        life = node.life

        def send(outcome: Any) -> None:
            if node.life != life or outcome is None:
                return
            data = node.bytes_of(outcome[0])
            if data is not None:
                answer = response(api_key).decode(data[9:], version)[0]
                if leaves is not None:
                    leaves(answer)
                self._back(told, answer)

        def done(future: "Future[Any]") -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                self.world.breaks(
                    "what a client asks is served", f"{node}: {error!r} {error.__cause__!r}"
                )
                return
            send(future.result())

        try:
            outcome = dispatcher.dispatch(
                Peer(name, ("127.0.0.1", 1)),
                memoryview(frame),
                node.clock.wall_ms(),
                node.clock.monotonic_ns(),
            )
        except CloseConnection as error:
            self.world.breaks(
                "what a client asks is served", f"{node}: {error} {error.__cause__!r}"
            )
            return
        if isinstance(outcome, Future):
            outcome.add_done_callback(done)
        else:
            send(outcome)

    def _back(self, told: Heard, answer: Any) -> None:
        world = self.world
        if not world.net.is_lost_for_clients():
            world.at(world.net.arrival(), told, answer)


@dataclass(eq=False)
class Sent:
    """A batch of a producer.

    Attributes:
        since_us: when it was sent first.
        tries: how often it was sent.
        asked: the broker that it was sent to last.
    """

    name: TopicPartition
    batch: bytearray
    crc: int
    since_us: int
    tries: int = 0
    rebases: int = 0
    asked: int = -1


class Producer:
    """Sends one batch after the other, each until it is acknowledged or nobody can tell.

    Attributes:
        sent: what is not answered yet.
        acknowledged: how many were.
    """

    def __init__(self, clients: "DataClients", number: int) -> None:
        self.clients, self.number = clients, number
        plan = clients.world.plan
        self.acks = 1 if number % 4 == 3 else -1
        self.is_idempotent = number % 2 == 0
        self._producer_id = 1_000 * (number + 1)
        self._sequences: dict[TopicPartition, int] = {}
        self._pause_us = 2_000 * plan.produce_every_ms * plan.producers
        self.sent: Sent | None = None
        self.acknowledged = 0

    def think(self) -> None:
        """Send something later."""
        world = self.clients.world
        if not self.clients.is_over:
            pause_us = 1 + int(world.work_rng.random() * self._pause_us)
            world.at(world.now_us + pause_us, self._send)

    def _send(self) -> None:
        clients, world = self.clients, self.clients.world
        names = clients.names
        if clients.is_over or not names:
            self.think()
            return
        self.send(names[int(world.work_rng.random() * len(names))])

    def send(self, name: TopicPartition) -> None:
        """Send a batch, and continue when it is answered."""
        clients, world = self.clients, self.clients.world
        count = 1 + int(world.work_rng.random() * RECORDS_MAX)
        clients.written += 1
        now_ms = BEGAN_MS + world.now_us // 1000
        sequence = self._sequences.get(name, 0)
        batch = build_batch(
            [(now_ms, None, b"%d-%d" % (clients.written, one), ()) for one in range(count)],
            producer_id=self._producer_id if self.is_idempotent else -1,
            producer_epoch=0 if self.is_idempotent else -1,
            base_sequence=sequence if self.is_idempotent else -1,
        )
        self._sequences[name] = sequence + count
        told = world.validator.by_name.get(name)
        rebases = 0 if told is None else told.rebases
        self.sent = Sent(name, batch, read_header(batch).crc, world.now_us, 0, rebases)
        self._try()

    def _try(self) -> None:
        sent, line = self.sent, self.clients.line
        assert sent is not None
        if self.clients.is_removed(sent.name):
            self._next()
            return
        node, _ = line.leader_of(sent.name)
        if node is None:
            self._again()
            return
        sent.tries += 1
        sent.asked = node.id
        cls = request(ApiKey.PRODUCE).cls
        data = cls.TopicData.PartitionData(index=sent.name.partition, records=bytes(sent.batch))
        question = cls(
            acks=self.acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[cls.TopicData(name=sent.name.topic, partition_data=[data])],
        )
        line.ask(node, ApiKey.PRODUCE, question, self._heard)

    def _again(self) -> None:
        world = self.clients.world
        world.at(world.now_us + RETRY_US, self._try)

    def _heard(self, answer: Any) -> None:
        sent = self.sent
        assert sent is not None
        if answer is None:
            self._is_unclear()
            return
        (topic,) = answer.responses
        (part,) = topic.partition_responses
        code = ErrorCode.of(part.error_code)
        self.clients.line.answers[f"produce {code.name}"] += 1
        if code == ErrorCode.NONE:
            self._is_acknowledged(part.base_offset)
        elif code in AGAIN:
            if code == ErrorCode.NOT_LEADER_OR_FOLLOWER or self.is_idempotent:
                self._again()
            else:
                self._is_unclear()
        elif code in FORGOTTEN and self.is_idempotent:
            self._is_forgotten(code)
        else:
            self._breaks("a failure is one that is known", f"{code.name}")

    def _is_unclear(self) -> None:
        """It may be in the log: only the batch of an idempotent producer is sent again."""
        if self.is_idempotent:
            self._again()
        else:
            self._next()

    def _is_acknowledged(self, offset: int) -> None:
        sent, world = self.sent, self.clients.world
        assert sent is not None
        self.acknowledged += 1
        told = world.validator.by_name[sent.name]
        if self.acks == -1 and offset >= 0:
            world.validator.acknowledges(told, sent.rebases, offset, sent.crc)
        self._next()

    def _is_forgotten(self, code: ErrorCode) -> None:
        """What it wrote before is gone: rightly so only where that was not safe.

        A leader that is deposed and does not know it lacks what its successor was sent.
        """
        sent, world = self.sent, self.clients.world
        assert sent is not None
        told = world.validator.by_name[sent.name]
        if sent.asked != told.image.leader or told.is_removed:
            self._again()
            return
        if self.acks == -1 and not told.gave_up:
            self._breaks("a producer's batch follows its last one", f"{code.name}")
        self._producer_id += 1
        self._sequences.clear()
        self._next()

    def _next(self) -> None:
        self.sent = None
        self.think()

    def _breaks(self, rule: str, what: str) -> None:
        sent = self.sent
        assert sent is not None
        told = self.clients.world.validator.by_name[sent.name]
        raise Violation(rule, f"producer {self.number} acks={self.acks} {told}: {what}")


class Consumer:
    """Reads a partition from its beginning on, and then the next one.

    Attributes:
        read: how many batches it was given.
        bytes_max: it asks for at once.
    """

    bytes_max = 2_000

    def __init__(self, clients: "DataClients", number: int) -> None:
        self.clients, self.number = clients, number
        self.read = 0
        self._offsets: dict[TopicPartition, tuple[int, int]] = {}  # next one, and of which rebase
        self._epochs: dict[TopicPartition, int] = {}
        self._name: TopicPartition | None = None
        self._has_skipped = False

    def think(self) -> None:
        """Read something later."""
        world = self.clients.world
        if not self.clients.is_over:
            world.at(world.now_us + 1 + int(world.work_rng.random() * 300_000), self.proceed)

    def proceed(self) -> None:
        """Read some of a partition."""
        clients, world = self.clients, self.clients.world
        names = self._names()
        if not names:
            self.think()
            return
        name = names[int(world.work_rng.random() * len(names))]
        node, epoch = clients.line.leader_of(name)
        told = world.validator.by_name.get(name)
        if node is None or told is None:
            self.think()
            return
        offset, rebases = self._offsets.get(name, (0, told.rebases))
        if rebases != told.rebases:
            offset = min(offset, told.end)
        self._has_skipped = offset < told.start_max
        offset = max(offset, told.start_max)
        self._name = name
        self._offsets[name] = offset, told.rebases
        cls = request(ApiKey.FETCH).cls
        asked = cls.Topics.Partitions(
            partition=name.partition,
            current_leader_epoch=self._knows_epoch(name, epoch),
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=self.bytes_max,
        )
        question = cls(
            replica_id=-1,
            max_wait_ms=int(world.work_rng.random() * 300),
            min_bytes=1,
            max_bytes=5 * self.bytes_max,
            session_id=0,
            session_epoch=-1,
            topics=[cls.Topics(topic=name.topic, partitions=[asked])],
        )
        clients.line.ask(node, ApiKey.FETCH, question, self._heard)

    def _names(self) -> list[TopicPartition]:
        return self.clients.names

    def _knows_epoch(self, name: TopicPartition, epoch: int) -> int:
        """A leader of before, which does not know yet, is not believed."""
        self._epochs[name] = epoch = max(epoch, self._epochs.get(name, -1))
        return epoch

    def _heard(self, answer: Any) -> None:
        name = self._name
        assert name is not None
        if answer is not None:
            for topic in answer.responses:
                for part in topic.partitions:
                    self._takes(name, part)
        self.think()

    def _takes(self, name: TopicPartition, part: Any) -> None:
        told = self.clients.world.validator.by_name[name]
        offset, rebases = self._offsets[name]
        code = ErrorCode.of(part.error_code)
        self.clients.line.answers[f"fetch {code.name}"] += 1
        if rebases != told.rebases or self._epochs[name] < told.since or told.is_removed:
            return  # a leader of before an unclean election may still tell what was given up
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and offset >= told.start_max and not told.gave_up:
            # A leader of before may not have what the consumer has not read either.
            is_weak = told.weak_from <= offset or self._has_skipped
            if not is_weak and offset <= told.end:
                self._breaks("what was read stays in range", told, f"{offset}")
        self.clients.validate_damage(told, code)
        if code != ErrorCode.NONE:
            return
        records = bytes(part.records or b"")
        for position, header in iter_batches(records):
            if not has_valid_crc(records, position, header):
                self._breaks("nobody is given a damaged batch", told, f"{header}")
            if header.base_offset >= told.weak_from or header.next_offset <= told.start_max:
                return
            if not told.has(header.base_offset, header.partition_leader_epoch, header.crc):
                self._breaks("a consumer sees what is committed", told, f"{header}")
            if told.has_between(self._offsets[name][0], header.base_offset):
                self._breaks("a consumer skips nothing", told, f"{self._offsets[name]} {header}")
            self.read += 1
            self._offsets[name] = header.next_offset, rebases

    def _breaks(self, rule: str, told: "Told", what: str) -> None:
        raise Violation(rule, f"consumer {self.number} {told}: {what}")


class LastReader(Consumer):
    """Reads one partition from its log start to its end, when all else is over."""

    def __init__(self, clients: "DataClients", name: TopicPartition) -> None:
        super().__init__(clients, -1)
        self.name = name

    @property
    def late(self) -> str:
        """What is not read yet; empty: nothing."""
        told = self.clients.world.validator.by_name[self.name]
        at, _ = self._offsets.get(self.name, (0, 0))
        is_over = told.is_hurt or max(at, told.start_max) >= told.readable_end
        return "" if is_over else f"{self.name} from {at} of {told.readable_end}"

    def think(self) -> None:
        world = self.clients.world
        if self.late:
            world.at(world.now_us + 20_000, self.proceed)

    def _names(self) -> list[TopicPartition]:
        return [self.name]


@dataclass(eq=False)
class DataClients:
    """All of them.

    Attributes:
        names: partitions that there are.
        written: batches that were made.
        groups: consumers that commit how far they are.
    """

    world: "ReplicationWorld"
    line: Line = field(init=False)
    names: list[TopicPartition] = field(default_factory=list)
    is_over: bool = False
    written: int = 0
    groups: "list[GroupConsumer]" = field(default_factory=list)

    def __post_init__(self) -> None:
        plan = self.world.plan
        self.line = Line(self.world)
        self.producers = [Producer(self, one) for one in range(plan.producers)]
        self.consumers = [Consumer(self, one) for one in range(plan.consumers)]
        count = plan.follower_readers
        self.follower_readers = [FollowerReader(self, one) for one in range(count)]
        self.doomed, self.restorer, self.mover = DoomedTopics(self), Restorer(self), Mover(self)

    def start(self) -> None:
        """Have the topics made, and let each begin."""
        for number, topic in enumerate(self.world.plan.topics):
            self.world.at(self.world.now_us + 500_000, self.create, f"r{number}", topic)
        if self.world.plan.has_durable:
            self.world.at(self.world.now_us + 500_000, self.create, DURABLE, TopicPlan(1, 3, 2))
        if (tier := self.world.plan.tier) is not None:
            tiered = TopicPlan(tier.partitions, 3, 2, tier.is_unclean)
            self.world.at(self.world.now_us + 500_000, self.create, TIERED, tiered)
        if self.groups:
            offsets = TopicPlan(self.world.plan.offsets_partitions, 3, 2)
            self.world.at(self.world.now_us + 500_000, self.create, OFFSETS_TOPIC, offsets)
        for one in (*self.producers, *self.consumers, *self.groups, *self.follower_readers):
            one.think()
        self._delete_later()
        self._change_minimum_later()
        self.doomed.start()
        self.restorer.start()

    def stop(self) -> None:
        """Begin nothing more."""
        self.is_over = True

    @property
    def waiting(self) -> Iterator[Producer]:
        """Producers that have no answer yet, and may have one."""
        world = self.world
        return (
            one
            for one in self.producers
            if one.sent is not None
            and not world.is_given_up(world.validator.by_name[one.sent.name])
        )

    def validate_damage(self, told: "Told", code: ErrorCode) -> None:
        """A consumer hears of damage only where the store has given some."""
        lies = self.world.remote_objects.lies
        if code == ErrorCode.CORRUPT_MESSAGE and not lies.told[Lie.FLIPS]:
            raise Violation("only what the store has damaged is damaged", f"{told}")

    def probe(self, name: TopicPartition) -> None:
        """Have one batch more acknowledged."""
        one = Producer(self, PROBES)
        self.producers.append(one)
        one.send(name)

    def is_removed(self, name: TopicPartition) -> bool:
        """Whether its topic was there and is deleted."""
        told = self.world.validator.by_name.get(name)
        return told is not None and told.is_removed

    def forget(self, topic: str) -> None:
        """It is deleted: nobody writes to it or reads it any more."""
        self.names = [one for one in self.names if one.topic != topic]

    def create(self, name: str, topic: TopicPlan) -> None:
        """Ask for a topic until it is there; then clients write to it and read it."""
        world = self.world
        if name in world.oracle.reference.topics_by_name:
            if name != OFFSETS_TOPIC:
                self.names += [TopicPartition(name, one) for one in range(topic.partitions)]
                self.names.sort()
            return
        world.at(world.now_us + 2_000_000, self.create, name, topic)
        node = self.line.some_broker()
        if node is None or sum(not one.fenced for one in world.known_brokers()) < topic.replicas:
            return
        cls = request(ApiKey.CREATE_TOPICS).cls
        configs = {
            "min.insync.replicas": str(topic.min_insync),
            "unclean.leader.election.enable": str(topic.is_unclean).lower(),
            "message.timestamp.after.max.ms": str(2**63 - 1),
            "retention.ms": "-1",  # clocks on walls jump
        }
        if is_tiered(name) and (tier := world.plan.tier) is not None:
            configs["remote.storage.enable"] = "true"
            configs["retention.bytes"] = str(tier.retention_bytes)
            configs["local.retention.bytes"] = str(tier.local_bytes)
        asked = cls.Topics(
            name=name,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            configs=[cls.Topics.Configs(name=one, value=text) for one, text in configs.items()],
        )
        question = cls(topics=[asked], timeout_ms=TIMEOUT_MS)
        self.line.ask(node, ApiKey.CREATE_TOPICS, question, lambda _answer: None)

    # -- deletions, settings, elections

    def _delete_later(self) -> None:
        every_ms = self.world.plan.delete_every_ms
        if every_ms and not self.is_over:
            pause_us = 1 + int(self.world.work_rng.random() * 2_000 * every_ms)
            self.world.at(self.world.now_us + pause_us, self._delete)

    def _delete(self) -> None:
        self._delete_later()
        world = self.world
        if self.is_over or not self.names:
            return
        name = self.names[int(world.work_rng.random() * len(self.names))]
        node, _ = self.line.leader_of(name)
        told = world.validator.by_name.get(name)
        if node is None or told is None:
            return
        offset = told.start_max + int((told.end - told.start_max) * world.work_rng.random())
        told.asked_start = max(told.asked_start, offset)
        cls = request(ApiKey.DELETE_RECORDS).cls
        asked = cls.Topics.Partitions(partition_index=name.partition, offset=offset)
        topic = cls.Topics(name=name.topic, partitions=[asked])
        question = cls(topics=[topic], timeout_ms=TIMEOUT_MS)
        rebases = told.rebases

        def heard(answer: Any) -> None:
            if answer is None:
                return
            (topic,) = answer.topics
            (part,) = topic.partitions
            code = ErrorCode.of(part.error_code)
            self.line.answers[f"delete {code.name}"] += 1
            if code == ErrorCode.NONE and rebases == told.rebases:
                world.validator.deletes(told, part.low_watermark)

        self.line.ask(node, ApiKey.DELETE_RECORDS, question, heard)

    def _change_minimum_later(self) -> None:
        every_ms = self.world.plan.minimum_every_ms
        if every_ms and not self.is_over:
            pause_us = 1 + int(self.world.work_rng.random() * 2_000 * every_ms)
            self.world.at(self.world.now_us + pause_us, self._change_minimum)

    def _change_minimum(self) -> None:
        """Between two and three: what is acknowledged has two copies at least."""
        self._change_minimum_later()
        rng, node = self.world.work_rng, self.line.some_broker()
        changing = [
            f"r{number}"
            for number, topic in enumerate(self.world.plan.topics)
            if (topic.min_insync, topic.replicas) == (2, 3)
        ]
        if self.is_over or node is None or not changing or not self.names:
            return
        cls = request(ApiKey.INCREMENTAL_ALTER_CONFIGS).cls
        value = str(2 + int(rng.random() * 2))
        change = cls.Resources.Configs(
            name="min.insync.replicas", config_operation=Operation.SET, value=value
        )
        resource = cls.Resources(
            resource_type=ResourceType.TOPIC,
            resource_name=changing[int(rng.random() * len(changing))],
            configs=[change],
        )

        def heard(answer: Any) -> None:
            if answer is not None:
                code = ErrorCode.of(answer.responses[0].error_code)
                self.line.answers[f"minimum {code.name}"] += 1

        question = cls(resources=[resource], validate_only=False)
        self.line.ask(node, ApiKey.INCREMENTAL_ALTER_CONFIGS, question, heard)

    def elect(self, election_type: int) -> None:
        """Ask for preferred (0) or unclean (1) leaders of all."""
        node = self.line.some_broker()
        if node is None or not self.names:
            return
        self.world.validator.allows_unclean |= election_type == 1
        cls = request(ApiKey.ELECT_LEADERS).cls
        question = cls(election_type=election_type, topic_partitions=None, timeout_ms=TIMEOUT_MS)

        def heard(answer: Any) -> None:
            if answer is not None:
                self.line.answers[f"elect {ErrorCode.of(answer.error_code).name}"] += 1

        self.line.ask(node, ApiKey.ELECT_LEADERS, question, heard)
