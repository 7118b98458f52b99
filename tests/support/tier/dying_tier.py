"""A machine whose tier process dies before or after any of its writes, and is started again.

What a process leaves is what a machine holds: the counter's file, the log, the metadata topic. All
else (the manager's cache, what the tier knew) is gone. Copies of a machine share its store. Each
step that somebody else can see is counted; the order of some of them is checked where they happen.
"""

import shutil
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from broker.replica.validation import Validation
from rlm.link.messages import (
    Ack,
    Connect,
    CopiedThrough,
    DescribeLog,
    Health,
    LogDescription,
    RaiseLogStart,
    Report,
    RestoreChain,
    Stop,
)
from rlmm import lineage, records
from rlmm.api import Fence
from rlmm.store import MemoryStore, partition_key
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from rlmm.topic_based.topic_port import TopicRecord
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import (
    LogSegmentData,
    RemoteLogSegmentMetadata,
    SegmentState,
)
from tests.support.sim.rng import SeededRng
from tests.support.tier.life_steps import Death, SteppedDisk, Steps, must
from tests.support.tier.log_in_memory import PARTITION, SimulatedBroker, values_of
from tests.support.tier.memory_topic import MemoryPort, MemoryTopic
from tests.support.tier.metadata_topic import truth
from tests.support.tier.pair import ClaimStorage, Pair

CLUSTER, NODE = "c", 1
ROUNDS_WITHOUT_NEWS = 4
TURNS_FOR_A_WRITE = 20


class LateTopicPort(MemoryPort):
    """What is appended lands when the port is polled the next time, each landing a step."""

    def __init__(self, topic: MemoryTopic, life: "Life") -> None:
        super().__init__(topic)
        self.held, self._life = True, life
        self.read_end = 0

    def append(self, partition: int, value: bytes, on_done: Callable[[Any], None]) -> None:
        self._life.sends(records.decode(value))
        parent = super()
        self._life.steps("send record", lambda: parent.append(partition, value, on_done))

    def poll(self, timeout_ms: int) -> list[Any]:
        events = super().poll(timeout_ms)
        ends = [event.offset + 1 for event in events if isinstance(event, TopicRecord)]
        self.read_end = max([self.read_end, *ends])
        for _ in range(len(self.waiting)):
            self._life.steps("land record", lambda: self.land_waiting(1))
        return events


class TurningManager(TopicBasedRemoteLogMetadataManager):
    """The real manager without its thread: whoever waits for a write turns it."""

    def __init__(self, manager: TopicBasedRemoteLogMetadataManager, life: "Life") -> None:
        self.__dict__ = manager.__dict__  # it is that one
        self._turned, self._life = manager, life

    def add(self, *args: Any) -> Any:
        return Turned(self._turned, self._turned.add(*args))

    def update(self, *args: Any) -> Any:
        return Turned(self._turned, self._turned.update(*args))

    def carry(self, partition: Any, fence: Fence, log_start: int) -> None:
        must(log_start <= self._life.machine.log.checkpointed_log_start, "carried too early")
        super().carry(partition, fence, log_start)


@dataclass
class Turned:
    """A write's future; waiting for it turns the manager."""

    manager: TopicBasedRemoteLogMetadataManager
    inner: Any

    def result(self, _: float) -> object:
        for _turn in range(TURNS_FOR_A_WRITE):
            if self.inner.done():
                return self.inner.result(0)
            self.manager.turn()
        raise FutureTimeoutError


class SharedStore(ClaimStorage):
    """The store of a machine and its copies, as one life uses it."""

    life: "Life"

    def read_claim(self, cluster_id: str, node_id: int) -> int | None:
        found: int | None = self.life.steps(
            "read claim", lambda: super(SharedStore, self).read_claim(cluster_id, node_id)
        )
        return found

    def write_claim(self, cluster_id: str, node_id: int, number: int) -> None:
        before = claim_of(self.life.machine)
        must(before is None or number > before, "the claim falls")
        must(number not in self.life.machine.foreign_claims(), "a copy wrote the same claim")

        def write() -> None:
            super(SharedStore, self).write_claim(cluster_id, node_id, number)
            self.life.machine.claimed.add(number)

        self.life.steps("write claim", write)

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        self.life.may_write_store()
        custom: bytes | None = self.life.steps(
            "put objects", lambda: super(SharedStore, self).copy_log_segment_data(metadata, data)
        )
        return custom

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.life.may_write_store()
        self.life.steps(
            "delete objects",
            lambda: super(SharedStore, self).delete_log_segment_data(metadata),
        )


