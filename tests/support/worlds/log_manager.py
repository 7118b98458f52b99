"""A log manager on real directories that outlive it, with what the metadata would say."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    dump_meta_properties,
)
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dirs import LogManager
from local_log.manager.placement import TargetReplica
from runtime.disk import Disk, OpenFile
from runtime.executors import Pool
from tests.support.sim.clock import ManualClock
from tests.support.sim.executors import SimExecutors
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
from tests.support.worlds.local_log import NOW_MS, SMALL, append

ORDERS, ORDERS_1, BILLS = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("bills", 0),
)
IDS = {"orders": b"o" * 16, "bills": b"b" * 16}


class QuickDisk(FaultyDisk):
    """Fails when told to; the power never goes, so that the real disk is spared the work."""

    def fsync(self, file: OpenFile) -> None:
        self._check("fsync", file.path)

    def fsync_path(self, path: Path) -> None:
        self._check("fsync_path", path)


@dataclass
class Host:
    """Directories, and the settings and metadata under which a manager opens them.

    Attributes:
        wanted: what the metadata say; None for a name that they do not know.
        used: the manager of the last start.
    """

    root: Path
    dirs: int = 1
    disk: Disk = field(default_factory=QuickDisk)
    config: LogConfig = SMALL
    wanted: dict[TopicPartition, TargetReplica] | None = None

    def __post_init__(self) -> None:
        self.ports = simulated(clock=ManualClock(NOW_MS))
        self.clock, self.scheduler = self.ports.clock, self.ports.scheduler
        self.paths = [self.root / f"data-{index}" for index in range(self.dirs)]
        for index, path in enumerate(self.paths):
            if not path.exists():
                path.mkdir(parents=True)
                meta = MetaProperties("c" * 22, 1, self.id_of(index))
                (path / META_PROPERTIES).write_bytes(dump_meta_properties(meta))

    def id_of(self, index: int) -> bytes:
        return bytes([index + 1]) * 16

    def manager(self, disk: Disk | None = None, pool: Pool | None = None) -> LogManager:
        """One that has not looked at anything yet."""
        ports = replace(self.ports, disk=disk or self.disk, executors=SimExecutors(pool))
        return LogManager(self.paths, lambda _topic: self.config, ports)

    def start(self, *, set_aside: bool = True, **load: object) -> LogManager:
        manager = self.manager()
        wanted = self.wanted
        if wanted is None:
            manager.load(**load)  # type: ignore[arg-type]
        else:
            manager.load(wanted.get, **load)  # type: ignore[arg-type]
        if set_aside:
            manager.set_aside()
        return manager

    def assign(self, *partitions: TopicPartition, index: int = 0) -> None:
        """From the next start on the metadata know these, in directory `index`."""
        self.wanted = self.wanted or {}
        for tp in partitions:
            self.wanted[tp] = TargetReplica(IDS[tp.topic], tp.partition, self.id_of(index))

    def unassign(self, *partitions: TopicPartition) -> None:
        self.wanted = self.wanted or {}
        for tp in partitions:
            self.wanted[tp] = TargetReplica(IDS[tp.topic], tp.partition, None)

    def directory(self, tp: TopicPartition = ORDERS, index: int = 0) -> Path:
        return self.paths[index] / f"{tp.topic}-{tp.partition}"

    def checkpoint(self, name: str, index: int = 0) -> Mapping[TopicPartition, int]:
        return offset_checkpoint.parse((self.paths[index] / name).read_bytes())


def make(manager: LogManager, *partitions: TopicPartition, records: int = 60) -> list[PartitionLog]:
    """Create logs with so many batches of a record."""
    logs = [manager.create(*tp, IDS[tp.topic]) for tp in partitions]
    for log in logs:
        for number in range(records):
            append(log, at_ms=NOW_MS + number)
        log.update_high_watermark(log.log_end_offset)
    return logs


def names_in(path: Path) -> set[str]:
    return {child.name for child in path.iterdir()}


def record_bytes(path: Path) -> int:
    """Bytes of all segments below a path: they never become less."""
    return sum(file.stat().st_size for file in path.rglob("*.log*"))
