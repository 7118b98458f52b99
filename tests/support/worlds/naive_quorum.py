"""A quorum that is one list in memory, with its controller: elects, commits and deposes when told.

The log is a list of batches. What is proposed is committed after `commit_delay_ms`, or when a test
says so; a new leader elsewhere may cut what is not committed, or keep it and commit it later.
Everything committed is replayed by a loader of the quorum's own, as every other node would do it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka_protocol.errors import KafkaError
from kafka_protocol.records.control import control_batch, leader_change
from metadata_topic.controller.errors import TopicExistsError
from metadata_topic.controller.result import ControllerResult, Decided
from metadata_topic.image.image import EMPTY_IMAGE, METADATA_VERSION, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.quorum.active.controller_loop import ControllerLoop
from metadata_topic.quorum.active.controller_metrics import ControllerMetrics
from metadata_topic.quorum.active.decisions import Done, Failed, Outcome
from metadata_topic.quorum.active.ports import Audience, ControllerSettings, ControllerWorld
from metadata_topic.quorum.log.batches import data_batch, read_batches
from metadata_topic.raft.effects import RoleChanged
from metadata_topic.raft.messages import BatchFacts
from metadata_topic.raft.roles import Role
from tests.support.sim.ports import simulated

R = TypeVar("R")
ME, OTHER = 1, 2
BOOTSTRAP = (make("FeatureLevelRecord", name=METADATA_VERSION, feature_level=30),)
PLAIN = ControllerSettings(append_linger_ms=0, max_idle_interval_ms=0, bootstrap=BOOTSTRAP)


@dataclass
class Answer:
    """What one caller heard, and when; empty until then."""

    outcomes: list[Outcome[Any]] = field(default_factory=list)

    def __call__(self, outcome: Outcome[Any]) -> None:
        self.outcomes.append(outcome)

    @property
    def is_there(self) -> bool:
        return bool(self.outcomes)

    @property
    def response(self) -> Any:
        (outcome,) = self.outcomes
        assert isinstance(outcome, Done), outcome
        return outcome.response

    @property
    def code(self) -> int:
        """The error's code, 0 for a response."""
        (outcome,) = self.outcomes
        if isinstance(outcome, Failed):
            return int(getattr(outcome.error, "code", -1))
        return 0