class SteppedLog(SimulatedBroker):
    """The broker's side; what the tier has it change is a step, moving the log start three."""

    life: "Life | None" = None

    def _step(self, name: str, call: Callable[[], Any]) -> Any:
        return call() if self.life is None else self.life.steps(name, call)

    def describe(self, question: DescribeLog) -> LogDescription:
        if self.log_start_known and self.log_start > self.checkpointed_log_start:
            self._checkpoint()  # the tier hears of no log start that may fall back
        return super().describe(question)

    def report(self, report: Report) -> bool:
        if isinstance(report, CopiedThrough) and self.life is not None:
            self.life.must_be_owner()
        name = "copied through" if isinstance(report, CopiedThrough) else "report"
        parent = super()
        taken: bool = self._step(name, lambda: parent.report(report))
        return taken

    def raise_log_start(self, request: RaiseLogStart) -> bool:
        if self.life is not None:
            self.life.must_be_owner()
        self._check(request.leader_epoch)
        if request.offset > self.end:
            return False
        must(request.offset >= self.checkpointed_log_start, "the log start falls")

        def in_memory() -> None:
            self.log_start = max(self.log_start, request.offset)

        self._step("log start in memory", in_memory)
        self._step("log start checkpointed", self._checkpoint)
        parent = super()
        taken: bool = self._step("chain clipped", lambda: parent.raise_log_start(request))
        return taken

    def _checkpoint(self) -> None:
        self.checkpointed_log_start, self.log_start_known = self.log_start, True

    def restore_chain(self, request: RestoreChain) -> bool:
        parent = super()
        taken: bool = self._step("restore chain", lambda: parent.restore_chain(request))
        return taken


@dataclass
class Machine:
    """What is left when a process has died.

    Attributes:
        others: machines that share its store: those that were copied from it, and the original.
        claimed: numbers that it has put into the store.
        pairs: that its lives have written under, the last one's apart.
        cache: the manager's; None: it is lost with each process.
        log_start_seen: the highest log start that was ever checkpointed.
    """

    directory: Path
    store: Path
    log: SteppedLog = field(default_factory=SteppedLog)
    topic: MemoryTopic = field(default_factory=MemoryTopic)
    wall_ms: int = 10_000_000
    others: "list[Machine]" = field(default_factory=list)
    claimed: set[int] = field(default_factory=set)
    pairs: list[Fence] = field(default_factory=list)
    cache: MemoryStore | None = None
    log_start_seen: int = 0
    lives: int = 0

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True)

    def copied_to(self, directory: Path) -> "Machine":
        """A copy of all that it holds now."""
        self.log.life = None
        copy = Machine(directory, self.store, deepcopy(self.log), deepcopy(self.topic))
        shutil.copytree(self.directory, directory, dirs_exist_ok=True)
        copy.wall_ms, copy.lives = self.wall_ms, self.lives
        copy.others, self.others = [self, *self.others], [*self.others, copy]
        return copy

    @property
    def seed(self) -> int:
        """Of the present life's rng; no other life of a test has them; each run has the same."""
        name = "/".join(self.directory.parts[-2:])
        return 2 * (crc32(name.encode()) + (self.lives << 32))

    def foreign_claims(self) -> set[int]:
        return {number for other in self.others for number in other.claimed}

    def fold(self) -> MemoryStore:
        return truth(self.topic)[0]

    def finished(self) -> list[RemoteLogSegmentMetadata]:
        return [
            entry.metadata
            for entry in self.fold().entries(0, partition_key(PARTITION))
            if entry.metadata.state is SegmentState.COPY_SEGMENT_FINISHED
        ]

    def check_readable(self) -> None:
        """Every offset from the log start on is readable, with the bytes its leader wrote."""
        log, plugin = self.log, plugin_of(self.store)
        local, finished = log.local_values(), self.finished()
        self.log_start_seen = max(self.log_start_seen, log.checkpointed_log_start)
        for offset in range(self.log_start_seen, log.end):
            epoch = next(epoch for epoch, at in log.truth if at == offset)
            found = local.get((epoch, offset))
            for segment in finished if found is None else ():
                if (epoch, offset) in pairs_of(segment):
                    with plugin.fetch_log_segment(segment, 0) as stream:
                        found = values_of(stream.read())[epoch, offset]
            assert found == log.truth[epoch, offset], f"offset {offset} is in no tier"

    def check_at_rest(self) -> None:
        """Nothing is lost, leaked or forgotten once all has come to rest."""
        log = self.log
        assert log.log_start_known
        assert log.log_start == log.checkpointed_log_start >= self.log_start_seen
        self.check_readable()
        assert log.verdict is Validation.SOUND
        assert log.copied == log.segments[-1].base_offset - 1
        log.expire_local()
        self.check_readable()
        assert len(objects_of(self)) == 3 * len(self.finished())


def pairs_of(segment: RemoteLogSegmentMetadata) -> set[tuple[int, int]]:
    """Each (leader epoch, offset) of a segment."""
    return {
        (span.epoch, offset)
        for span in lineage.segment_spans(segment)
        for offset in range(span.first, span.last + 1)
    }


