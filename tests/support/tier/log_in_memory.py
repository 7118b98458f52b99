"""A broker's log in memory, and a tier that can be killed between any two steps: for tests."""

import io
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker.replica.validation import Validation, Verdict, after
from kafka_protocol.files import epoch_checkpoint, offset_index, producer_snapshot, time_index
from kafka_protocol.records.batch import read_header
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlm.link.endpoint import LinkFailureError
from rlm.link.messages import (
    CLOSED_SEGMENTS_MAX,
    ClosedLocalSegment,
    CopiedThrough,
    DescribeLog,
    Image,
    LogDescription,
    OpenedSegment,
    OpenSegment,
    RaiseLeaderEpoch,
    RaiseLogStart,
    Report,
    RestoreChain,
)
from rlm.maintenance.broker_port import OpenedFiles
from rlm.maintenance.effects import Effect, PassResult, Task
from rlm.maintenance.ownership import OwnCopies, Ownership
from rlm.maintenance.performer import Performer, World, run_task
from rlm.plugin_calls import Cancellation
from rlm.workers import COPIER_POOL, Done
from rlmm import lineage
from rlmm.api import Fence
from runtime.disk import Disk, OpenFile

SNAPSHOT = producer_snapshot.dump([])
PARTITION = TopicIdPartition(b"T" * 16, 0, "orders")


@dataclass
class LocalSegmentBytes:
    """One segment of a simulated log: whole batches, and the indexes that belong to them."""

    base_offset: int
    log: bytearray = field(default_factory=bytearray)
    offset_entries: bytearray = field(default_factory=bytearray)
    time_entries: bytearray = field(default_factory=bytearray)
    next_offset: int = 0
    max_timestamp_ms: int = -1

    def add(self, batch: bytes) -> None:
        header = read_header(batch)
        if self.log:  # as Kafka: the first batch of a segment has no entry
            relative = header.last_offset - self.base_offset
            self.offset_entries += offset_index.pack_entry(relative, len(self.log))
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            relative = header.last_offset - self.base_offset
            self.time_entries += time_index.pack_entry(header.max_timestamp, relative)
        self.log += batch
        self.next_offset = header.next_offset


