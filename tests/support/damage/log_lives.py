"""The logs of one broker through many lives, each ended by a power cut or a clean stop.

What was promised is kept beside them: a topic that `create` returned, what `flush` returned for,
the log start whose checkpoint returned, a topic that `delete` returned for. What was under way when
the power went may be either way.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_protocol.errors import KafkaError
from kafka_protocol.records.batch import BatchHeader, iter_batches
from kafka_protocol.records.records import build_batch, iter_records
from kafka_protocol.types import ZERO_UUID, TopicPartition
from local_log.config import LogConfig
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_to
from local_log.manager.log_dirs import LogManager
from runtime.disk import Disk
from tests.support.sim.ports import simulated
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.worlds.local_log import read_bytes

CONFIG = LogConfig(
    segment_bytes=1200,
    index_interval_bytes=200,
    segment_index_bytes=1200,
    retention_bytes=4000,
    file_delete_delay_ms=1000,
)


@dataclass
class Topic:
    """What was promised of one topic.

    Attributes:
        values: what each offset was given, the newest last. A cut of the log's end is not fsynced:
            an older record may come back, which its older epoch gives away.
        flushed: below it (exclusive) nothing may be lost.
        start: no record below it may be seen again.
        start_seen: the largest log start so far. What retention has dropped may come back, and the
            epoch chain need not say anything of it.
        unsure: create or delete was under way: it may be there or not.
    """

    id: bytes
    values: dict[int, list[bytes]] = field(default_factory=dict)
    flushed: int = 0
    start: int = 0
    start_seen: int = 0
    unsure: bool = False
    sequence: int = 0

    def flush(self, end: int) -> None:
        self.flushed = end
        self.values = {at: given[-1:] for at, given in self.values.items() if at < end}


class LogLives:
    """See the module."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.ports = simulated(seed)
        self.topics: dict[str, Topic] = {}
        self.life = 0
        self.counter = 0

    def below(self, end: int) -> int:
        """A number in [0, end)."""
        return int(self.ports.rng.random() * end)

    def manager(self, disk: Disk) -> LogManager:
        return LogManager(
            [self.directory],
            lambda _topic: CONFIG,
            replace(self.ports, disk=disk),
        )

    def live(self, operations: int | None) -> bool:
        """One life: start, check, change things, lose power in that operation; False: it did not.

        A life without operations ends with a clean stop.
        """
        self.life += 1
        disk = PowerCutDisk(self.directory, self.ports.rng, operations)
        manager = self.manager(disk)
        try:
            manager.load()
            self.check(manager)
            for _ in range(60):
                self.change(manager)
            manager.close()
        except (PowerCutError, KafkaError):
            assert disk.is_off
        for log in manager.all():
            topic = self.topics.get(log.topic)
            if topic is not None:
                topic.start_seen = max(topic.start_seen, log.log_start_offset)
        return disk.is_off

    # -- changes

    def change(self, manager: LogManager) -> None:
        self.ports.clock.advance(self.below(300))
        name = f"topic{self.below(3)}"
        log = manager.get(TopicPartition(name, 0))
        draw = self.ports.rng.random()
        if log is None:
            self.create(manager, name)
        elif draw < 0.60:
            self.append(name, log)
        elif draw < 0.70:
            log.flush()
            self.topics[name].flush(log.log_end_offset)
        elif draw < 0.76:
            log.update_high_watermark(log.log_end_offset)
            self.raise_start(manager, name, log)
        elif draw < 0.93:
            self.housekeeping(manager)
        elif draw < 0.96:
            self.truncate(name, log)
        elif draw < 0.98:
            log.roll(self.ports.clock.wall_ms())
        else:
            self.delete(manager, name)

    def housekeeping(self, manager: LogManager) -> None:
        """What a broker does from time to time for all logs."""
        for log in manager.all():
            log.update_high_watermark(log.log_end_offset)
        match self.below(4):
            case 0:
                manager.run_retention(self.ports.clock.wall_ms())
            case 1:
                manager.run_deletions()
            case 2:
                manager.checkpoint_recovery_points()
            case 3:
                manager.checkpoint_high_watermarks()

    def create(self, manager: LogManager, name: str) -> None:
        topic = self.topics[name] = Topic(self.ports.rng.uuid(), unsure=True)
        manager.create(name, 0, topic.id)
        topic.unsure = False

    def delete(self, manager: LogManager, name: str) -> None:
        self.topics[name].unsure = True
        manager.delete(TopicPartition(name, 0))
        del self.topics[name]

    def append(self, name: str, log: PartitionLog) -> None:
        topic = self.topics[name]
        count = 1 + self.below(3)
        values = []
        for _ in range(count):
            self.counter += 1
            values.append(b"%d/%s" % (self.counter, b"v" * self.below(90)))
        batch = build_batch(
            [(self.ports.clock.wall_ms(), None, value, []) for value in values],
            producer_id=self.life,
            producer_epoch=0,
            base_sequence=topic.sequence,
        )
        for number, value in enumerate(values):
            topic.values.setdefault(log.log_end_offset + number, []).append(value)
        topic.sequence += count
        log.append_as_leader(batch, leader_epoch=self.life, now_ms=self.ports.clock.wall_ms())

    def raise_start(self, manager: LogManager, name: str, log: PartitionLog) -> None:
        topic = self.topics[name]
        span = log.log_end_offset - log.log_start_offset
        wanted = log.log_start_offset + self.below(span + 1)
        if self.ports.rng.random() < 0.5:  # where a segment begins
            bases = [
                s.base_offset for s in log.segments.all if s.base_offset > log.log_start_offset
            ]
            wanted = bases[self.below(len(bases))] if bases else wanted
        log.raise_log_start(wanted)
        manager.checkpoint_log_starts()
        topic.start = max(topic.start, wanted)

    def truncate(self, name: str, log: PartitionLog) -> None:
        """As a follower does whose leader lost records; what went counts as lost."""
        topic = self.topics[name]
        if log.log_end_offset <= log.log_start_offset + 1:
            return
        end = max(log.log_end_offset - 1 - self.below(10), log.log_start_offset)
        topic.flushed = min(topic.flushed, end - 3)  # a batch is not split
        topic.sequence = 0
        truncate_to(log, end)
        self.life += 1  # another epoch and another producer

    # -- what must be so

    def check(self, manager: LogManager) -> None:
        for directory in manager.dirs:
            assert directory.failure is None, directory.failure
        for name, topic in list(self.topics.items()):
            log = manager.get(TopicPartition(name, 0))
            if log is None or log.topic_id != topic.id:
                refused = [one.reason for one in manager.refused.values()]
                assert topic.unsure, f"{name} is gone; refused: {refused}"
                if log is not None:  # its directory, not yet its id
                    assert log.topic_id == ZERO_UUID
                    assert log.log_end_offset == 0
                    manager.delete(log.topic_partition)
                del self.topics[name]
                continue
            topic.unsure = False
            self.check_log(name, topic, log)
        there = {log.topic for log in manager.all()}
        assert there <= set(self.topics), f"came back: {there - set(self.topics)}"

    def check_log(self, name: str, topic: Topic, log: PartitionLog) -> None:
        start, end = log.log_start_offset, log.log_end_offset
        assert end >= topic.flushed, f"{name}: {end} is the end, {topic.flushed} was flushed"
        assert start >= topic.start, f"{name}: {start} is the start, {topic.start} was promised"
        found: dict[int, bytes] = {}
        last: tuple[BatchHeader, bytes] | None = None
        offset = start
        while offset < end:
            data = read_bytes(log, offset, 1 << 20)
            assert data, f"{name}: nothing at {offset}, the log ends at {end}"
            for position, header in iter_batches(data):
                batch = data[position : position + header.size_bytes]
                found |= {r.offset: r.value or b"" for r in iter_records(data, position)}
                at = max(header.base_offset, topic.start_seen, start)
                epoch = log.epochs.epoch_for(at)
                assert at > header.last_offset or epoch == header.partition_leader_epoch, (
                    f"{name}: the batch at {header.base_offset} has epoch "
                    f"{header.partition_leader_epoch}, the chain says {epoch}"
                )
                last, offset = (header, batch), header.next_offset
        found = {at: value for at, value in found.items() if at >= start}
        assert list(found) == list(range(start, end)), f"{name}: a hole"
        for at, value in found.items():
            assert value in topic.values.get(at, ()), f"{name}: another record at {at}"
        if last is not None and last[0].base_offset >= start:
            again = bytearray(8) + last[1][8:]  # as its producer sent it: from offset 0
            info = log.append_as_leader(
                again, leader_epoch=self.life, now_ms=self.ports.clock.wall_ms()
            )
            assert info.is_duplicate, f"{name}: the last batch was taken twice"
        topic.values = {at: [value] for at, value in found.items()}
        topic.flushed = end
        topic.sequence = 0
