"""One node of a cluster with replicated partitions: a machine with two disks, and its processes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    dump_meta_properties,
)
from kafka_protocol.types import TopicPartition
from local_log.manager.log_dir import LOG_STARTS
from runtime.disk import FileRegion
from tests.support.nodes_world.broker import BrokerSide
from tests.support.nodes_world.connections import NodeNetwork
from tests.support.nodes_world.node import ClusterNode
from tests.support.quorum_world.plan import CLUSTER_ID
from tests.support.replication_world.broker import ReplicaSide
from tests.support.replication_world.plan import LOGS
from tests.support.replication_world.tier_process import TierProcess
from tests.support.sim.memory_disk import MemoryDisk
from tests.support.sim.memory_machine import MemoryNode

if TYPE_CHECKING:
    from tests.support.replication_world.world import ReplicationWorld

FUTURE = "-future"
"""How directories end that are built beside a log."""


class ReplicaNode(ClusterNode):
    """See the module.

    Attributes:
        broker: of this life.
        logs_number: rises with each new disk for partitions.
        is_without_logs: its lost directory is not given up yet; it does not start before.
        tier_lives: how many tier processes it has had.
        tier_process: the last of them.
        ends_building_after: once a directory beside is begun, it ends in so many changes.
    """

    world: "ReplicationWorld"
    broker: ReplicaSide | None

    def __init__(self, world: "ReplicationWorld", node_id: int) -> None:
        self.logs_number = 0
        self.tier_lives = 0
        self.tier_process: TierProcess | None = None
        self.is_without_logs = False
        self.ends_building_after: int | None = None
        super().__init__(world, node_id)

    @property
    def logs_id(self) -> bytes:
        """The id of its log directory."""
        return b"logs" + self.id.to_bytes(6, "big") + self.logs_number.to_bytes(6, "big")

    def new_machine(self) -> None:
        super().new_machine()
        if self.is_broker:
            self._format_logs()

    def _format_logs(self) -> None:
        cost, self.machine.cost_us = self.machine.cost_us, None
        fault, self.machine.fault = self.machine.fault, None
        disk = MemoryDisk(self.machine)
        disk.make_dirs(LOGS)
        disk.fsync_path(LOGS.parent)
        meta = MetaProperties(CLUSTER_ID, self.id, self.logs_id)
        disk.atomic_write(LOGS / META_PROPERTIES, dump_meta_properties(meta))
        self.machine.cost_us, self.machine.fault = cost, fault

    def _fault(self, operation: str, path: Any) -> int:
        changes = self.ends_building_after
        if changes is not None and self.process is not None and FUTURE in str(path):
            self.ends_building_after = None
            self.process.disk.end_after(changes)
        return super()._fault(operation, path)

    def lose_logs(self) -> None:
        """Have an empty, formatted disk for partitions; it is down."""
        assert not self.up
        fault, self.machine.fault = self.machine.fault, None
        MemoryDisk(self.machine).remove_tree(LOGS)
        self.machine.fault = fault
        self.logs_number += 1
        self._format_logs()

    def kept_log_start(self, name: TopicPartition) -> int | None:
        """The log start of a replica that a power cut leaves; None: the broker does not run."""
        logs = None if self.broker is None or self.broker.replicas is None else self.broker.logs
        directory = None if logs is None else logs.directory_of(name)
        return None if directory is None else directory.entry(LOG_STARTS, name) or 0

    def log_start_on_disk(self, name: TopicPartition) -> int | None:
        """The log start that a replica would begin by now, or after a start; None: nobody knows."""
        kept = self.kept_log_start(name)
        if kept is not None or self.is_without_logs:
            return kept
        found = self.machine.find(LOGS / LOG_STARTS)
        if not isinstance(found, MemoryNode):
            return None
        return offset_checkpoint.parse(bytes(found.live)).get(name, 0)

    def _broker_side(self, network: NodeNetwork) -> BrokerSide:
        return ReplicaSide(self, network)

    def crash(self, *, power: bool = False) -> None:
        if power and self.is_broker:
            self.world.validator.loses_power(self)
        if self.tier_process is not None:
            self.tier_process.kill()  # as the kernel does when its parent ends
        super().crash(power=power)

    def bytes_of(self, parts: Sequence[object]) -> bytes | None:
        """As the kernel sends it; a file that fails, or became shorter, ends the connection."""
        found: list[Any] = []
        assert self.process is not None
        for part in parts:
            if not isinstance(part, FileRegion):
                found.append(part)
                continue
            try:
                data = self.process.disk.read_at(part.file, part.position, part.size_bytes)
            except OSError as error:
                if self.broker is not None:
                    self.broker.opened.file_failed(part.file.path, error)
                return None
            if len(data) < part.size_bytes:
                return None
            found.append(data)
        return b"".join(found)
