"""Passes that wait for the store, and the order in which they probe it.

All on the manager's thread. A held pass also starts at every interval, to measure its lag and to
report. Being held only means that it starts at once when the store works again. Partitions probe in
turn. One whose probe failed returns by its own backoff, so a partition with a fault of its own does
not keep the others waiting.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from kafka_protocol.types import TopicIdPartition
from rlm.maintenance.assigned_partition import COPY, EXPIRE
from rlm.maintenance.census import SLICE_PARTITIONS, PartitionKey
from rlm.maintenance.store_gate import StoreGate
from runtime.health_reasons import HealthReason, HealthText
from runtime.rng import Backoff
from runtime.scheduler import Scheduler, Timer

_RED: Final = {COPY: HealthReason.COPY_WAITS, EXPIRE: HealthReason.EXPIRE_WAITS}


class StoreWaits:
    """Passes that wait for the store: one `HeldPasses` for copying, one for deleting.

    They are separate: a store that is full refuses copies and accepts deletions.
    """

    def __init__(
        self,
        start: Callable[[str, PartitionKey], None],
        new_backoff: Callable[[], Backoff],
        scheduler: Scheduler,
    ) -> None:
        """Hold no pass.

        `start` starts a partition's pass of a kind, if the partition still exists.
        """
        self._held = {
            kind: HeldPasses(partial(start, kind), new_backoff, scheduler) for kind in _RED
        }

    def gate(self, kind: str) -> StoreGate:
        """The gate that passes of a kind consult before they try the store."""
        return self._held[kind].gate

    def ended(self, kind: str, tip: TopicIdPartition, *, is_held: bool, failed: bool) -> None:
        """A pass has ended.

        Args:
            kind: Of the pass.
            tip: Its partition.
            is_held: It did not try the store, and continues when the store works again.
            failed: The store failed it, and it starts again by itself.
        """
        key = (tip.topic_id, tip.partition)
        self._held[kind].ended(key, is_held=is_held, failed=failed)

    def forget(self, tip: TopicIdPartition) -> None:
        """The partition is no longer ours."""
        for held in self._held.values():
            held.forget((tip.topic_id, tip.partition))

    def try_all(self) -> None:
        """Let all try the store at once, as if it had never failed: for a pass on request."""
        for held in self._held.values():
            held.try_all()

    def unhealthy_ones(self) -> list[HealthText]:
        """Health reasons: each closed gate for which a partition waits.

        Without a waiting partition, no pass may try the store for a long time and find that it
        works again.
        """
        return [
            _RED[kind].text(error=held.gate.reason, count=held.count)
            for kind, held in self._held.items()
            if held.count and not held.gate.is_open
        ]


class HeldPasses:
    """The waiting passes of one kind.

    Attributes:
        gate: Consulted by passes of this kind before they try the store.
    """

    def __init__(
        self,
        start: Callable[[PartitionKey], None],
        new_backoff: Callable[[], Backoff],
        scheduler: Scheduler,
    ) -> None:
        """Hold none; `start` starts a partition's pass, if the partition still exists."""
        self._start, self._new_backoff, self._scheduler = start, new_backoff, scheduler
        self.gate = StoreGate()
        self._held: dict[PartitionKey, None] = {}
        self._unserved: set[PartitionKey] = set()
        self._backoff: Backoff | None = None
        self._timer: Timer | None = None

    @property
    def count(self) -> int:
        """Number of partitions with work that the store prevented, held or not."""
        return len(self._unserved)

    def ended(self, key: PartitionKey, *, is_held: bool, failed: bool) -> None:
        """Note the end of a pass; arguments as of `StoreWaits.ended`."""
        self._held.pop(key, None)
        self._unserved.discard(key)
        if is_held or failed:
            self._unserved.add(key)
        if is_held:
            self._held[key] = None  # behind those that have waited longer
        self._look()

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer ours."""
        self._held.pop(key, None)
        self._unserved.discard(key)

    def try_all(self) -> None:
        """Let all try the store at once, as if it had never failed: for a pass on request."""
        self.gate.open()
        self._look()

    def _look(self) -> None:
        """Release the waiting passes, or have one of them probe."""
        if self.gate.is_open:
            if self._backoff is not None:  # the outage is over
                self._backoff = None
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
            if self._timer is None:
                self._release()
        elif self.gate.probe_is_due:
            self._start_one()  # the one that was started before did not need the store
        elif not self.gate.is_probed and self._timer is None:
            self._backoff = self._backoff or self._new_backoff()
            self._timer = self._scheduler.call_later(self._backoff.next_ms(), self._probe)

    def _probe(self) -> None:
        self._timer = None
        self.gate.let_probe()
        self._start_one()

    def _start_one(self) -> None:
        key = next(iter(self._held), None)
        if key is not None:
            del self._held[key]
            self._start(key)

    def _release(self) -> None:
        """Start the held passes in slices, as long as the store works."""
        for key in list(self._held)[:SLICE_PARTITIONS]:
            self.forget(key)
            self._start(key)
        if self._held:
            self._timer = self._scheduler.call_later(0, self._continue)

    def _continue(self) -> None:
        self._timer = None
        self._look()
