"""Brokers that share one metadata topic in this process, driven turn by turn."""

from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from kafka_protocol.types import TopicIdPartition
from rlmm import records
from rlmm.api import Fence, PartitionDeleteState, PartitionHistory
from rlmm.fold import Fold
from rlmm.lifecycle import Verdict
from rlmm.store import MemoryStore, Position, partition_key
from rlmm.testing import PARTITION, segment, update
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng
from tests.support.tier.memory_topic import MemoryPort, MemoryTopic

WRITE_WAIT_MS = 5_000
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
A1, A2, A3, B2 = Fence(1, 1), Fence(1, 2), Fence(1, 3), Fence(2, 1)
S0, S1 = segment(1, 0, 9), segment(2, 10, 19)


@dataclass
class Node:
    """One broker's manager; its store outlives it."""

    topic: MemoryTopic
    clock: ManualClock
    number: int
    store: MemoryStore = field(default_factory=MemoryStore)
    ghosts: list[MemoryPort] = field(default_factory=list)
    starts: int = 0
    lost: list[TopicIdPartition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.port = self.topic.port()
        self.manager = TopicBasedRemoteLogMetadataManager(
            port_factory=lambda settings: self.port,
            store_factory=lambda settings, count: self.store,
            clock=self.clock,
            rng=SeededRng(self.number * 1_000 + self.starts),
            threaded=False,
        )
        self.manager.on_lost_records(self.lost.append)
        self.manager.configure(
            {
                "node.id": str(self.number),
                "cluster.id": "c",
                "log.dir": "/nowhere",
                "bootstrap.servers": "nowhere:1",
                "remote.log.metadata.consume.wait.ms": str(WRITE_WAIT_MS),
            }
        )

    def kill(self) -> None:
        """The process dies; what its client had sent may still land."""
        self.ghosts.append(self.port.orphan_waiting())
        self.port.deaf = True
        self.start()

    def turn(self, count: int = 3) -> None:
        for _ in range(count):
            self.manager.turn()

    def own(
        self,
        fence: Fence,
        partition: TopicIdPartition = PARTITION,
        *,
        unclean_epoch: int = -1,
    ) -> "Future[None]":
        future = self.manager.own(partition, fence, unclean_epoch=unclean_epoch)
        self.turn(4)
        return future

    def history(self) -> PartitionHistory:
        history = self.manager.history(PARTITION)
        assert history is not None
        return history

    def segments(self, partition: TopicIdPartition = PARTITION) -> list[RemoteLogSegmentMetadata]:
        return list(self.manager.list_segments(partition))


def truth(topic: MemoryTopic, partition: int = 0) -> tuple[MemoryStore, list[Verdict | None]]:
    """What every reader must know: the topic folded from its begin; verdicts by offset."""
    store = MemoryStore()
    verdicts: list[Verdict | None] = []
    for offset, stored in enumerate(topic.logs[partition]):
        fold = Fold(store, partition)
        try:
            event = records.decode(stored.value)
            verdicts.append(fold.take(event, order=offset, seen_ms=0))
        except records.UnreadableRecordError:
            verdicts.append(None)
        store.write(partition, fold.changes, Position(offset + 1, 0))
    return store, verdicts


def known(store: MemoryStore, partition: TopicIdPartition = PARTITION) -> list[object]:
    """The part of a store in which all readers agree (when they saw it is their own)."""
    key = partition_key(partition)
    facts = store.facts(0, key)
    entries = [replace(e, started_seen_ms=0) for e in store.entries(0, key)]
    return [facts and replace(facts, marked_seen_ms=None), entries]


def copied(node: Node, fence: Fence, *segments: RemoteLogSegmentMetadata) -> None:
    """Write segments (S0 where none is named) as copied, read back."""
    for one in segments or (S0,):
        node.manager.add(one, fence, 5)
        node.turn()
        done = node.manager.update(update(one, FINISHED), fence, 5)
        node.turn()
        assert done.exception(0) is None
