"""RemoteLogManager: which partitions this tier works on, and when their passes run. No policy.

All state here belongs to one thread; passes run in pools and come back to it. Per partition and
leader epoch: own (barrier, read back) -> take over (settle the log start) -> passes of two kinds,
copying and expiring, at once and then every interval, each kind one at a time. Copying goes by
turns (`copy_turns`). A failed pass comes again after a backoff, or where the store fails when it
works again (`held_passes`); a write of unknown outcome ends the ownership and starts the next one
under the next incarnation.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from kafka_protocol.types import TopicIdPartition
from rlm.config import TierConfig
from rlm.link.endpoint import LinkEndedError, LinkFailureError
from rlm.link.messages import Assign
from rlm.plugin_calls import TaskCancelledError
from rlm.quota import RateQuota
from rlm.red_kinds import TierRed
from rlm.upkeep.assigned_partition import COPY, EXPIRE, AssignedPartition, Pass
from rlm.upkeep.backoff import Backoff
from rlm.upkeep.census import SLICE_PARTITIONS, Census, PartitionKey
from rlm.upkeep.copy_queue import CopyQueue
from rlm.upkeep.copy_task import copy_pass, withdraw_judgement
from rlm.upkeep.effects import PassResult, Task
from rlm.upkeep.expiration_task import expiration_pass
from rlm.upkeep.hanging_calls import CallHangsError
from rlm.upkeep.held_passes import StoreWaits
from rlm.upkeep.numbering import Numbering
from rlm.upkeep.ownership import Ownership
from rlm.upkeep.pass_ends import CountDown
from rlm.upkeep.performer import World, always
from rlm.upkeep.settling import too_low
from rlm.upkeep.takeover_task import fenced_by_later_epoch, take_over
from rlm.upkeep.task_run import Ended, MakeTask, TaskRun
from rlm.workers import COPIER_POOL, EXPIRATION_POOL, JUDGE_POOL, Workers
from rlmm.api import (
    REMOVER_FENCE,
    Fence,
    MetadataError,
    MetadataNotReadyError,
    MetadataRefusedError,
    MetadataWriteTimeoutError,
)
from rsm_plugins.api import RemoteStorageError
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)


def _nobody(_: TopicIdPartition) -> None:
    """Nobody waits."""


class RemoteLogManager:
    """The face of this package towards the link.

    Attributes:
        census: counts the partitions.
        on_readable: told of partitions whose segments became known, or were judged.
        waits: what waits for the store.
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
            config: settings.
            world: what tasks work with.
            workers: pools.
            scheduler: timers.
            next_incarnation: the next number, above the given one; called in a pool.
            may_own: whether anything may be written, see `rlm.upkeep.claim`; `claim_changed` tells.
        """
        self._config, self._world, self._workers = config, world, workers
        self._scheduler = scheduler
        self._may_own, self._owns_nothing = may_own, False
        self._claim_changes = 0
        self._numbering = Numbering(next_incarnation, workers, scheduler, self._numbered)
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self.census = Census(self._partitions, world.metadata.is_ready, scheduler)
        self.on_readable: Callable[[TopicIdPartition], None] = _nobody
        self._stopped = False
        world.metadata.on_lost_records(lambda tip: workers.post(lambda: self._lost_records(tip)))
        self._copy_quota = RateQuota(
            config.copy_bytes_per_second,
            config.copy_quota_window_count,
            config.copy_quota_window_seconds,
        )
        self._copies = CopyQueue(workers)
        self.waits = StoreWaits(self._start_kind, self._new_backoff, scheduler)

    # -- assignment

    def assign(self, assign: Assign) -> None:
        """Take a partition, or what changed about it."""
        key = (assign.topic_id, assign.partition)
        known = self._partitions.get(key)
        if known is not None and (
            known.leader_epoch == assign.leader_epoch and known.is_leader == assign.is_leader
        ):
            if known.settings != assign.settings:
                known.settings = assign.settings
                self._run_soon(known)
            return
        if known is not None:
            known.end_ownership()
        fresh = self._partitions[key] = AssignedPartition.of(assign)
        self._world.telemetry.assigned(fresh.tip)
        if assign.is_leader:
            self._own(fresh)
        else:
            self._world.metadata.follow(fresh.tip)
            self._world.telemetry.measured_elsewhere(fresh.tip)
            self.waits.forget(fresh.tip)

    def reconfigure(self, config: TierConfig) -> None:
        """Go by other limits from now on."""
        self._config = config
        self._copy_quota.set_limit(config.copy_bytes_per_second)

    def unassign(self, topic_id: bytes, partition: int) -> None:
        """Let a partition go; when this returns no further plugin call starts for it."""
        known = self._partitions.pop((topic_id, partition), None)
        if known is not None:
            known.end_ownership()
            self._world.metadata.release(known.tip)
            self._world.telemetry.forget(known.tip)
            self.waits.forget(known.tip)

    def claim_changed(self) -> None:
        """What may be written is another: own what waited for it, or own nothing any more."""
        self._owns_nothing = not self._may_own()
        self._claim_changes += 1
        self._take_claim_change(self._claim_changes, list(self._partitions.values()))

    def _take_claim_change(self, change: int, left: list[AssignedPartition]) -> None:
        """Go over the partitions in slices: what must not be written is refused at each write."""
        if change != self._claim_changes or self._stopped:
            return
        for known in left[:SLICE_PARTITIONS]:
            if not known.is_leader or not self._is_assigned(known):
                continue
            is_waiting = known.ownership is None and known.own_timer is None
            if self._owns_nothing or is_waiting:
                self._own(known)
            else:
                self._run_soon(known)
        rest = left[SLICE_PARTITIONS:]
        if rest:
            self._scheduler.call_later(0, lambda: self._take_claim_change(change, rest))

    def _is_assigned(self, known: AssignedPartition) -> bool:
        return self._partitions.get((known.tip.topic_id, known.tip.partition)) is known

    def tip_of(self, topic_id: bytes, partition: int) -> TopicIdPartition | None:
        """The assigned partition, with its topic's name."""
        known = self._partitions.get((topic_id, partition))
        return None if known is None else known.tip

    def is_judged(self, tip: TopicIdPartition) -> bool:
        """Whether the broker's word on epochs may be gone by: an old chain is noticed first.

        Where the claim is refused nobody judges, and reads go on.
        """
        known = self._partitions.get((tip.topic_id, tip.partition))
        return known is None or not known.is_leader or known.judged or self._owns_nothing

    def stop(self) -> None:
        """Cancel everything; no further plugin call starts."""
        self._stopped = True
        for known in self._partitions.values():
            known.end_ownership()

    # -- becoming owner

    def _numbered(self, known: AssignedPartition, error: BaseException | None) -> None:
        """An incarnation is durable that it may be owned under, or could not be taken."""
        is_owned = known.ownership is not None or known.own_timer is not None
        if is_owned or self._stopped or not self._is_assigned(known):
            return
        if error is None:
            self._own(known)
            return
        known.red = TierRed.INCARNATION.text(error=error)
        log.warning("cannot own %s: %s", known.tip.topic_partition, known.red)
        self._own_again(known, fresh=False)

    def _own(self, known: AssignedPartition) -> None:
        """Write the barrier and wait for it, without holding a thread."""
        if not self._may_own():
            known.end_ownership()
            followed = self._world.metadata.follow(known.tip)  # a barrier on its way is not written
            tell = partial(self.on_readable, known.tip)
            followed.add_done_callback(lambda _: self._workers.post(tell))
            if self._owns_nothing:
                self._forget_copies(known)  # whoever writes there now may delete them
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

        # Not by its name here: it keeps its callbacks, and would be in a cycle with what they hold.
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
            known.red = (TierRed.MARKED if marked else TierRed.NEWER_OWNER).text()
        else:
            known.red = TierRed.METADATA.text(error=error)
        self._own_again(known, fresh=True)

    def _ask_for_epoch(self, known: AssignedPartition, used: int) -> None:
        """The controller is asked for a leader epoch above `used`, which comes as an `Assign`."""
        tip, epoch = known.tip, known.leader_epoch

        def asked(
            same: AssignedPartition, result: PassResult | None, error: BaseException | None
        ) -> None:
            red = too_low(epoch, used).reason if result is None else result.red
            if red != same.red:
                log.error("%s: %s", tip.topic_partition, red)
            same.red = red
            if not isinstance(error, LinkEndedError):
                self._own_again(same, fresh=False)

        self._spend(known)
        task = partial(fenced_by_later_epoch, tip.topic_id, tip.partition, epoch, used)
        self._run_unowned(known, task, asked)

    def _own_again(self, known: AssignedPartition, *, fresh: bool) -> None:
        """This ownership is over; the next one begins after a pause."""
        if fresh:
            self._spend(known)
        known.end_ownership()
        if known.own_backoff is None:
            known.own_backoff = self._new_backoff()
        delay_ms = known.own_backoff.next_ms()
        known.own_timer = self._scheduler.call_later(delay_ms, lambda: self._own_if_current(known))

    def _spend(self, known: AssignedPartition) -> None:
        """The pair of its ownership, or of an ended one, is not taken again."""
        ownership = known.ownership
        last = self._numbering.last if ownership is None else ownership.fence.incarnation
        known.above = max(known.above, -1 if last is None else last)

    def _own_if_current(self, known: AssignedPartition) -> None:
        known.own_timer = None
        if self._is_assigned(known) and not self._stopped:
            self._own(known)

    def _settle(self, known: AssignedPartition, ownership: Ownership) -> None:
        if known.ownership is ownership and not self._stopped:
            self._run(known, ownership, JUDGE_POOL, take_over, self._took_over)

    def _took_over(
        self, known: AssignedPartition, result: PassResult | None, error: BaseException | None
    ) -> None:
        if error is not None and not isinstance(error, RemoteStorageError):
            known.red = TierRed.TAKING_OVER.text(error=error)
            self._own_again(known, fresh=isinstance(error, MetadataError))
            return
        red = TierRed.TAKING_OVER.text(error=error) if result is None else result.red
        if red and red != known.red:
            log.error("%s: %s", known.tip.topic_partition, red)
        known.red, known.judged = red, error is None
        self.on_readable(known.tip)
        if red:  # until a person has ended it; the barrier holds
            self._settle_again(known)
            return
        known.ready, known.own_backoff = True, None
        known.passes = {kind: Pass(kind, self._new_backoff()) for kind in (COPY, EXPIRE)}
        self._run_soon(known)

    def _lost_records(self, tip: TopicIdPartition) -> None:
        """What was known may never have been true: the broker is told so, then it is owned anew."""
        known = self._partitions.get((tip.topic_id, tip.partition))
        if known is None or not known.is_leader or self._stopped:
            return
        self._spend(known)
        known.red = TierRed.METADATA.text(error="the metadata topic lost records")
        self._forget_copies(known)

    def _forget_copies(self, known: AssignedPartition) -> None:
        """The ownership ends; the broker keeps what it has until the next one has judged."""
        tip = known.tip
        task = partial(withdraw_judgement, tip.topic_id, tip.partition, known.leader_epoch)
        self._run_unowned(known, task, self._forgotten)

    def _run_unowned(self, known: AssignedPartition, task: MakeTask, ended: Ended) -> None:
        """End the ownership and run what only asks or tells the broker."""
        known.end_ownership()
        # Nothing is written under this pair.
        ownership = known.ownership = Ownership(known.tip, Fence(known.leader_epoch, -1))
        self._run(known, ownership, JUDGE_POOL, task, ended)

    def _forgotten(
        self, known: AssignedPartition, _: PassResult | None, error: BaseException | None
    ) -> None:
        if error is None and not self._owns_nothing:
            self._own(known)
        elif not isinstance(error, LinkEndedError):  # also told again as long as nothing is owned
            self._own_again(known, fresh=True)

    def _settle_again(self, known: AssignedPartition) -> None:
        ownership = known.ownership
        assert ownership is not None, "it has just been judged under it"
        if known.own_backoff is None:
            known.own_backoff = self._new_backoff()
        known.own_timer = self._scheduler.call_later(
            known.own_backoff.next_ms(), lambda: self._settle(known, ownership)
        )

    # -- passes

    def _run_soon(self, known: AssignedPartition) -> None:
        if known.ready:
            for each in known.passes.values():
                self._start(known, each)

    def run_now(self, done: Callable[[], None]) -> None:
        """Start both passes of each ready partition; `done` is called once all of them are through.

        One that runs already does not count: another follows it. The store is tried by all of them.
        """
        self.waits.try_all()
        started = [
            (known, each)
            for known in self._partitions.values()
            if known.ready
            for each in known.passes.values()
        ]
        waiting = CountDown(len(started), done)
        for known, each in started:
            each.ends.wait(waiting)
            self._start(known, each)

    def _start_kind(self, kind: str, key: PartitionKey) -> None:
        known = self._partitions.get(key)
        if known is not None and known.ready:
            self._start(known, known.passes[kind])

    def _start(self, known: AssignedPartition, each: Pass) -> None:
        ownership = known.ownership
        if ownership is None or self._stopped:
            return
        if each.running:
            each.again = True
            return
        if each.timer is not None:
            each.timer.cancel()
            each.timer = None
        each.running, each.again = True, False
        each.ends.begun()
        ended = partial(self._pass_ended, each)
        if each.kind == COPY:
            task = partial(self._copy_task, known)
            run = TaskRun(self._world, known, ownership, COPIER_POOL, task, ended)
            self._copies.run(run, each.turn)
        else:
            task = partial(self._expire_task, known, ownership)
            self._run(known, ownership, EXPIRATION_POOL, task, ended)

    def _copy_task(self, known: AssignedPartition) -> Task[PassResult]:
        clock, settings = self._world.clock, known.settings
        return copy_pass(
            known.tip,
            settings,
            broker_id=self._config.node_id,
            custom_metadata_bytes_max=self._config.custom_metadata_bytes_max,
            throttle_ms=lambda size: self._copy_quota.throttle_ms(size, clock.monotonic_ms()),
            gate=self.waits.gate(COPY),
            is_current=lambda: known.settings is settings,
        )

    def _expire_task(self, known: AssignedPartition, ownership: Ownership) -> Task[PassResult]:
        return expiration_pass(
            known.settings,
            ownership.own_copies,
            broker_id=self._config.node_id,
            copy_max_ms=self._config.copy_max_ms,
            gate=self.waits.gate(EXPIRE),
        )

    def _run(
        self,
        known: AssignedPartition,
        ownership: Ownership,
        pool: str,
        task: MakeTask,
        ended: Ended,
    ) -> None:
        """Run a task in a pool; its end is dropped if the ownership is over by then."""
        run = TaskRun(self._world, known, ownership, pool, task, ended)
        self._workers.run(pool, run.job, run.done)

    def _pass_ended(
        self,
        each: Pass,
        known: AssignedPartition,
        result: PassResult | None,
        error: BaseException | None,
    ) -> None:
        each.running = False
        goes_on = result is not None and result.again_in_ms == 0
        if not goes_on:
            each.ends.ended()
        self._world.telemetry.passed(known.tip.topic, each.kind)
        if isinstance(error, CallHangsError):
            self.waits.gate(each.kind).failed(known.tip, error)
        if error is None:
            assert result is not None
            is_held = result.is_held
            if result.red and result.red != each.red:
                log.error("%s: %s", known.tip.topic_partition, result.red)
            delay_ms = each.passed(result, self._config.task_interval_ms)
        elif self._ends_ownership(known, error):
            return
        else:
            is_held = False  # it may be the only one that fails: it comes again by its own pauses
            each.failed(error)
            delay_ms = each.backoff.next_ms()
            if each.kind == COPY and isinstance(error, RemoteStorageError):
                self._start(known, known.passes[EXPIRE])  # its STARTED id is dangling now
        if goes_on:
            self._start(known, each)  # behind those that wait
        else:
            each.timer = self._scheduler.call_later(delay_ms, partial(self._start, known, each))
        self.waits.ended(each.kind, known.tip, is_held=is_held)

    def _ends_ownership(self, known: AssignedPartition, error: BaseException) -> bool:
        """Whether the ownership is over by this error; what follows is arranged here."""
        if isinstance(error, TaskCancelledError | LinkEndedError):
            return True
        if isinstance(error, MetadataWriteTimeoutError | MetadataNotReadyError):
            log.warning("ownership of %s ends: %r", known.tip.topic_partition, error)
            known.red = TierRed.METADATA.text(error=error)
            self._own_again(known, fresh=True)
            return True
        if isinstance(error, MetadataRefusedError):
            log.info("a write was refused: partition=%s %s", known.tip.topic_partition, error)
            return False
        if isinstance(error, LinkFailureError):
            # The broker does not lead it under this epoch any more; its word about it is on
            # the way.
            return False
        if not isinstance(error, RemoteStorageError):
            log.error("a pass failed: partition=%s", known.tip.topic_partition, exc_info=error)
        return False

    def _new_backoff(self) -> Backoff:
        config = self._config
        return Backoff(
            config.retry_backoff_ms,
            config.retry_backoff_max_ms,
            config.retry_jitter,
            self._world.dice,
        )

    # -- health

    @property
    def copy_quota(self) -> RateQuota:
        """For metrics."""
        return self._copy_quota
