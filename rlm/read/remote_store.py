"""What every part that reads the remote store works with, as one value."""

from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.types import TopicIdPartition
from rlm.plugin_calls import PluginCalls
from rlm.read.object_faults import ObjectFaults
from rlm.read.wait_queue import Waiter, WaitQueue
from rlm.telemetry import Telemetry
from rlmm.api import RemoteLogMetadataManager
from rsm_plugins.api import RemoteStorageManager
from runtime.scheduler import Scheduler

Key = tuple[bytes, int]
"""Topic id and partition."""


class Readiness:
    """A line for each partition that somebody waits for.

    They are called when the manager says so, however long that takes and however many they are:
    none of them looks again by itself. Belongs to the owner's thread.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._queues: dict[Key, WaitQueue] = {}

    def wait(self, partition: Key, waiter: Waiter) -> None:
        """Have `waiter` called when the partition may be readable."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = WaitQueue(self._scheduler)
        queue.join(waiter)

    def leave(self, partition: Key, waiter: Waiter) -> None:
        """Wait no longer; fine for one that does not."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.leave(waiter)
            if not queue:
                del self._queues[partition]

    def may_be_readable(self, partition: Key) -> None:
        """Its segments became known, or it became known which of them count."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.call()
            if not queue and self._queues.get(partition) is queue:
                del self._queues[partition]


class Partitions(Protocol):
    """The partitions that the broker has assigned to the tier."""

    def tip_of(self, topic_id: bytes, partition: int) -> TopicIdPartition | None:
        """The partition with that id and number, None if it is not assigned."""
        ...

    def is_validated(self, tip: TopicIdPartition) -> bool:
        """Whether the broker's chain of it was validated."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStore:
    """The remote store, seen by its readers.

    Attributes:
        metadata: which segments there are.
        storage: their objects.
        calls: registers each call of `storage`, so that one that hangs is noticed.
        telemetry: counts the calls, and what the caches saved.
        faults: objects that were found missing or damaged.
        partitions: those that may be read at all.
        readiness: for those who wait until they may.
    """

    metadata: RemoteLogMetadataManager
    storage: RemoteStorageManager
    calls: PluginCalls
    telemetry: Telemetry
    faults: ObjectFaults
    partitions: Partitions
    readiness: Readiness

    def is_readable(self, partition: TopicIdPartition) -> bool:
        """Whether its segments are known, and which of them belong to its chain."""
        return self.metadata.is_ready(partition) and self.partitions.is_validated(partition)