class NaiveQuorum:
    """See the module.

    Attributes:
        batches: the log.
        committed, applied: ends (exclusive).
        appends: (base offset, end offset) of what the controller proposed, one entry each time.
        resignations: reasons the controller gave.
        fault: raised by the next propose, after half of the append.
        shortage: raised by the next propose, which writes nothing.
        refuses: propose says no.
        audience: who listens.
    """

    def __init__(
        self, settings: ControllerSettings = PLAIN, *, commit_delay_ms: int | None = 1
    ) -> None:
        self.ports = simulated(3)
        self.commit_delay_ms = commit_delay_ms
        self.batches: list[tuple[BatchFacts, bytes]] = []
        self.committed = self.applied = self.epoch = 0
        self.is_leader = False
        self.appends: list[tuple[int, int]] = []
        self.resignations: list[str] = []
        self.fault: Exception | None = None
        self.shortage: KafkaError | None = None
        self.refuses = False
        self.audience = Audience()
        self.loader = ImageLoader(EMPTY_IMAGE)
        self.image = EMPTY_IMAGE
        self.world = ControllerWorld(
            log=self,
            clock=self.ports.clock,
            scheduler=self.ports.scheduler,
            settings=settings,
            metrics=ControllerMetrics(self.ports.metrics, self.ports.clock),
            resign=self.resignations.append,
            audience=lambda: self.audience,
        )
        self.loop = ControllerLoop(self.world)

    # -- the log, as the controller sees it -----------------------------------------------------

    def propose(self, batches: tuple[BatchFacts, ...], data: bytes | bytearray, epoch: int) -> bool:
        if self.refuses or not self.is_leader or epoch != self.epoch:
            return False
        if batches[0].base_offset != self.log_end():
            return False
        if self.shortage is not None:
            shortage, self.shortage = self.shortage, None
            raise shortage
        parts = list(read_batches(data))
        assert [
            BatchFacts(p.header.base_offset, p.header.last_offset + 1, epoch) for p in parts
        ] == list(batches)
        position = 0
        for facts, part in zip(batches, parts, strict=True):
            end = position + part.header.size_bytes
            self.batches.append((facts, bytes(data[position:end])))
            position = end
            if self.fault is not None:
                fault, self.fault = self.fault, None
                raise fault
        self.appends.append((batches[0].base_offset, batches[-1].end_offset))
        self._commit_later()
        return True

    def log_end(self) -> int:
        return self.batches[-1][0].end_offset if self.batches else 0

    def must_flush(self, _more_bytes: int) -> bool:
        return False

    def flushed_end(self) -> int:
        return self.committed

    # -- what a test does -----------------------------------------------------------------------

    def elect(self, *, commit: bool = True) -> None:
        """This node wins the next epoch and opens it."""
        self.is_leader = True
        self.epoch += 1
        start = self.log_end()
        self._open_epoch(ME)
        self.loop.on_role(RoleChanged(Role.LEADER, self.epoch, ME, start))
        if commit:
            self.commit()

    def depose(self, *, keep_until: int | None = None) -> None:
        """Another node wins the next epoch; what lies at and after `keep_until` is cut."""
        keep = self.committed if keep_until is None else max(keep_until, self.committed)
        self.batches = [one for one in self.batches if one[0].end_offset <= keep]
        self.is_leader = False
        self.epoch += 1
        self._open_epoch(OTHER)
        self.loop.on_role(RoleChanged(Role.FOLLOWER, self.epoch, OTHER, None))

    def write_elsewhere(self, records: Sequence[MetadataRecord]) -> None:
        """The leader of the moment, another node, appends a batch."""
        assert not self.is_leader
        self._write(data_batch(records, base_offset=self.log_end(), epoch=self.epoch, **self._at()))

    def write_control(self) -> None:
        """The quorum itself appends a control batch in the epoch of the moment."""
        self._open_epoch(ME)

    def _open_epoch(self, leader_id: int) -> None:
        entries = [leader_change(leader_id, (ME, OTHER), (leader_id,))]
        self._write(
            control_batch(
                entries, base_offset=self.log_end(), leader_epoch=self.epoch, **self._at()
            )
        )

    def _at(self) -> dict[str, int]:
        return {"timestamp_ms": self.ports.clock.wall_ms()}

    def _write(self, data: bytearray) -> None:
        (part,) = read_batches(data)
        facts = BatchFacts(part.header.base_offset, part.header.last_offset + 1, self.epoch)
        self.batches.append((facts, bytes(data)))

    def _commit_later(self) -> None:
        if self.commit_delay_ms is None:
            return
        end, epoch = self.log_end(), self.epoch

        def commit() -> None:
            if epoch == self.epoch:
                self.commit(end)

        if self.commit_delay_ms == 0:
            commit()
        else:
            self.ports.scheduler.call_later(self.commit_delay_ms, commit)

    def commit(self, end_offset: int | None = None, *, apply: bool = True) -> None:
        """The high watermark rises to `end_offset`, the log's end unless said."""
        end_offset = self.log_end() if end_offset is None else end_offset
        if end_offset > self.committed:
            self.committed = end_offset
            self.loop.on_committed(end_offset)
        if apply:
            self.apply()

    def apply(self) -> None:
        """Readers of this node see what is committed."""
        if self.applied == self.committed:
            return
        for facts, data in self.batches:
            if self.applied <= facts.base_offset and facts.end_offset <= self.committed:
                replay_batch(self.loader, data)
        self.applied = self.committed
        self.image, _ = self.loader.take()
        self.loop.on_applied(self.image, self.applied)

    def run(self, ms: int = 10) -> None:
        """Let time pass."""
        self.ports.scheduler.advance(ms)

    def submit(
        self, decide: Callable[[MetadataImage], Decided[R]], *, timeout_ms: int = 1_000
    ) -> Answer:
        """Ask the controller."""
        answer = Answer()
        self.loop.submit(decide, answer, timeout_ms=timeout_ms)
        return answer

    def replayed(self, end_offset: int) -> MetadataImage:
        """The image of another node that reads the log from its beginning to `end_offset`."""
        loader = ImageLoader(EMPTY_IMAGE)
        for facts, data in self.batches:
            if facts.end_offset <= end_offset:
                replay_batch(loader, data)
        return loader.take()[0]

    @property
    def ends_in_transaction(self) -> bool:
        """Whether the log ends inside of a metadata transaction."""
        loader = ImageLoader(EMPTY_IMAGE)
        for _, data in self.batches:
            replay_batch(loader, data)
        return loader.in_transaction

    def value(self, name: str) -> float:
        """One of the controller's metrics."""
        (found,) = [one.value for one in self.ports.metrics.samples() if one.name == name]
        return found


def replay_batch(loader: ImageLoader, data: bytes) -> None:
    """Add a batch to a loader."""
    for batch in read_batches(data):
        for record in batch.records:
            loader.add(record)
        header = batch.header
        loader.end_of_batch(
            Provenance(header.last_offset, header.partition_leader_epoch, header.max_timestamp)
        )


def id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


def topic(name: str) -> MetadataRecord:
    return make("TopicRecord", name=name, topic_id=id_of(name))


def creating(*names: str) -> Any:
    """A decision that makes topics, or refuses because one is there."""

    def decide(image: MetadataImage) -> ControllerResult[str]:
        for name in names:
            if name in image.topics_by_name:
                raise TopicExistsError(name)
        return ControllerResult(tuple(topic(name) for name in names), "made " + ",".join(names))

    return decide


def asking(image: MetadataImage) -> ControllerResult[tuple[str, ...]]:
    """A decision without records, whose answer rests on others."""
    return ControllerResult((), tuple(image.topics_by_name))


def serving(
    settings: ControllerSettings = PLAIN, *, commit_delay_ms: int | None = 1
) -> NaiveQuorum:
    quorum = NaiveQuorum(settings, commit_delay_ms=commit_delay_ms)
    quorum.elect()
    quorum.run(settings.append_linger_ms + 1)
    quorum.commit()
    assert quorum.loop.is_active
    return quorum


def names(image: MetadataImage) -> list[str]:
    return sorted(image.topics_by_name)
