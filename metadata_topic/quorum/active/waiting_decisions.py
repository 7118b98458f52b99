"""Decisions that wait for their turn, and how long their callers do."""

from functools import partial
from typing import Any

from metadata_topic.quorum.active.deadlines import DecisionTimedOut
from metadata_topic.quorum.active.decisions import Decision, Failed
from metadata_topic.quorum.active.ports import ControllerWorld


class WaitingDecisions:
    """Hands out decisions in the order in which they were asked for.

    A caller whose time is over hears so, wherever its decision is by then. One that still waits for
    its turn is not taken any more; one that was begun is carried through.
    """

    __slots__ = ("_number", "_waiting", "_world")

    def __init__(self, world: ControllerWorld) -> None:
        """Begin with none."""
        self._world = world
        self._number = 0
        self._waiting: dict[int, Decision[Any]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, decision: Decision[Any], *, timeout_ms: int | None) -> None:
        """Queue a decision.

        Args:
            decision: what is asked for.
            timeout_ms: so long its caller waits at most; None: nobody waits for it.
        """
        self._number += 1
        self._waiting[self._number] = decision
        if timeout_ms is not None:
            late = partial(self._late, self._number, decision)
            decision.timer = self._world.scheduler.call_later(timeout_ms, late)

    def take(self) -> Decision[Any]:
        """Take out the oldest; there is one."""
        return self._waiting.pop(next(iter(self._waiting)))

    def take_all(self) -> list[Decision[Any]]:
        """Take out all, the oldest first."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        return waiting

    def _late(self, number: int, decision: Decision[Any]) -> None:
        text = "the change was not committed in time; it may be carried out or not"
        if self._waiting.pop(number, None) is not None:
            self._world.metrics.timed_out.inc()
            text = "the change waited for others until its time was over; it is not carried out"
        decision.answer(Failed(DecisionTimedOut(text)))
