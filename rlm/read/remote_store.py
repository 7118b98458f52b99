"""What every part that reads the remote store works with, as one value."""

from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.types import TopicIdPartition
from rlm.plugin_calls import PluginCalls
from rlm.read.line import Line, Waiter
from rlm.read.object_faults import ObjectFaults
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
        self._lines: dict[Key, Line] = {}

    def wait(self, partition: Key, waiter: Waiter) -> None:
        """Have `waiter` called when the partition may be readable."""
        line = self._lines.get(partition)
        if line is None:
            line = self._lines[partition] = Line(self._scheduler)
        line.join(waiter)

    def leave(self, partition: Key, waiter: Waiter) -> None:
        """Wait no longer; fine for one that does not."""
        line = self._lines.get(partition)
        if line is not None:
            line.leave(waiter)
            if not line:
                del self._lines[partition]

    def may_be_readable(self, partition: Key) -> None:
        """Its segments became known, or it became known which of them count."""
        line = self._lines.get(partition)
        if line is not None:
            line.call()
            if not line and self._lines.get(partition) is line:
                del self._lines[partition]


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
