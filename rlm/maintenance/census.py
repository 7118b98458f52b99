"""Counts partitions for the health answer, in slices: no work waits for thousands of partitions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import PartitionHealth
from rlm.maintenance.assigned_partition import AssignedPartition
from runtime.health_reasons import HealthReason, joined
from runtime.scheduler import Scheduler

SLICE_PARTITIONS: Final = 200
"""Some milliseconds of the tier's thread, in loops over all partitions."""

NAMED_MAX: Final = 100
"""Unhealthy partitions that the health answer names; the rest is only counted."""

PartitionKey = tuple[bytes, int]


@dataclass(slots=True)
class Counted:
    """Result of a census.

    Attributes:
        assigned: Number of partitions.
        ready: Number of those whose metadata is caught up.
        unhealthy: Up to `NAMED_MAX` partitions with a health reason.
        more_unhealthy: Number of further ones.
    """

    assigned: int = 0
    ready: int = 0
    unhealthy: list[PartitionHealth] = field(default_factory=list)
    more_unhealthy: int = 0

    def add(self, known: AssignedPartition, *, is_ready: bool) -> None:
        """Count a partition, with its health reasons."""
        self.assigned += 1
        self.ready += is_ready
        reasons = known.unhealthy_ones()
        if not reasons:
            return
        if len(self.unhealthy) < NAMED_MAX:
            tip = known.tip
            self.unhealthy.append(PartitionHealth(tip.topic_id, tip.partition, joined(reasons)))
        else:
            self.more_unhealthy += 1

    def unhealthy_ones(self) -> list[PartitionHealth]:
        """Unhealthy partitions: the first ones, and the number of the others."""
        if not self.more_unhealthy:
            return list(self.unhealthy)
        more = HealthReason.MORE_PARTITIONS.text(count=self.more_unhealthy)
        return [*self.unhealthy, PartitionHealth(b"", -1, more)]


class Census:
    """Counts all partitions, one count at a time."""

    def __init__(
        self,
        partitions: Mapping[PartitionKey, AssignedPartition],
        is_ready: Callable[[TopicIdPartition], bool],
        scheduler: Scheduler,
    ) -> None:
        self._partitions, self._is_ready, self._scheduler = partitions, is_ready, scheduler
        self._is_counting = False

    def take(self, done: Callable[[Counted], None]) -> None:
        """Count, and call `done` in the last slice.

        If one slice is enough, that is before this returns. A call during a count does nothing.
        """
        if not self._is_counting:
            self._is_counting = True
            self._count(Counted(), list(self._partitions.values()), 0, done)

    def _count(
        self,
        counted: Counted,
        found: list[AssignedPartition],
        position: int,
        done: Callable[[Counted], None],
    ) -> None:
        end = position + SLICE_PARTITIONS
        for known in found[position:end]:
            tip = known.tip
            if self._partitions.get((tip.topic_id, tip.partition)) is known:  # else it has gone
                counted.add(known, is_ready=self._is_ready(tip))
        if end < len(found):
            self._scheduler.call_later(0, lambda: self._count(counted, found, end, done))
            return
        self._is_counting = False
        done(counted)