class SimulatedBroker:
    """The broker's side of the tables, with one leader's log of one partition.

    Attributes:
        epoch_requests: what the controller was asked for; it gives an epoch when a test says so.
        epoch_in_vain: why it gives none.
        truth: the value that each (leader epoch, offset) was given, for ever.
        aborted: transaction indexes by the base offset of their segment.
        closed_shown_max: so many closed segments does a description name.
        questions: for descriptions.
    """

    def __init__(self, partition: TopicIdPartition = PARTITION, leader_epoch: int = 1) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.chain: list[EpochEntry] = [EpochEntry(leader_epoch, 0)]
        self.segments: list[LocalSegmentBytes] = [LocalSegmentBytes(0)]
        self.log_start = 0
        self.checkpointed_log_start = 0
        self.log_start_known = True
        self.has_no_entry = False
        self.chain_problem = ""
        self.verdict: Verdict = Validation.OPEN
        self.copied = -1
        self.last_stable: int | None = None
        self.truth: dict[tuple[int, int], bytes] = {}
        self.aborted: dict[int, bytes] = {}
        self.now_ms = 1_000
        self.reports: list[Report] = []
        self.moves: list[RaiseLogStart] = []
        self.epoch_requests: list[RaiseLeaderEpoch] = []
        self.epoch_in_vain = ""
        self.closed_shown_max = CLOSED_SEGMENTS_MAX
        self.topic_ids = [partition.topic_id]
        self.questions: list[DescribeLog] = []
        self._disk = Disk()

    # -- what clients and the broker do

    @property
    def end(self) -> int:
        return self.segments[-1].next_offset or self.segments[-1].base_offset

    @property
    def local_start(self) -> int:
        return self.segments[0].base_offset

    def append(self, count: int = 1, size_bytes: int = 20, timestamp_ms: int | None = None) -> None:
        for _ in range(count):
            offset = self.end
            value = b"%d/%d/" % (self.leader_epoch, offset)
            value += bytes((offset * 7 + i) % 251 for i in range(size_bytes))
            at = self.now_ms if timestamp_ms is None else timestamp_ms
            batch = build_batch(
                [(at, b"k%d" % offset, value, [])],
                base_offset=offset,
                leader_epoch=self.leader_epoch,
            )
            self.segments[-1].add(bytes(batch))
            self.truth[self.leader_epoch, offset] = value
            self.now_ms += 1

    def roll(self) -> None:
        if self.segments[-1].log:
            self.segments.append(LocalSegmentBytes(self.end, next_offset=self.end))

    def fill(self, segments: int, records: int = 3, size_bytes: int = 20) -> None:
        """That many closed segments and an empty active one."""
        for _ in range(segments):
            self.append(records, size_bytes)
            self.roll()

    def new_epoch(self, leader_epoch: int | None = None) -> None:
        """This broker is elected again: what was told before is forgotten."""
        self.leader_epoch = self.leader_epoch + 1 if leader_epoch is None else leader_epoch
        self.chain = [entry for entry in self.chain if entry.start_offset < self.end]
        self.chain.append(EpochEntry(self.leader_epoch, self.end))
        self.copied = -1

    def restart(self) -> None:
        """Killed: only what was checkpointed is left."""
        self.log_start = max(self.checkpointed_log_start, 0)
        self.new_epoch()

    def lose_chain(self, problem: str = "missing") -> None:
        """Started without the chain's file: all that is known is what local batches say."""
        self.chain, self.chain_problem = [], problem
        for epoch, offset in sorted(self.local_values(), key=lambda place: place[1]):
            if not self.chain or self.chain[-1].epoch != epoch:
                self.chain.append(EpochEntry(epoch, offset))

    def lose_log_start(self) -> None:
        """Started without the checkpoint of log starts."""
        self.log_start, self.log_start_known = self.local_start, False

    def cut_to(self, end: int) -> None:
        """The directory is an older copy, of a time when a segment ended at `end`."""
        assert end in [segment.base_offset for segment in self.segments], "a segment begins there"
        self.segments = [segment for segment in self.segments if segment.base_offset < end]
        self.segments.append(LocalSegmentBytes(end, next_offset=end))
        self.chain = [entry for entry in self.chain if entry.start_offset < end]

    def delete_records(self, offset: int) -> None:
        if not self.log_start_known:
            assert offset >= self.local_start, "refused: nobody knows what lies below"
        self.log_start = self.checkpointed_log_start = max(self.log_start, offset)
        self.log_start_known = True
        if self.log_start >= self.local_start:
            self.chain_problem = ""
        self._cut_chain()

    def _cut_chain(self) -> None:
        epoch = lineage.epoch_at(self.chain, self.log_start)
        kept = [entry for entry in self.chain if entry.start_offset > self.log_start]
        if epoch is not None:
            kept.insert(0, EpochEntry(epoch, self.log_start))
        self.chain = kept

    def expire_local(self, keep: int = 1) -> None:
        """Local retention: drop all closed segments but `keep` that the tier has, or are below."""
        while len(self.segments) > max(keep, 1):
            last = self.segments[1].base_offset - 1
            if last > self.copied and last >= self.log_start:
                return
            del self.segments[0]

    def local_values(self) -> dict[tuple[int, int], bytes]:
        return values_of(b"".join(bytes(segment.log) for segment in self.segments))

    # -- BrokerPort

    def _check(self, epoch: int) -> None:
        if epoch != self.leader_epoch:
            raise LinkFailureError(6, f"epoch {epoch} is over")

    def describe(self, question: DescribeLog) -> LogDescription:
        self.questions.append(question)
        self._check(question.leader_epoch)
        closed = [
            ClosedLocalSegment(
                segment.base_offset,
                self.segments[at + 1].base_offset - 1,
                len(segment.log),
                segment.max_timestamp_ms,
            )
            for at, segment in enumerate(self.segments[:-1])
        ]
        wanted = [each for each in closed if each.last_offset >= question.closed_from]
        below = closed[: len(closed) - len(wanted)]
        shown, more = wanted[: self.closed_shown_max], wanted[self.closed_shown_max :]
        return LogDescription(
            question.topic_id,
            question.partition,
            question.leader_epoch,
            log_start_offset=self.log_start,
            log_start_known=self.log_start_known,
            local_log_start_offset=self.local_start,
            last_stable_offset=self.end if self.last_stable is None else self.last_stable,
            high_watermark=self.end,
            chain=[(entry.epoch, entry.start_offset) for entry in self.chain],
            chain_problem=self.chain_problem if self.log_start < self.local_start else "",
            log_start_has_no_entry=self.has_no_entry,
            log_end_offset=self.end,
            closed_segments=shown,
            closed_from=question.closed_from,
            closed_bytes_below=sum(each.size_bytes for each in below),
            more_closed_count=len(more),
            more_closed_bytes=sum(each.size_bytes for each in more),
            local_bytes=sum(len(segment.log) for segment in self.segments),
            metadata_offset=7,
        )

    def open_segment(self, question: OpenSegment) -> OpenedFiles:
        self._check(question.leader_epoch)
        found = next(s for s in self.segments if s.base_offset == question.base_offset)
        aborted = self.aborted.get(found.base_offset)
        parts = [bytes(found.log), found.offset_entries, found.time_entries, SNAPSHOT]
        if aborted is not None:
            parts.append(aborted)
        answer = OpenedSegment(
            question.topic_id,
            question.partition,
            question.leader_epoch,
            base_offset=found.base_offset,
            size_bytes=len(found.log),
            transaction_index_is_there=aborted is not None,
            transaction_index_is_empty=not aborted,
            leader_epoch_index=epoch_checkpoint.dump(self.chain),
        )
        return OpenedFiles(answer, tuple(self._file(bytes(part)) for part in parts))

    def _file(self, data: bytes) -> OpenFile:
        file = self._disk.memfd("segment")
        self._disk.write_at(file, 0, data)
        return file

    def report(self, report: Report) -> bool:
        self._check(report.leader_epoch)
        self.reports.append(report)
        last_offset = -1
        if isinstance(report, CopiedThrough) and report.last_offset >= 0:
            last_offset = report.last_offset
            if lineage.epoch_at(self.chain, last_offset) != report.last_offset_epoch:
                return False
        self.copied = last_offset
        self.verdict = after(self.verdict, report)
        return True

    def raise_log_start(self, request: RaiseLogStart) -> bool:
        self._check(request.leader_epoch)
        if request.offset > self.end:
            return False
        self.moves.append(request)
        if request.offset > self.log_start or not self.log_start_known:
            self.log_start = request.offset
            self._cut_chain()
        self.log_start_known = True
        self.checkpointed_log_start = self.log_start
        return True

    def restore_chain(self, request: RestoreChain) -> bool:
        self._check(request.leader_epoch)
        chain = [EpochEntry(*entry) for entry in request.entries]
        if any(lineage.epoch_at(chain, at) != epoch for epoch, at in self.local_values()):
            return False
        self.chain, self.chain_problem = chain, ""
        return True

    def raise_leader_epoch(self, request: RaiseLeaderEpoch) -> str:
        self._check(request.leader_epoch)
        self.epoch_requests.append(request)
        return self.epoch_in_vain

    def image(self) -> Image:
        return Image(list(self.topic_ids), 7, "cluster")

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        """It keeps no list."""


