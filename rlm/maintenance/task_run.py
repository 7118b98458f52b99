"""One run of a task in a pool.

Thousands of passes may wait for a thread. The garbage collector visits waiting objects again and
again, while all threads are stopped. So a run is one object, and makes its task when it begins.
"""

import heapq
from collections.abc import Callable
from itertools import count
from threading import Lock
from typing import TypeAlias

from rlm.maintenance.assigned_partition import AssignedPartition
from rlm.maintenance.copy_policy import CopyPriority, queue_key
from rlm.maintenance.effects import PassResult, Task
from rlm.maintenance.ownership import CallHangsError, Ownership
from rlm.maintenance.performer import Performer, World, run_task
from rlm.workers import COPIER_POOL, Workers

MakeTask = Callable[[], Task[PassResult]]
Ended = Callable[[AssignedPartition, PassResult | None, BaseException | None], None]


class TaskRun:
    """A task of one ownership."""

    __slots__ = ("_ended", "_is_over", "_known", "_make", "_ownership", "_pool", "_world")

    def __init__(
        self,
        world: World,
        known: AssignedPartition,
        ownership: Ownership,
        pool: str,
        make: MakeTask,
        ended: Ended,
    ) -> None:
        """Do nothing yet.

        `ended` is called on the manager's thread, unless the ownership is over.
        """
        self._world, self._known, self._ownership, self._pool = world, known, ownership, pool
        self._make, self._ended, self._is_over = make, ended, False

    def start(self, workers: Workers) -> None:
        """Run it in its pool; its end is dropped if the ownership is over by then."""
        workers.run(self._pool, self.job, self.done)

    def job(self) -> PassResult:
        """Run it; in a thread of the pool."""
        performer = Performer(self._world, self._ownership, self._pool, self._given_up)
        try:
            return run_task(self._make(), performer)
        finally:
            performer.end()

    def done(self, result: PassResult | None, error: BaseException | None) -> None:
        """The run has ended, or was abandoned: the first call counts."""
        if not self._is_over and self._known.ownership is self._ownership:
            self._is_over = True
            self._ended(self._known, result, error)

    def _given_up(self) -> None:
        self.done(None, CallHangsError("a call of the plugin hangs"))


_Outcome: TypeAlias = tuple[TaskRun, PassResult | None, BaseException | None]


class CopyQueue:
    """One queue for all partitions; at most one pass of each ownership waits in it.

    The pool has its own queue of jobs. The pass that a job runs is chosen when the job begins. So
    the pool's size and abandoned threads concern the pool alone.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers, self._lock = workers, Lock()
        self._waiting: list[tuple[tuple[int, float], int, TaskRun, CopyPriority]] = []
        self._arrivals, self._round = count(), 0

    def run(self, run: TaskRun, priority: CopyPriority) -> None:
        """Run a pass in its turn; `priority` is updated then."""
        with self._lock:
            entry = (queue_key(priority, self._round), next(self._arrivals), run, priority)
            heapq.heappush(self._waiting, entry)
        self._workers.run(COPIER_POOL, self._run_next, self._ended)

    def _run_next(self) -> _Outcome:
        """In a thread of the pool."""
        with self._lock:
            (self._round, _), _, run, priority = heapq.heappop(self._waiting)
            priority.round = self._round
        try:
            return run, run.job(), None
        except Exception as error:  # noqa: BLE001 - handed to the end of this run
            return run, None, error

    def _ended(self, outcome: _Outcome | None, error: BaseException | None) -> None:
        assert outcome is not None, f"the queue failed: {error!r}"
        run, result, raised = outcome
        run.done(result, raised)
