"""The collaborators of every part that reads the remote store, as one value."""

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
    """A queue of waiters for each partition that is not readable yet.

    They are called when the manager reports the partition, however late: none of them polls.
    Belongs to the owner's thread.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._queues: dict[Key, WaitQueue] = {}

    def wait(self, partition: Key, waiter: Waiter) -> None:
        """Call `waiter` when the partition may be readable."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = WaitQueue(self._scheduler)
        queue.join(waiter)

    def leave(self, partition: Key, waiter: Waiter) -> None:
        """Do not call `waiter` any more; it need not be waiting."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.leave(waiter)
            if not queue:
                del self._queues[partition]

    def may_be_readable(self, partition: Key) -> None:
        """Call the partition's waiters: its segments became known, or were validated."""
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
        """True if the broker's epoch chain of it was validated."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStore:
    """The remote store, for its readers.

    Attributes:
        metadata: The remote segments.
        storage: Their objects.
        calls: Registers each call of `storage`, so that a hanging one is noticed.
        telemetry: Metrics of the calls and caches.
        faults: Objects that were found missing or damaged.
        partitions: The assigned partitions.
        readiness: Waiters for partitions that are not readable yet.
    """

    metadata: RemoteLogMetadataManager
    storage: RemoteStorageManager
    calls: PluginCalls
    telemetry: Telemetry
    faults: ObjectFaults
    partitions: Partitions
    readiness: Readiness

    def is_readable(self, partition: TopicIdPartition) -> bool:
        """True if its segments are known and its epoch chain was validated."""
        return self.metadata.is_ready(partition) and self.partitions.is_validated(partition)
