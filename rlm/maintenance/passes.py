"""Passes of owned partitions: when each runs, in which pool, and what follows its end.

Two kinds, copying and expiring, run at once and then every interval, each kind one at a time.
Copying is cut into slices (`copy_policy`), within a quota (`throttled_copies`). A failed pass
returns after a backoff or, if the store fails, when it works again (`held_passes`). A write of
unknown outcome ends the ownership.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from kafka_protocol.types import TopicIdPartition
from rlm.config import TierConfig
from rlm.link.endpoint import LinkEndedError, LinkFailureError
from rlm.maintenance.assigned_partition import COPY, EXPIRE, AssignedPartition, CountDown, Pass
from rlm.maintenance.census import PartitionKey
from rlm.maintenance.copy_task import copy_pass
from rlm.maintenance.effects import PassResult, Task
from rlm.maintenance.expiration_task import expiration_pass
from rlm.maintenance.held_passes import StoreWaits
from rlm.maintenance.ownership import CallHangsError, Ownership
from rlm.maintenance.performer import World
from rlm.maintenance.task_run import CopyQueue, TaskRun
from rlm.maintenance.throttled_copies import ThrottledCopies
from rlm.plugin_calls import StoreClosedError, TaskCancelledError
from rlm.workers import COPIER_POOL, EXPIRATION_POOL, Workers
from rlmm.api import (
    MetadataError,
    MetadataNotReadyError,
    MetadataRefusedError,
    MetadataWriteTimeoutError,
)
from rsm_plugins.api import RemoteStorageError
from runtime.health_reasons import HealthReason
from runtime.incidents import Incident
from runtime.log_context import limited
from runtime.rng import Backoff
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)


class Passes:
    """Belongs to the manager's thread; passes run in pools and come back to it.

    Attributes:
        throttled: Passes that wait for the copy quota.
        waits: Passes that wait for the store.
    """

    def __init__(
        self,
        config: TierConfig,
        world: World,
        workers: Workers,
        scheduler: Scheduler,
        partitions: Mapping[PartitionKey, AssignedPartition],
        *,
        own_again: Callable[[AssignedPartition], None],
    ) -> None:
        """Run none.

        Args:
            config: Settings.
            world: Collaborators of all tasks.
            workers: Thread pools.
            scheduler: Timers.
            partitions: The assigned ones.
            own_again: Ends the ownership and begins the next, under a new incarnation.
        """
        self._config, self._world, self._workers = config, world, workers
        self._scheduler, self._partitions = scheduler, partitions
        self._own_again = own_again
        self._copies = CopyQueue(workers)
        start_copy = partial(self._start_kind, COPY)
        self.throttled = ThrottledCopies(start_copy, workers.post, config, world.clock, scheduler)
        self.waits = StoreWaits(self._start_kind, self.new_backoff, scheduler)

    def reconfigure(self, config: TierConfig) -> None:
        """Use the limits of `config` from now on."""
        self._config = config
        self.throttled.reconfigure(config)

    def wait_no_more(self, tip: TopicIdPartition) -> None:
        """Drop the partition's passes that wait for the store or for the quota."""
        self.waits.forget(tip)
        self.throttled.forget((tip.topic_id, tip.partition))

    def begin(self, known: AssignedPartition) -> None:
        """Begin the passes of a partition that is owned and settled."""
        known.passes = {kind: Pass(kind, self.new_backoff()) for kind in (COPY, EXPIRE)}
        self.run_soon(known)

    def run_soon(self, known: AssignedPartition) -> None:
        """Start both passes of a partition, if it is ready."""
        if known.ready:
            for each in known.passes.values():
                self._start(known, each)

    def run_now(self, done: Callable[[], None]) -> None:
        """Start both passes of each ready partition; `done` is called once all have ended.

        A pass that runs already does not count: another follows it. All of them try the store.
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
        if ownership is None:
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
            self._copies.run(run, each.priority)
        else:
            task = partial(self._expire_task, known, ownership)
            run = TaskRun(self._world, known, ownership, EXPIRATION_POOL, task, ended)
            run.start(self._workers)

    def _copy_task(self, known: AssignedPartition) -> Task[PassResult]:
        settings = known.settings
        return copy_pass(
            known.tip,
            settings,
            broker_id=self._config.node_id,
            custom_metadata_bytes_max=self._config.custom_metadata_bytes_max,
            throttle_ms=partial(self.throttled.throttle_ms, known.tip[:2]),
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

    def _pass_ended(
        self,
        each: Pass,
        known: AssignedPartition,
        result: PassResult | None,
        error: BaseException | None,
    ) -> None:
        each.running = False
        continues = result is not None and result.again_in_ms == 0
        if not continues:
            each.ends.ended()
        self._world.telemetry.passed(known.tip.topic, each.kind)
        if isinstance(error, CallHangsError):
            self.waits.gate(each.kind).failed(known.tip, error)
        if error is None:
            assert result is not None
            is_held = result.is_held
            if result.unhealthy and result.unhealthy != each.unhealthy:
                log.error("%s: %s", known.tip.topic_partition, result.unhealthy)
            delay_ms = each.passed(result, self._config.task_interval_ms)
        elif self._ends_ownership(known, error):
            return
        else:
            is_held = False  # perhaps the only one that fails: it returns by its own pauses
            each.failed(error)
            delay_ms = each.backoff.next_ms()
            if each.kind == COPY and isinstance(error, RemoteStorageError):
                if not isinstance(error, StoreClosedError):
                    self._world.telemetry.copy_failed(known.tip.topic, error)
                self._start(known, known.passes[EXPIRE])  # its STARTED id is dangling now
        if continues:
            self._start(known, each)  # behind those that wait
        else:
            each.timer = self._scheduler.call_later(delay_ms, partial(self._start, known, each))
        failed = isinstance(error, RemoteStorageError)
        self.waits.ended(each.kind, known.tip, is_held=is_held, failed=failed)
        if each.kind == COPY:
            is_throttled = result is not None and result.is_throttled
            key = (known.tip.topic_id, known.tip.partition)
            self.throttled.ended(key, is_throttled=is_throttled)

    def _ends_ownership(self, known: AssignedPartition, error: BaseException) -> bool:
        """True if the ownership is over by this error; arranges the next steps."""
        if isinstance(error, TaskCancelledError | LinkEndedError):
            return True
        if isinstance(error, MetadataWriteTimeoutError | MetadataNotReadyError):
            log.warning("ownership of %s ends: %r", known.tip.topic_partition, error)
            known.unhealthy = HealthReason.METADATA.text(error=error)
            self._own_again(known)
            return True
        if isinstance(error, MetadataRefusedError):
            log.info("a write was refused: partition=%s %s", known.tip.topic_partition, error)
            return False
        if isinstance(error, LinkFailureError):
            # The broker no longer leads the partition under this epoch; its next assignment is on
            # the way.
            return False
        name = f"pass of {known.tip.topic_partition}"
        if isinstance(error, OSError | MetadataError):
            limited.error(log, Incident.TASK_FAILED.line(task=name, error=error), name)
        elif not isinstance(error, RemoteStorageError):
            line = Incident.DEFECT.line(what=f"{name} failed")
            limited.error(log, line, name, exc_info=error)
        return False

    def new_backoff(self) -> Backoff:
        """Pauses after repeated failures of one kind."""
        config = self._config
        return Backoff(
            config.retry_backoff_ms,
            config.retry_backoff_max_ms,
            config.retry_jitter,
            self._world.rng,
        )
