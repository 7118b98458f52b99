"""The incarnation that partitions are owned under: taken beside the loop, for many at once.

A number is used only when it is durable, and that waits for a disk. A partition without one waits
for it, and owns nothing meanwhile.
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
        last: the last number that was taken.
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
            take: the next number above the given one, durably; called in a pool.
            workers: pools.
            scheduler: of the manager's thread.
            numbered: called for each that waited, with what went wrong.
        """
        self._take_number, self._workers, self._scheduler = take, workers, scheduler
        self._numbered = numbered
        self._waiting: dict[tuple[bytes, int], AssignedPartition] = {}
        self._is_taking = False
        self.last: int | None = None

    def number_for(self, known: AssignedPartition) -> int | None:
        """One above `known.above`; None.

        It waits, and `numbered` is called in a later iteration of the loop.

        Of partitions whose ownership ends together the first takes it for all.
        """
        if self.last is not None and self.last > known.above:
            return self.last
        self._waiting[known.tip.topic_id, known.tip.partition] = known
        if not self._is_taking:
            self._is_taking = True
            # After it a partition is validated, in the same pool: there it would wait as long.
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