class Life(Pair):
    """One tier process of a machine, up to its death."""

    def __init__(self, machine: Machine, death: Death | None = None, **settings: Any) -> None:
        self.machine, self.steps = machine, Steps(death or Death())
        self.own_pairs: set[Fence] = set()
        machine.lives += 1
        machine.log.life = self
        super().__init__(
            machine.directory,
            disk=SteppedDisk(self.steps),
            store=machine.store,
            kind=SharedStore,
            wall_ms=machine.wall_ms,
            log=machine.log,
            seed=machine.seed,
            node_id=NODE,
            cluster_id=CLUSTER,
            copy_max_ms=5_000,
            task_interval_ms=5_000,
            **settings,
        )
        assert isinstance(self.storage, SharedStore)
        self.storage.life = self
        self.port = LateTopicPort(machine.topic, self)
        manager = TopicBasedRemoteLogMetadataManager(
            port_factory=lambda settings: self.port,
            store_factory=lambda settings, count: machine.cache or MemoryStore(),
            clock=self.clock,
            rng=SeededRng(machine.seed + 1),
            threaded=False,
        )
        manager.configure(
            {
                "node.id": str(NODE),
                "cluster.id": CLUSTER,
                "log.dir": "/nowhere",
                "bootstrap.servers": "nowhere:1",
            }
        )
        self.manager = manager
        self.metadata = TurningManager(manager, self)  # type: ignore[assignment]

    def configure(self) -> None:
        """Nothing yet: the manager is made first."""

    def live(self, seconds: int = 4, *, down: bool = False) -> "Life":
        """Start, own the partition, and continue for so long; raises where it dies.

        Args:
            seconds: on its own clock.
            down: its store does not answer, until somebody says otherwise.
        """
        super().configure()
        self.storage.down = down
        assert self.ask(Connect()).message == Ack()
        self.assign()
        self.proceed(seconds)
        return self

    def is_elected(self) -> None:
        """The broker names another leader epoch to the tier that runs."""
        self.assign()
        self.proceed(4)

    def proceed(self, seconds: int) -> None:
        for _ in range(seconds * 2):
            self.scheduler.advance(500)
            self.pump()
        self.machine.wall_ms = self.clock.wall_ms()

    def stop(self) -> None:
        assert self.ask(Stop(), 3_000).message == Ack()
        self.machine.wall_ms = self.clock.wall_ms()

    def pump(self) -> None:
        idle = 0
        while idle < ROUNDS_WITHOUT_NEWS:
            news = bool(self.link.pump()) | bool(self.workers.turn()) | bool(self.port.waiting)
            self.manager.turn()
            idle = 0 if news else idle + 1

    def buried(self, *, lands: bool) -> None:
        """The process is gone; what it had sent to the topic lands now, or never."""
        machine = self.machine
        machine.wall_ms = self.clock.wall_ms() + 1
        machine.log.life = None
        ghost = self.port.orphan_waiting()
        if lands:
            ghost.land_waiting()
        machine.pairs += self.own_pairs

    @property
    def is_unhealthy(self) -> bool:
        """As health said last."""
        said = [each for each in self.told if isinstance(each, Health)]
        return bool(said and said[-1].unhealthy)

    @property
    def reasons(self) -> list[str]:
        said = [each for each in self.told if isinstance(each, Health)]
        return [each.reason for each in said[-1].unhealthy] if said else []

    # -- what is checked where it happens

    def sends(self, event: Any) -> None:
        fence = event.stamp.fence
        must(fence not in self.machine.pairs, f"{fence} was taken by a life before")
        must(event.stamp.log_start <= self.machine.log.checkpointed_log_start, "not on the disk")
        self.own_pairs.add(fence)

    def may_write_store(self) -> None:
        found = claim_of(self.machine)
        must(found in self.machine.claimed, f"{found} is the claim of a copy, or of nobody")
        must(self.machine.log.verdict is Validation.SOUND, "the partition is unhealthy")
        must("copied through" in self.steps.names, "the store is written before it is validated")
        self.must_be_owner()

    def must_be_owner(self) -> None:
        """The barrier of this life lies in the topic, and was read back."""
        read = self.machine.topic.logs[0][: self.port.read_end]
        pairs = {records.decode(each.value).stamp.fence for each in read if each.value is not None}
        must(bool(pairs & self.own_pairs), "no barrier of this life was read back")


def plugin_of(store: Path) -> LocalFsRemoteStorageManager:
    plugin = LocalFsRemoteStorageManager()
    plugin.configure({"dir": str(store)})
    return plugin


def claim_of(machine: Machine) -> int | None:
    """What lies in the store."""
    return plugin_of(machine.store).read_claim(CLUSTER, NODE)


def objects_of(machine: Machine) -> set[str]:
    """Every object of a segment."""
    return {
        str(path)
        for path in machine.store.rglob("*")
        if path.is_file() and "claims" not in path.parts
    }


def stopped(root: Path) -> Machine:
    """A machine that has copied all there is, and was stopped cleanly."""
    machine = Machine(root / "data", root / "store")
    machine.log.fill(2)
    life = Life(machine).live()
    machine.log.expire_local()
    life.stop()
    life.buried(lands=True)
    machine.log.restart()
    return machine
