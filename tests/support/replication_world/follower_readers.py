"""Consumers that ask followers, and what must hold of each answer as it leaves the follower.

Nothing above the follower's high watermark; each batch is one that was told to be committed; 1
(OFFSET_OUT_OF_RANGE) only below the log start, by a leader that was at work lately; from the store
only under the role in which it was asked, and by all that the metadata topic held at the question.
"""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import has_valid_crc, iter_batches
from kafka_protocol.types import TopicIdPartition, TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from rlmm.topic_based.topic_port import metadata_partition_for
from tests.support.quorum_world.errors import Violation
from tests.support.replication_world.plan import DATA_PORT
from tests.support.replication_world.tier_topic import PARTITIONS

if TYPE_CHECKING:
    from broker.replica.partition import Partition
    from tests.support.replication_world.clients import DataClients
    from tests.support.replication_world.node import ReplicaNode
    from tests.support.replication_world.validator import Told

LEADER_SILENT_MS = 2_300
"""One wait of a Fetch, and as long as its answer may take."""
BYTES_MAX = 2_000
THINK_US = 100_000


@dataclass
class Arrived:
    """What was so when a question reached its broker; `cuts` of the metadata topic before."""

    partition: "Partition | None"
    is_leader: bool
    leader_epoch: int
    metadata_end: int
    cuts: int


