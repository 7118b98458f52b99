"""A metadata topic in this process that a test can delay, drop, cut and reorder.

Each port is one writer. What it appends waits in its queue while it is held, and lands in the
order of the calls. Across writers the test decides what lands first: so a deposed owner's record
comes late here as in the field.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlmm.store import Position
from rlmm.topic_based.topic_port import (
    Appended,
    AppendFailed,
    AppendResult,
    Diverged,
    ReachedEnd,
    TopicEvent,
    TopicRecord,
    TopicUnavailableError,
    Unreadable,
    damaged,
)
from runtime.health_reasons import HEALTHY, HealthText


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record in the log, with the leader epoch under which it was appended."""

    leader_epoch: int
    value: bytes | None


@dataclass(slots=True)
class _Waiting:
    partition: int
    value: bytes
    on_done: Callable[[AppendResult], None] | None


class MemoryTopic:
    """The topic: logs, leader epochs, and whether anybody answers.

    Attributes:
        logs: records of each partition.
        exists: False: nobody has created it yet.
        answers: False: its brokers are gone for now.
        damaged: by partition, the offset of a record that cannot be read.
    """

    def __init__(self, partition_count: int = 1) -> None:
        self.logs: list[list[StoredRecord]] = [[] for _ in range(partition_count)]
        self.leader_epochs = [0] * partition_count
        self.exists = True
        self.answers = True
        self.damaged: dict[int, int] = {}

    def port(self) -> "MemoryPort":
        """A client of its own."""
        return MemoryPort(self)

    def land(self, partition: int, value: bytes | None) -> int:
        """Append a record; returns its offset."""
        log = self.logs[partition]
        log.append(StoredRecord(self.leader_epochs[partition], value))
        return len(log) - 1

    def lose(self, partition: int, end: int) -> None:
        """An unclean end: records at and above `end` are gone, a new leader epoch begins."""
        del self.logs[partition][end:]
        self.leader_epochs[partition] += 1

    def confirms(self, partition: int, position: Position) -> bool:
        """Whether what was read up to `position` is this log."""
        log = self.logs[partition]
        if position.offset == 0:
            return True
        return (
            position.offset <= len(log)
            and log[position.offset - 1].leader_epoch == position.leader_epoch
        )


class MemoryPort:
    """One client of a MemoryTopic; see TopicPort.

    Attributes:
        held: while True appends wait in `waiting`.
        silent: while True appends that land are never reported.
        deaf: while True nothing is read.
        tells_ends: while False questions for the end of a log fail.
        read_max: records that one poll may give.
        wait_ms: how long the last poll might have waited.
        failure: None, unless a test says otherwise.
    """

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic
        self._positions: dict[int, Position] = {}
        self._at_end: dict[int, int] = {}
        self._results: deque[Callable[[], None]] = deque()
        self.waiting: deque[_Waiting] = deque()
        self.held = False
        self.silent = False
        self.deaf = False
        self.tells_ends = True
        self.read_max = 1_000
        self.wait_ms = 0
        self.closed = False
        self.failure: str | None = None

    @property
    def assigned(self) -> set[int]:
        """Partitions being read."""
        return set(self._positions)

    def connect(self) -> int:
        """See TopicPort."""
        if not (self._topic.exists and self._topic.answers):
            raise TopicUnavailableError("the topic is not there")
        return len(self._topic.logs)

    def assign(self, positions: Mapping[int, Position]) -> None:
        """See TopicPort."""
        self._positions = dict(positions)
        self._at_end = {}

    def append(self, partition: int, value: bytes, on_done: Callable[[AppendResult], None]) -> None:
        """See TopicPort."""
        self.waiting.append(_Waiting(partition, value, on_done))
        if not self.held:
            self.land_waiting()

    def land_waiting(self, count: int | None = None) -> None:
        """Let the oldest waiting appends land; all of them without `count`."""
        for _ in range(len(self.waiting) if count is None else count):
            entry = self.waiting.popleft()
            offset = self._topic.land(entry.partition, entry.value)
            if not self.silent:
                self._report(entry, Appended(offset))

    def drop_waiting(self, *, maybe_written: bool = True) -> None:
        """Waiting appends never land.

        Their writer is told that nobody knows, or that they failed.
        """
        while self.waiting:
            self._report(self.waiting.popleft(), AppendFailed("dropped by the test", maybe_written))

    def orphan_waiting(self) -> "MemoryPort":
        """The writer dies; what it had sent continues by itself. Returns a port that holds it."""
        ghost = MemoryPort(self._topic)
        ghost.held = ghost.silent = True
        ghost.waiting = deque(_Waiting(w.partition, w.value, None) for w in self.waiting)
        self.waiting.clear()
        return ghost

    def refused(self) -> HealthText:
        """See TopicPort; never."""
        return HEALTHY

    def ask_end(self, partition: int, on_done: Callable[[int | None], None]) -> None:
        """See TopicPort; a deaf port is answered."""
        is_told = self._topic.answers and self.tells_ends
        end = len(self._topic.logs[partition]) if is_told else None
        self._results.append(lambda: on_done(end))

    def poll(self, timeout_ms: int) -> list[TopicEvent]:
        """See TopicPort; never waits."""
        self.wait_ms = timeout_ms
        while self._results:
            self._results.popleft()()
        events: list[TopicEvent] = []
        if self.deaf or not self._topic.answers:
            return events
        for partition, position in list(self._positions.items()):
            if not self._topic.confirms(partition, position):
                del self._positions[partition]
                events.append(Diverged(partition, "the log was cut"))
                continue
            log = self._topic.logs[partition]
            bad = self._topic.damaged.get(partition, len(log))
            for offset in range(position.offset, min(bad, position.offset + self.read_max)):
                epoch = log[offset].leader_epoch
                events.append(TopicRecord(partition, offset, epoch, log[offset].value))
                self._positions[partition] = Position(offset + 1, epoch)
            end = self._positions[partition].offset
            if end == bad < len(log):
                events.append(Unreadable(partition, damaged(partition, end)))
            if end == len(log) and self._at_end.get(partition) != end:
                self._at_end[partition] = end
                events.append(ReachedEnd(partition, end))
        return events

    def close(self) -> None:
        """See TopicPort."""
        self.closed = True

    def _report(self, entry: _Waiting, result: AppendResult) -> None:
        if entry.on_done is not None:
            on_done = entry.on_done
            self._results.append(lambda: on_done(result))
