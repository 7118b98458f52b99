"""Followed partitions: which local segments their broker may drop after copies by other owners.

Nothing is written, copied or deleted for a followed partition. Its tier reads the metadata topic,
and reports how far the copied run reaches on the follower's *own* epoch chain. The report stays
below the follower's own high watermark. It is made at every interval, after a read to the topic's
present end: an earlier read does not show the present state. So a follower expires by its local
retention, and is ready to lead without reading the topic again.

Source: docs/tiering.md; KIP-405, "Follower Replication".
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from rlm.catch_ups import CatchUps
from rlm.config import TierConfig
from rlm.link.endpoint import LinkEndedError, LinkFailureError
from rlm.maintenance.assigned_partition import AssignedPartition
from rlm.maintenance.copy_task import copied_through_report, withdraw_validation
from rlm.maintenance.effects import PassResult, Report, Task, Validate
from rlm.maintenance.log_facts import LogFacts
from rlm.maintenance.ownership import Ownership
from rlm.maintenance.performer import World
from rlm.maintenance.task_run import MakeTask, TaskRun
from rlm.workers import VALIDATION_POOL, Workers
from rlmm.api import Fence, MetadataNotReadyError
from runtime.health_reasons import HEALTHY, HealthReason
from runtime.rng import Backoff
from runtime.scheduler import Scheduler, Timer

NO_INCARNATION: Final = -1
"""Incarnation of a follower, which writes nothing."""
CATCH_UP_MS: Final = 180_000
_LATE: Final = f"the metadata topic was not read to its end in {CATCH_UP_MS // 1_000} s"


def follow_pass() -> Task[PassResult]:
    """Report the copied run of a followed partition, from the records read so far."""
    facts: LogFacts = yield Validate(closed_segments=False)
    # A hole needs no report: the run ends before it, and nothing above is dropped.
    yield Report(copied_through_report(facts))
    return PassResult()


class Following:
    """The followed partitions of a tier; belongs to the manager's thread.

    Attributes:
        catch_ups: Shared with reads and bootstraps.
    """

    def __init__(
        self,
        world: World,
        workers: Workers,
        scheduler: Scheduler,
        config: TierConfig,
        *,
        may_report: Callable[[], bool],
        new_backoff: Callable[[], Backoff],
    ) -> None:
        """Follow nothing.

        Args:
            world: Collaborators of all tasks.
            workers: Thread pools.
            scheduler: Timers.
            config: Settings.
            may_report: True if the topic can be relied on: the claim was not refused.
            new_backoff: Pauses after failures.
        """
        self._world, self._workers, self._scheduler = world, workers, scheduler
        self._interval_ms, self._may_report = config.task_interval_ms, may_report
        self._new_backoff = new_backoff
        self.catch_ups = CatchUps(world.metadata, workers)

    def begin(self, known: AssignedPartition) -> None:
        """Read along until the partition's ownership ends."""
        self._world.metadata.follow(known.tip)
        known.ownership = Ownership(known.tip, Fence(known.leader_epoch, NO_INCARNATION))
        self._run(known)

    def lost_records(self, known: AssignedPartition) -> None:
        """Withdraw reports that may rest on lost records, and begin again."""
        known.end_ownership()
        known.ownership = Ownership(known.tip, Fence(known.leader_epoch, NO_INCARNATION))
        self._run(known, withdraws=True)

    def _run(self, known: AssignedPartition, *, withdraws: bool = False) -> None:
        ownership = known.ownership
        if ownership is None:
            return
        known.own_timer = None
        if withdraws or not self._may_report():
            tip = known.tip
            ownership.last_report = None
            task = partial(withdraw_validation, tip.topic_id, tip.partition, known.leader_epoch)
            self._start(known, ownership, task, withdraws=withdraws)
            return

        # A timer instead of a waiting thread: the pool is free for others while the topic has no
        # leader.
        def late() -> None:
            self.catch_ups.leave(known.tip, read)
            self._ended(False, known, None, MetadataNotReadyError(_LATE))

        timer = known.own_timer = self._scheduler.call_later(CATCH_UP_MS, late)
        read = partial(self._read, known, ownership, timer)
        self.catch_ups.join(known.tip, read)

    def _read(
        self,
        known: AssignedPartition,
        ownership: Ownership,
        timer: Timer,
        error: BaseException | None,
    ) -> None:
        """All records that the topic held when this pass began are read, or reading failed."""
        if known.ownership is not ownership or known.own_timer is not timer:
            return
        timer.cancel()
        known.own_timer = None
        if error is None:
            # The report is sent each time. The broker drops it at the log's first batch of a leader
            # epoch, and no other report follows before the next copy.
            ownership.last_report = None
            self._start(known, ownership, follow_pass, withdraws=False)
        else:
            self._ended(False, known, None, error)

    def _start(
        self, known: AssignedPartition, ownership: Ownership, task: MakeTask, *, withdraws: bool
    ) -> None:
        ended = partial(self._ended, withdraws)
        TaskRun(self._world, known, ownership, VALIDATION_POOL, task, ended).start(self._workers)

    def _ended(
        self,
        has_withdrawn: bool,
        known: AssignedPartition,
        _: PassResult | None,
        error: BaseException | None,
    ) -> None:
        if isinstance(error, LinkEndedError):
            return
        delay_ms: float = 0 if has_withdrawn else self._interval_ms
        if error is None:
            known.own_backoff, known.unhealthy = None, HEALTHY
        else:
            known.own_backoff = known.own_backoff or self._new_backoff()
            delay_ms = known.own_backoff.next_ms()
            if not isinstance(error, LinkFailureError):  # else its next assignment is on the way
                known.unhealthy = HealthReason.METADATA.text(error=error)
        again = partial(self._run, known, withdraws=has_withdrawn and error is not None)
        known.own_timer = self._scheduler.call_later(delay_ms, again)
