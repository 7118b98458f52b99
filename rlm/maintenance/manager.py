"""RemoteLogManager: the partitions that this tier works on. No policy.

All state belongs to one thread; passes run in pools and come back to it. A led partition is first
owned (`owning`), then copied and expired in passes (`passes`).
"""

from collections.abc import Callable

from kafka_protocol.types import TopicIdPartition
from rlm.config import TierConfig
from rlm.link.messages import Assign
from rlm.maintenance.assigned_partition import AssignedPartition
from rlm.maintenance.census import SLICE_PARTITIONS, Census, PartitionKey
from rlm.maintenance.following import Following
from rlm.maintenance.owning import Owning, OwningEvents
from rlm.maintenance.passes import Passes
from rlm.maintenance.performer import World, always
from rlm.workers import Workers
from runtime.scheduler import Scheduler


def _nobody(_: TopicIdPartition) -> None:
    """The default listener, which does nothing."""


class RemoteLogManager:
    """The interface of this package for the link.

    Attributes:
        catch_ups: Of followed partitions.
        census: Counts the partitions.
        passes: Schedules copying and expiring.
        on_readable: Called with a partition once its segments are known, or validated.
    """

    def __init__(
        self,
        *,
        config: TierConfig,
        world: World,
        workers: Workers,
        scheduler: Scheduler,
        next_incarnation: Callable[[int], int],
        may_own: Callable[[], bool] = always,
    ) -> None:
        """Make one without partitions.

        Args:
            config: Settings.
            world: Collaborators of all tasks.
            workers: Thread pools.
            scheduler: Timers.
            next_incarnation: The next number, above the given one; called in a pool.
            may_own: True if it may write (`rlm.maintenance.claim`); `claim_changed` is called after
                a change.
        """
        self._world, self._scheduler = world, scheduler
        self._may_own, self._claim_changes, self._stopped = may_own, 0, False
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self.census = Census(self._partitions, world.metadata.is_ready, scheduler)
        self.on_readable: Callable[[TopicIdPartition], None] = _nobody
        self.passes = Passes(
            config,
            world,
            workers,
            scheduler,
            self._partitions,
            own_again=lambda known: self._owning.own_again(known, fresh=True),
        )
        self._owning = Owning(
            world,
            workers,
            scheduler,
            OwningEvents(
                may_own=may_own,
                is_current=self._is_current,
                settled=self.passes.begin,
                readable=self._readable,
            ),
            next_incarnation=next_incarnation,
            new_backoff=self.passes.new_backoff,
        )
        self._following = Following(
            world,
            workers,
            scheduler,
            config,
            may_report=lambda: not self._owning.owns_nothing,
            new_backoff=self.passes.new_backoff,
        )
        self.catch_ups = self._following.catch_ups
        world.metadata.on_lost_records(lambda tip: workers.post(lambda: self._lost_records(tip)))

    def assign(self, assign: Assign) -> None:
        """Accept a partition, or a change of its role, epoch or settings."""
        key = (assign.topic_id, assign.partition)
        known = self._partitions.get(key)
        if known is not None and (
            known.leader_epoch == assign.leader_epoch and known.is_leader == assign.is_leader
        ):
            if known.settings != assign.settings:
                known.settings = assign.settings
                self.passes.run_soon(known)
            return
        if known is not None:
            known.end_ownership()
        fresh = self._partitions[key] = AssignedPartition.of(assign)
        self._world.telemetry.assigned(fresh.tip)
        if assign.is_leader:
            self._owning.own(fresh)
        else:
            self._following.begin(fresh)
            self._world.telemetry.measured_elsewhere(fresh.tip)
            self.passes.wait_no_more(fresh.tip)

    def unassign(self, topic_id: bytes, partition: int) -> None:
        """Release a partition; when this returns no further plugin call starts for it."""
        known = self._partitions.pop((topic_id, partition), None)
        if known is not None:
            known.end_ownership()
            self._world.metadata.release(known.tip)
            self._world.telemetry.forget(known.tip)
            self.passes.wait_no_more(known.tip)

    def claim_changed(self) -> None:
        """The claim has changed: own the partitions that waited for it, or own nothing any more."""
        self._owning.owns_nothing = not self._may_own()
        self._claim_changes += 1
        self._take_claim_change(self._claim_changes, list(self._partitions.values()))

    def _take_claim_change(self, change: int, left: list[AssignedPartition]) -> None:
        """Visit the partitions in slices: a forbidden write is refused by itself meanwhile."""
        if change != self._claim_changes or self._stopped:
            return
        for known in left[:SLICE_PARTITIONS]:
            if not known.is_leader or not self._is_assigned(known):
                continue
            is_waiting = known.ownership is None and known.own_timer is None
            if self._owning.owns_nothing or is_waiting:
                self._owning.own(known)
            else:
                self.passes.run_soon(known)
        rest = left[SLICE_PARTITIONS:]
        if rest:
            self._scheduler.call_later(0, lambda: self._take_claim_change(change, rest))

    def _is_assigned(self, known: AssignedPartition) -> bool:
        return self._partitions.get((known.tip.topic_id, known.tip.partition)) is known

    def _is_current(self, known: AssignedPartition) -> bool:
        return not self._stopped and self._is_assigned(known)

    def tip_of(self, topic_id: bytes, partition: int) -> TopicIdPartition | None:
        """The assigned partition, with its topic's name."""
        known = self._partitions.get((topic_id, partition))
        return None if known is None else known.tip

    def is_validated(self, tip: TopicIdPartition) -> bool:
        """True if the broker's epochs may be relied on: an old chain would have been noticed.

        True for followed and unassigned partitions. If the claim is refused no log is validated,
        and reads continue.
        """
        known = self._partitions.get((tip.topic_id, tip.partition))
        return known is None or not known.is_leader or known.validated or self._owning.owns_nothing

    def stop(self) -> None:
        """Cancel everything; no further plugin call starts."""
        self._stopped = True
        for known in self._partitions.values():
            known.end_ownership()

    def _readable(self, tip: TopicIdPartition) -> None:
        self.on_readable(tip)

    def _lost_records(self, tip: TopicIdPartition) -> None:
        known = self._partitions.get((tip.topic_id, tip.partition))
        if known is None or self._stopped:
            return
        if known.is_leader:
            self._owning.records_lost(known)
        else:
            self._following.lost_records(known)