class FollowerReader:
    """Reads a partition from its followers, and now and then from anywhere.

    Attributes:
        read: how many batches it was given, and how many of them were remote.
        is_wild: it also asks where nothing can be read.
    """

    def __init__(self, clients: "DataClients", number: int, *, is_wild: bool = True) -> None:
        self.clients, self.number, self.is_wild = clients, number, is_wild
        self.world = clients.world
        self.rng = Random(f"follower-reader-{self.world.plan.seed}-{number}")
        self.read = self.read_remotely = 0
        self._offsets: dict[TopicPartition, tuple[int, int]] = {}
        self._arrived: Arrived | None = None

    def think(self) -> None:
        """Read something later."""
        if not self.clients.is_over:
            self.world.at(self.world.now_us + 1 + int(self.rng.random() * THINK_US), self.proceed)

    def proceed(self) -> None:
        """Read some of a partition."""
        chosen = self.choose()
        if chosen is None:
            self.think()
            return
        told, node = chosen
        offset, rebases = self._offsets.get(told.name, (0, told.rebases))
        if rebases != told.rebases:
            offset = min(offset, told.end)
        if self._is_strange():
            offset = self._strange(told)
        elif self.is_wild and self._silent_ms(told.image.leader) > LEADER_SILENT_MS:
            offset = int(self.rng.random() * max(told.start_max, 1))
        else:
            offset = max(offset, told.start_max)
        self._ask(told, node, offset)

    def choose(self) -> "tuple[Told, ReplicaNode] | None":
        """A partition, and a broker that may follow it."""
        names, validate = self.clients.names, self.world.validator
        told = validate.by_name.get(names[int(self.rng.random() * len(names))]) if names else None
        if told is None:
            return None
        image = told.image
        others = [one for one in image.replicas if one != image.leader]
        nodes = [self.world.nodes[one] for one in others]
        listening = [one for one in nodes if DATA_PORT in one.listening and one.up]
        if not listening:
            return None
        return told, listening[int(self.rng.random() * len(listening))]

    def _is_strange(self) -> bool:
        return self.is_wild and self.rng.random() < 0.4

    def _strange(self, told: "Told") -> int:
        """Below the log start, about the end, or somewhere."""
        kind = int(self.rng.random() * 3)
        if kind == 0:
            return int(self.rng.random() * max(told.start_max, 1))
        if kind == 1:
            return max(told.end - 3 + int(self.rng.random() * 6), 0)
        return int(self.rng.random() * (told.end + 1))

    def _ask(self, told: "Told", node: "ReplicaNode", offset: int) -> None:
        cls = request(ApiKey.FETCH).cls
        epoch = told.image.leader_epoch if self.rng.random() < 0.5 else -1
        asked = cls.Topics.Partitions(
            partition=told.name.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=BYTES_MAX,
        )
        question = cls(
            replica_id=-1,
            max_wait_ms=int(self.rng.random() * 400),
            min_bytes=1,
            max_bytes=5 * BYTES_MAX,
            session_id=0,
            session_epoch=-1,
            topics=[cls.Topics(topic=told.name.topic, partitions=[asked])],
        )

        def arrives() -> None:
            self._arrived = self._arrival(told, node)

        def leaves(answer: Any) -> None:
            for topic in answer.responses:
                for part in topic.partitions:
                    self._validate(told, node, offset, part)

        def heard(_answer: Any) -> None:
            self.think()

        self.clients.line.ask(node, ApiKey.FETCH, question, heard, arrives=arrives, leaves=leaves)

    def _silent_ms(self, node_id: int) -> int:
        """For how long a broker has done nothing."""
        return (self.world.now_us - self.world.turns_us.get(node_id, 0)) // 1_000

    # -- at the broker

    @staticmethod
    def _hosted(told: "Told", node: "ReplicaNode") -> "Partition | None":
        broker = node.broker
        replicas = None if broker is None else broker.replicas
        return None if replicas is None else replicas.partitions.get(told.name)

    def _arrival(self, told: "Told", node: "ReplicaNode") -> Arrived:
        partition = self._hosted(told, node)
        home = home_of(told)
        end, cuts = len(self.world.tier_topic.logs[home]), self.world.tier_validator.cuts
        if partition is None:
            return Arrived(None, False, -1, end, cuts)
        return Arrived(partition, partition.is_leader, partition.leader_epoch, end, cuts)

    def _validate(self, told: "Told", node: "ReplicaNode", offset: int, part: Any) -> None:
        """Validate one partition of an answer that leaves its broker."""
        arrived, partition = self._arrived, self._hosted(told, node)
        code = ErrorCode.of(part.error_code)
        self.clients.line.answers[f"follower {code.name}"] += 1
        if arrived is None or partition is None or partition is not arrived.partition:
            return
        if told.is_removed:
            return
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and not partition.is_leader:
            self._may_be_gone(told, node, offset, partition)
        self.clients.validate_damage(told, code)
        if code != ErrorCode.NONE or told.is_pending or partition.leader_epoch < told.since:
            return
        records = bytes(part.records or b"")
        found = list(iter_batches(records))
        if not all(has_valid_crc(records, *one) for one in found):
            self._breaks("nobody is given a damaged batch", told, f"{node} {found}")
        headers = [header for _, header in found]
        local_starts = partition.log.segments.bases[:1]
        if headers and local_starts and headers[0].base_offset < local_starts[0]:
            self.read_remotely += 1
            self._is_from_the_store(told, node, arrived, partition)
        at, rebases = offset, told.rebases
        for header in headers:
            if not partition.is_leader and header.next_offset > partition.log.high_watermark:
                what = f"{node} {header}, high watermark {partition.log.high_watermark}"
                self._breaks("a follower gives nothing above its high watermark", told, what)
            if header.base_offset >= told.weak_from or header.next_offset <= told.start_max:
                return
            if not told.has(header.base_offset, header.partition_leader_epoch, header.crc):
                self._breaks("a follower gives what is committed", told, f"{node} {header}")
            if told.has_between(max(at, told.start_max), header.base_offset):
                self._breaks("a follower leaves nothing out", told, f"{node} {at} {header}")
            self.read += 1
            at = header.next_offset
            self._offsets[told.name] = at, rebases

    def _may_be_gone(
        self, told: "Told", node: "ReplicaNode", offset: int, partition: "Partition"
    ) -> None:
        if told.gave_up or partition.leader_epoch < told.since:
            return
        if offset >= told.start_max:
            what = f"{node} {offset}, log start {told.start_max}"
            self._breaks("only what is below the log start is gone", told, what)
        silent_ms = self._silent_ms(partition.leader_id)
        if silent_ms > LEADER_SILENT_MS:
            what = f"{node} {offset}, {partition.leader_id} was silent for {silent_ms} ms"
            self._breaks("a follower says what is gone by what it was told lately", told, what)

    def _is_from_the_store(
        self, told: "Told", node: "ReplicaNode", arrived: Arrived, partition: "Partition"
    ) -> None:
        role = partition.is_leader, partition.leader_epoch
        if role != (arrived.is_leader, arrived.leader_epoch):
            what = f"{node} {role}, asked as {arrived}"
            self._breaks("the store is read under one role", told, what)
        process = node.tier_process
        if partition.is_leader or process is None or process.has_ended:
            return
        read_to = process.read_to(home_of(told))
        is_cut = arrived.cuts != self.world.tier_validator.cuts
        if read_to < arrived.metadata_end and not is_cut:
            what = f"{node} has read to {read_to} of {arrived.metadata_end}"
            self._breaks("a follower reads the store by all that is recorded", told, what)

    def _breaks(self, rule: str, told: "Told", what: str) -> None:
        raise Violation(rule, f"follower reader {self.number} {told}: {what}")


def home_of(told: "Told") -> int:
    """The metadata partition of a partition."""
    topic_id, number = told.key
    return metadata_partition_for(TopicIdPartition(topic_id, number, told.name.topic), PARTITIONS)


class LastFollowerReader(FollowerReader):
    """Reads one partition from one of its followers, from log start to end, when all is over."""

    def __init__(self, clients: "DataClients", told: "Told", node_id: int) -> None:
        super().__init__(clients, -node_id, is_wild=False)
        self.told, self.node = told, self.world.nodes[node_id]

    @property
    def late(self) -> str:
        """What is not read yet; empty: nothing."""
        told = self.told
        at, _ = self._offsets.get(told.name, (0, 0))
        is_leader = self.node.id == told.image.leader
        is_over = told.is_hurt or is_leader or max(at, told.start_max) >= told.readable_end
        return "" if is_over else f"{told.name} at {self.node} from {at} of {told.readable_end}"

    def think(self) -> None:
        if self.late:
            self.world.at(self.world.now_us + 20_000, self.proceed)

    def choose(self) -> "tuple[Told, ReplicaNode] | None":
        return self.told, self.node
