"""Copying passes that wait for a thread, in the order of their turns (`rlm.upkeep.copy_turns`).

The pool keeps its own queue, of threads to come: which pass one of them runs is chosen when it
begins. So the pool's size, and threads that are given up, are the pool's business alone.
"""

import heapq
from itertools import count
from threading import Lock
from typing import TypeAlias

from rlm.upkeep.copy_turns import CopyTurn, place
from rlm.upkeep.effects import PassResult
from rlm.upkeep.task_run import TaskRun
from rlm.workers import COPIER_POOL, Workers

_Outcome: TypeAlias = tuple[TaskRun, PassResult | None, BaseException | None]


class CopyQueue:
    """One for all partitions; at most one pass of each ownership waits in it."""

    def __init__(self, workers: Workers) -> None:
        self._workers, self._lock = workers, Lock()
        self._waiting: list[tuple[tuple[int, float], int, TaskRun, CopyTurn]] = []
        self._arrivals, self._round = count(), 0

    def run(self, run: TaskRun, turn: CopyTurn) -> None:
        """Run a pass when its turn has come; `turn` is written to then."""
        with self._lock:
            entry = (place(turn, self._round), next(self._arrivals), run, turn)
            heapq.heappush(self._waiting, entry)
        self._workers.run(COPIER_POOL, self._run_next, self._ended)

    def _run_next(self) -> _Outcome:
        """In a thread of the pool."""
        with self._lock:
            (self._round, _), _, run, turn = heapq.heappop(self._waiting)
            turn.round = self._round
        try:
            return run, run.job(), None
        except Exception as error:  # noqa: BLE001 - handed to the end of this run
            return run, None, error

    def _ended(self, outcome: _Outcome | None, error: BaseException | None) -> None:
        assert outcome is not None, f"the queue failed: {error!r}"
        run, result, raised = outcome
        run.done(result, raised)