def values_of(log: bytes) -> dict[tuple[int, int], bytes]:
    """Value of each (leader epoch, offset) in whole batches."""
    from kafka_protocol.records.batch import iter_batches
    from kafka_protocol.records.records import iter_records

    found = {}
    for position, header in iter_batches(log):
        for record in iter_records(log, position):
            found[header.partition_leader_epoch, record.offset] = bytes(record.value or b"")
    return found


class Killed(BaseException):
    """The tier process is gone."""


class SteppedTier:
    """One tier process of one partition, whose tasks run step by step and may be killed at any."""

    def __init__(self, world: World, fence: Fence, partition: TopicIdPartition = PARTITION) -> None:
        self.world = world
        self.ownership = Ownership(partition, fence, Cancellation(), OwnCopies(), set())
        self.steps = 0
        self.kill_at: int | None = None
        self.kill_before = False
        self.effects: list[Effect] = []

    def own(self) -> None:
        self.world.metadata.own(self.ownership.partition, self.ownership.fence).result(0)

    def run(self, task: Task[PassResult], pool: str = COPIER_POOL) -> PassResult:
        performer = Performer(self.world, self.ownership, pool)
        try:
            return run_task(task, self._killing(performer))
        finally:
            performer.end()

    def _killing(self, perform: Callable[[Effect], Any]) -> Callable[[Effect], Any]:
        def step(effect: Effect) -> Any:
            self.steps += 1
            self.effects.append(effect)
            if self.steps == self.kill_at and self.kill_before:
                raise Killed
            result = perform(effect)
            if self.steps == self.kill_at:
                raise Killed
            return result

        return step


class InlineWorkers:
    """Runs jobs when `turn` is called, oldest first; `done` is called after what a job posted."""

    def __init__(self) -> None:
        self.queue: list[tuple[str, Callable[[], None]]] = []
        self.held: set[str] = set()
        self.sizes: dict[str, int] = {}
        self.abandoned: list[str] = []
        self.pauses_ms: list[int] = []
        self.on_pause: Callable[[int], None] = lambda wait_ms: None

    def pause(self, wait: Callable[[int], object], wait_ms: int) -> None:
        self.pauses_ms.append(wait_ms)
        self.on_pause(wait_ms)

    def run(self, pool: str, job: Callable[[], Any], done: Done[Any]) -> None:
        def work() -> None:
            try:
                result = job()
            except Exception as error:
                self.post(partial(done, None, error))
            else:
                self.post(partial(done, result, None))

        self.queue.append((pool, work))

    def post(self, call: Callable[[], None]) -> None:
        self.queue.append(("post", call))

    def threads(self, pool: str) -> int:
        return self.sizes.get(pool, 10)

    def resize(self, pool: str, threads: int) -> None:
        self.sizes[pool] = threads

    def abandon(self, pool: str, thread_id: int) -> None:
        self.abandoned.append(pool)

    def queued(self, pool: str) -> int:
        return sum(1 for name, _ in self.queue if name == pool)

    def idle_share(self, pool: str) -> float:
        return 1.0

    def turn(self) -> int:
        """Run what may run, also such as that leads to; say how much it was."""
        count = 0
        while True:
            ready = next((each for each in self.queue if each[0] not in self.held), None)
            if ready is None:
                return count
            self.queue.remove(ready)
            ready[1]()
            count += 1


def stream_bytes(stream: io.BufferedIOBase) -> bytes:
    """Everything a plugin's stream gives."""
    with stream:
        return stream.read()
