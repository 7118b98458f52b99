"""The one metadata topic of all tiers: a record lands late, and each tier reads it later still."""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from rlmm.store import Position
from rlmm.topic_based.topic_port import (
    Appended,
    AppendResult,
    Diverged,
    ReachedEnd,
    TopicEvent,
    TopicRecord,
)
from tests.support.tier.memory_topic import MemoryPort, MemoryTopic

if TYPE_CHECKING:
    from tests.support.replication_world.tier_process import TierProcess
    from tests.support.replication_world.world import ReplicationWorld

PARTITIONS = 2
LATE = 0.02
LATE_US = 1_500_000
"""So late comes a record now and then, and all that its writer sends after it."""
LOST_WITH_WRITER = 0.5


class WorldTopic(MemoryTopic):
    """See the module.

    Attributes:
        on_land: told of each record, by (partition, offset).
        on_lost: told of the end at which a partition was cut.
        writer: of the record that lands.
    """

    def __init__(self, world: "ReplicationWorld") -> None:
        super().__init__(PARTITIONS)
        self.world = world
        self.rng = Random(f"replication-topic-{world.plan.seed}")
        self.on_land: Callable[[int, int], None] = lambda partition, offset: None
        self.on_lost: Callable[[int, int], None] = lambda partition, end: None
        self.writer: TierProcess | None = None
        self._ports: list[WorldPort] = []

    def port_of(self, process: "TierProcess") -> "WorldPort":
        """A client of a tier process."""
        self._ports = [one for one in self._ports if not one.process.has_ended]
        port = WorldPort(self, process)
        self._ports.append(port)
        return port

    def land(self, partition: int, value: bytes | None) -> int:
        offset = super().land(partition, value)
        self.on_land(partition, offset)
        for port in self._ports:
            port.will_see(partition, offset + 1)
        return offset

    def lose(self, partition: int, end: int) -> None:
        """See MemoryTopic; whoever reads it finds out at once."""
        super().lose(partition, end)
        self.on_lost(partition, end)
        for port in self._ports:
            port.process.later(self.world.now_us, port.turn)

    def pause_us(self) -> int:
        """Until a record is a step further."""
        mean = LATE_US if self.world.is_disturbed and self.rng.random() < LATE else 4_000
        return 100 + int(2 * mean * self.rng.random())


class WorldPort(MemoryPort):
    """One tier process's client.

    Attributes:
        turn: called when there is something to poll for.
    """

    def __init__(self, topic: WorldTopic, process: "TierProcess") -> None:
        super().__init__(topic)
        self.world_topic, self.process = topic, process
        self.turn: Callable[[], None] = lambda: None
        self._visible = [len(log) for log in topic.logs]
        self._lands_us = 0
        self._sees_us = 0
        self._is_cut_off = False

    def append(self, partition: int, value: bytes, on_done: Callable[[AppendResult], None]) -> None:
        """It lands, though its writer may have ended by then; in the order it was sent."""
        topic = self.world_topic
        self._lands_us = max(self._lands_us, topic.world.now_us + topic.pause_us())
        topic.world.at(self._lands_us, self._lands, partition, value, on_done)

    def _lands(self, partition: int, value: bytes, on_done: Callable[[AppendResult], None]) -> None:
        topic = self.world_topic
        if self.process.has_ended:
            self._is_cut_off |= topic.rng.random() < LOST_WITH_WRITER
        if self._is_cut_off:
            return
        topic.writer = self.process
        offset = topic.land(partition, value)
        answer_us = topic.world.now_us + topic.pause_us()
        self.process.later(answer_us, lambda: self._hears(lambda: on_done(Appended(offset))))

    def ask_end(self, partition: int, on_done: Callable[[int | None], None]) -> None:
        topic = self.world_topic
        end = len(topic.logs[partition])
        answer_us = topic.world.now_us + topic.pause_us()
        self.process.later(answer_us, lambda: self._hears(lambda: on_done(end)))

    def _hears(self, result: Callable[[], None]) -> None:
        self._results.append(result)
        self.turn()

    def will_see(self, partition: int, end: int) -> None:
        """A record has landed."""
        topic = self.world_topic
        self._sees_us = max(self._sees_us, topic.world.now_us + topic.pause_us())
        self.process.later(self._sees_us, lambda: self._sees(partition, end))

    def _sees(self, partition: int, end: int) -> None:
        self._visible[partition] = max(self._visible[partition], end)
        self.turn()

    def assign(self, positions: Mapping[int, Position]) -> None:
        super().assign(positions)
        self.process.later(self.world_topic.world.now_us, self.turn)

    def poll(self, timeout_ms: int) -> list[TopicEvent]:
        self.wait_ms = timeout_ms
        while self._results:
            self._results.popleft()()
        events: list[TopicEvent] = []
        for partition, position in list(self._positions.items()):
            if not self.world_topic.confirms(partition, position):
                del self._positions[partition]
                events.append(Diverged(partition, "the log was cut"))
                continue
            log = self.world_topic.logs[partition]
            end = min(self._visible[partition], len(log))
            for offset in range(position.offset, end):
                stored = log[offset]
                events.append(TopicRecord(partition, offset, stored.leader_epoch, stored.value))
                self._positions[partition] = Position(offset + 1, stored.leader_epoch)
            if self._at_end.get(partition) != end:
                self._at_end[partition] = end
                events.append(ReachedEnd(partition, end))
        return events
