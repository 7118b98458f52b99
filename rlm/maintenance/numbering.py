"""The incarnation under which partitions are owned: taken in a pool, once for many partitions.

A number is used only once it is durable, which waits for a disk. A partition without one waits for
it, and is not owned meanwhile.
"""

from collections.abc import Callable
from typing import Final

from rlm.maintenance.assigned_partition import AssignedPartition
from rlm.workers import VALIDATION_POOL, Workers
from runtime.scheduler import Scheduler

SLICE_PARTITIONS: Final = 200
"""Some milliseconds of the tier's thread."""

Numbered = Callable[[AssignedPartition, BaseException | None], None]


class Numbering:
    """Belongs to the manager's thread.

    Attributes:
        last: The last number that was taken.
    """

    def __init__(
        self,
        take: Callable[[int], int],
        workers: Workers,
        scheduler: Scheduler,
        numbered: Numbered,
    ) -> None:
        """Take nothing yet.

        Args:
            take: The next number above the given one, durably; called in a pool.
            workers: Thread pools.
            scheduler: Of the manager's thread.
            numbered: Called for each partition that waited, with the error if there was one.
        """
        self._take_number, self._workers, self._scheduler = take, workers, scheduler
        self._numbered = numbered
        self._waiting: dict[tuple[bytes, int], AssignedPartition] = {}
        self._is_taking = False
        self.last: int | None = None

    def number_for(self, known: AssignedPartition) -> int | None:
        """A durable number above `known.above`, or None.

        After None the partition waits, and `numbered` is called in a later iteration of the loop.
        For partitions whose ownership ends together, the first takes the number for all.
        """
        if self.last is not None and self.last > known.above:
            return self.last
        self._waiting[known.tip.topic_id, known.tip.partition] = known
        if not self._is_taking:
            self._is_taking = True
            # The pool in which the partition is validated afterwards: a wait here is a wait there,
            # too.
            above = known.above
            self._workers.run(VALIDATION_POOL, lambda: self._take_number(above), self._taken)
        return None

    def _taken(self, number: int | None, error: BaseException | None) -> None:
        self._is_taking = False
        if number is not None:
            self.last = number
        waiting, self._waiting = list(self._waiting.values()), {}
        self._continue(waiting, error)

    def _continue(self, waiting: list[AssignedPartition], error: BaseException | None) -> None:
        for known in waiting[:SLICE_PARTITIONS]:
            self._numbered(known, error)
        rest = waiting[SLICE_PARTITIONS:]
        if rest:
            self._scheduler.call_later(0, lambda: self._continue(rest, error))
