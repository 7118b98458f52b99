"""One run of a task in a pool.

Thousands of passes wait for a thread at a time. So a run is one object, and makes its task when it
begins: whatever waits is looked at again and again by the garbage collector, with all threads held.
"""

from collections.abc import Callable

from rlm.upkeep.assigned_partition import AssignedPartition
from rlm.upkeep.effects import PassResult, Task
from rlm.upkeep.hanging_calls import CallHangsError
from rlm.upkeep.ownership import Ownership
from rlm.upkeep.performer import Performer, World, run_task
from rlm.workers import Workers

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
        """Do nothing yet; `ended` is called on the manager's thread unless it is over by then."""
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
        """It has ended, or was given up: the first counts."""
        if not self._is_over and self._known.ownership is self._ownership:
            self._is_over = True
            self._ended(self._known, result, error)

    def _given_up(self) -> None:
        self.done(None, CallHangsError("a call of the plugin hangs"))
