"""Passes that wait for the store, and which of them probes it when.

All on the manager's thread. A held pass also comes again every interval, to measure its lag and to
report; that it was held only means that it is started at once when the store works again. Probes
go round, and a partition that probed in vain comes again by its own backoff: one that fails for
reasons of its own does not keep the others waiting.
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
    """What waits for the store: one `HeldPasses` for copying, one for deleting.

    They do not wait for each other: a store that is full takes no copies, and deletions.
    """

    def __init__(
        self,
        start: Callable[[str, PartitionKey], None],
        new_backoff: Callable[[], Backoff],
        scheduler: Scheduler,
    ) -> None:
        """Nothing waits; `start` starts a partition's pass of a kind, if there is such still."""
        self._held = {
            kind: HeldPasses(partial(start, kind), new_backoff, scheduler) for kind in _RED
        }

    def gate(self, kind: str) -> StoreGate:
        """What passes of a kind ask before they try the store."""
        return self._held[kind].gate

    def ended(self, kind: str, tip: TopicIdPartition, *, is_held: bool, failed: bool) -> None:
        """A pass has ended.

        Args:
            kind: of pass.
            tip: whose.
            is_held: it did not try the store, and continues when the store works again.
            failed: the store failed it, and it comes again by itself.
        """
        key = (tip.topic_id, tip.partition)
        self._held[kind].ended(key, is_held=is_held, failed=failed)

    def forget(self, tip: TopicIdPartition) -> None:
        """The partition is not ours any more."""
        for held in self._held.values():
            held.forget((tip.topic_id, tip.partition))

    def try_all(self) -> None:
        """Somebody wants to know: all try the store again, as if it had never failed."""
        for held in self._held.values():
            held.try_all()

    def unhealthy_ones(self) -> list[HealthText]:
        """What is wrong, for health: a closed gate is, as long as a partition waits for it.

        Where none does, no pass may try the store for a long time and find that it works again.
        """
        return [
            _RED[kind].text(error=held.gate.reason, count=held.count)
            for kind, held in self._held.items()
            if held.count and not held.gate.is_open
        ]


class HeldPasses:
    """Those of one kind.

    Attributes:
        gate: what passes of this kind ask before they try the store.
    """

    def __init__(
        self,
        start: Callable[[PartitionKey], None],
        new_backoff: Callable[[], Backoff],
        scheduler: Scheduler,
    ) -> None:
        """Hold none; `start` starts the pass of a partition, if there is such a one still."""
        self._start, self._new_backoff, self._scheduler = start, new_backoff, scheduler
        self.gate = StoreGate()
        self._held: dict[PartitionKey, None] = {}
        self._unserved: set[PartitionKey] = set()
        self._backoff: Backoff | None = None
        self._timer: Timer | None = None

    @property
    def count(self) -> int:
        """How many partitions have work that the store did not let them do, held or not."""
        return len(self._unserved)

    def ended(self, key: PartitionKey, *, is_held: bool, failed: bool) -> None:
        """See StoreWaits."""
        self._held.pop(key, None)
        self._unserved.discard(key)
        if is_held or failed:
            self._unserved.add(key)
        if is_held:
            self._held[key] = None  # behind those that have waited longer
        self._look()

    def forget(self, key: PartitionKey) -> None:
        """See StoreWaits."""
        self._held.pop(key, None)
        self._unserved.discard(key)

    def try_all(self) -> None:
        """See StoreWaits."""
        self.gate.open()
        self._look()

    def _look(self) -> None:
        """Let go those that wait, or see to it that one of them probes."""
        if self.gate.is_open:
            if self._backoff is not None:  # the outage is over
                self._backoff = None
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
            if self._timer is None:
                self._release()
        elif self.gate.probe_is_due:
            self._start_one()  # the one that was started before had no use for it
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
        """Start them in slices, as long as the store works."""
        for key in list(self._held)[:SLICE_PARTITIONS]:
            self.forget(key)
            self._start(key)
        if self._held:
            self._timer = self._scheduler.call_later(0, self._continue)

    def _continue(self) -> None:
        self._timer = None
        self._look()
