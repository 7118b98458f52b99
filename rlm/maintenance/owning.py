"""Becoming and staying the owner of partitions: barrier, validation, and the end of an ownership.

Per partition and leader epoch: own (the barrier, read back), then take over (validate the epoch
chain, settle the log start offset). After an ended ownership the next one begins after a pause. If
a write under it had an unknown outcome, the next one has a higher incarnation. No partition is
owned while writing is forbidden (`rlm.maintenance.claim`).
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from kafka_protocol.types import TopicIdPartition
from rlm.link.endpoint import LinkEndedError
from rlm.maintenance.assigned_partition import AssignedPartition
from rlm.maintenance.copy_task import withdraw_validation
from rlm.maintenance.effects import PassResult
from rlm.maintenance.log_validation import too_low
from rlm.maintenance.numbering import Numbering
from rlm.maintenance.ownership import Ownership
from rlm.maintenance.performer import World
from rlm.maintenance.takeover_task import fenced_by_later_epoch, take_over
from rlm.maintenance.task_run import Ended, MakeTask, TaskRun
from rlm.workers import VALIDATION_POOL, Workers
from rlmm.api import REMOVER_FENCE, Fence, MetadataError, MetadataRefusedError
from rsm_plugins.api import RemoteStorageError
from runtime.health_reasons import HealthReason
from runtime.rng import Backoff
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwningEvents:
    """Questions to the manager, and events for it.

    Attributes:
        may_own: True if anything may be written.
        is_current: True if the partition is still assigned, and the manager is not stopped.
        settled: The partition is owned, and its log start offset is settled.
        readable: The partition's segments became known, or were validated.
    """

    may_own: Callable[[], bool]
    is_current: Callable[[AssignedPartition], bool]
    settled: Callable[[AssignedPartition], None]
    readable: Callable[[TopicIdPartition], None]


class Owning:
    """Belongs to the manager's thread.

    Attributes:
        owns_nothing: The claim was refused: owned partitions are followed instead.
    """

    def __init__(
        self,
        world: World,
        workers: Workers,
        scheduler: Scheduler,
        events: OwningEvents,
        *,
        next_incarnation: Callable[[int], int],
        new_backoff: Callable[[], Backoff],
    ) -> None:
        """Own nothing; the arguments are those of `RemoteLogManager`."""
        self._world, self._workers, self._scheduler = world, workers, scheduler
        self._is_current, self._settled = events.is_current, events.settled
        self._readable = events.readable
        self._may_own, self.owns_nothing = events.may_own, False
        self._new_backoff = new_backoff
        self._numbering = Numbering(next_incarnation, workers, scheduler, self._numbered)

    def _numbered(self, known: AssignedPartition, error: BaseException | None) -> None:
        """A durable incarnation is there, or could not be taken."""
        is_owned = known.ownership is not None or known.own_timer is not None
        if is_owned or not self._is_current(known):
            return
        if error is None:
            self.own(known)
            return
        known.unhealthy = HealthReason.INCARNATION.text(error=error)
        log.warning("cannot own %s: %s", known.tip.topic_partition, known.unhealthy)
        self.own_again(known, fresh=False)

    def own(self, known: AssignedPartition) -> None:
        """Write the barrier and wait for it, without holding a thread."""
        if not self._may_own():
            known.end_ownership()
            followed = self._world.metadata.follow(known.tip)  # stops an unwritten barrier
            tell = partial(self._readable, known.tip)
            followed.add_done_callback(lambda _: self._workers.post(tell))
            if self.owns_nothing:
                self.forget_copies(known)  # the present writer of the store may delete the copies
            return
        incarnation = self._numbering.number_for(known)
        if incarnation is None:
            known.end_ownership()
            return
        fence = Fence(known.leader_epoch, incarnation)
        ownership = Ownership(known.tip, fence)
        known.ownership, known.own_timer = ownership, None
        own = self._world.metadata.own
        owned = own(known.tip, fence, known.metadata_offset, known.unclean_epoch)

        def done(future: Future[None]) -> None:
            if known.ownership is ownership:
                self._owned(known, ownership, future.exception())

        # Not under its name: the future keeps its callbacks, and a closure would make a cycle with
        # it.
        owned.add_done_callback(lambda future: self._workers.post(partial(done, future)))

    def _owned(
        self, known: AssignedPartition, ownership: Ownership, error: BaseException | None
    ) -> None:
        if error is None:
            self._settle(known, ownership)
            return
        log.warning("cannot own %s: %s", known.tip.topic_partition, error)
        if isinstance(error, MetadataRefusedError):
            if error.fence is not None and error.fence.leader_epoch == known.leader_epoch:
                # Of an incarnation of ours whose counter was lost, or of a clone.
                known.above = max(known.above, error.fence.incarnation)
            elif error.fence is not None and error.fence != REMOVER_FENCE:
                self._ask_for_epoch(known, error.fence.leader_epoch)
                return
            marked = error.fence == REMOVER_FENCE
            known.unhealthy = (HealthReason.MARKED if marked else HealthReason.NEWER_OWNER).text()
        else:
            known.unhealthy = HealthReason.METADATA.text(error=error)
        self.own_again(known, fresh=True)

    def _ask_for_epoch(self, known: AssignedPartition, used: int) -> None:
        """Ask the controller for a leader epoch above `used`, which comes as an `Assign`."""
        tip, epoch = known.tip, known.leader_epoch

        def asked(
            same: AssignedPartition, result: PassResult | None, error: BaseException | None
        ) -> None:
            unhealthy = too_low(epoch, used).reason if result is None else result.unhealthy
            if unhealthy != same.unhealthy:
                log.error("%s: %s", tip.topic_partition, unhealthy)
            same.unhealthy = unhealthy
            if not isinstance(error, LinkEndedError):
                self.own_again(same, fresh=False)

        self._spend(known)
        task = partial(fenced_by_later_epoch, tip.topic_id, tip.partition, epoch, used)
        self._run_unowned(known, task, asked)

    def own_again(self, known: AssignedPartition, *, fresh: bool) -> None:
        """End this ownership; the next one begins after a pause."""
        if fresh:
            self._spend(known)
        known.end_ownership()
        if known.own_backoff is None:
            known.own_backoff = self._new_backoff()
        delay_ms = known.own_backoff.next_ms()
        known.own_timer = self._scheduler.call_later(delay_ms, lambda: self._own_if_current(known))

    def _spend(self, known: AssignedPartition) -> None:
        """Never use the fence of its ownership, or of an ended one, again."""
        ownership = known.ownership
        last = self._numbering.last if ownership is None else ownership.fence.incarnation
        known.above = max(known.above, -1 if last is None else last)

    def _own_if_current(self, known: AssignedPartition) -> None:
        known.own_timer = None
        if self._is_current(known):
            self.own(known)

    def _settle(self, known: AssignedPartition, ownership: Ownership) -> None:
        if known.ownership is ownership and self._is_current(known):
            run = TaskRun(
                self._world, known, ownership, VALIDATION_POOL, take_over, self._took_over
            )
            run.start(self._workers)

    def _took_over(
        self, known: AssignedPartition, result: PassResult | None, error: BaseException | None
    ) -> None:
        if error is not None and not isinstance(error, RemoteStorageError):
            known.unhealthy = HealthReason.TAKING_OVER.text(error=error)
            self.own_again(known, fresh=isinstance(error, MetadataError))
            return
        unhealthy = (
            HealthReason.TAKING_OVER.text(error=error) if result is None else result.unhealthy
        )
        if unhealthy and unhealthy != known.unhealthy:
            log.error("%s: %s", known.tip.topic_partition, unhealthy)
        known.unhealthy, known.validated = unhealthy, error is None
        self._readable(known.tip)
        if unhealthy:  # until a person has ended the loss; the barrier holds meanwhile
            self._settle_again(known)
            return
        known.ready, known.own_backoff = True, None
        self._settled(known)

    def _settle_again(self, known: AssignedPartition) -> None:
        ownership = known.ownership
        assert ownership is not None, "it has just been validated under it"
        if known.own_backoff is None:
            known.own_backoff = self._new_backoff()
        known.own_timer = self._scheduler.call_later(
            known.own_backoff.next_ms(), lambda: self._settle(known, ownership)
        )

    def records_lost(self, known: AssignedPartition) -> None:
        """Withdraw reports that may rest on lost records, then own again."""
        self._spend(known)
        known.unhealthy = HealthReason.METADATA.text(error="the metadata topic lost records")
        self.forget_copies(known)

    def forget_copies(self, known: AssignedPartition) -> None:
        """End the ownership; the broker keeps its local segments until the next validation."""
        tip = known.tip
        task = partial(withdraw_validation, tip.topic_id, tip.partition, known.leader_epoch)
        self._run_unowned(known, task, self._forgotten)

    def _run_unowned(self, known: AssignedPartition, task: MakeTask, ended: Ended) -> None:
        """End the ownership and run a task that only sends requests to the broker."""
        known.end_ownership()
        # Nothing is written under this fence.
        ownership = known.ownership = Ownership(known.tip, Fence(known.leader_epoch, -1))
        TaskRun(self._world, known, ownership, VALIDATION_POOL, task, ended).start(self._workers)

    def _forgotten(
        self, known: AssignedPartition, _: PassResult | None, error: BaseException | None
    ) -> None:
        if error is None and not self.owns_nothing:
            self.own(known)
        elif not isinstance(error, LinkEndedError):  # repeated for as long as nothing is owned
            self.own_again(known, fresh=True)
