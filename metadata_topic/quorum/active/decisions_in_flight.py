"""Queues of decisions that are not taken yet, and of those that are not committed yet."""

from collections import deque
from functools import partial
from typing import Any

from metadata_topic.quorum.active.controller_metrics import ControllerMetrics
from metadata_topic.quorum.active.decisions import Decision, Failed
from metadata_topic.quorum.active.ports import ControllerWorld
from metadata_topic.quorum.active.submit import DecisionTimedOut
from runtime.clock import Clock


class WaitingDecisions:
    """Queue of decisions, in the order of their requests.

    At its timeout a caller gets DecisionTimedOut, wherever its decision is. A decision that still
    waits is dropped then; one in progress is completed.
    """

    __slots__ = ("_number", "_waiting", "_world")

    def __init__(self, world: ControllerWorld) -> None:
        """Begin empty."""
        self._world = world
        self._number = 0
        self._waiting: dict[int, Decision[Any]] = {}

    def __len__(self) -> int:
        """Number of waiting decisions."""
        return len(self._waiting)

    def add(self, decision: Decision[Any], *, timeout_ms: int | None) -> None:
        """Queue a decision.

        Args:
            decision: The request.
            timeout_ms: Longest wait of its caller; None without a caller.
        """
        self._number += 1
        self._waiting[self._number] = decision
        if timeout_ms is not None:
            late = partial(self._late, self._number, decision)
            decision.timer = self._world.scheduler.call_later(timeout_ms, late)

    def take(self) -> Decision[Any]:
        """Remove and return the oldest; the queue must not be empty."""
        return self._waiting.pop(next(iter(self._waiting)))

    def take_all(self) -> list[Decision[Any]]:
        """Remove and return all, the oldest first."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        return waiting

    def _late(self, number: int, decision: Decision[Any]) -> None:
        text = "the change was not committed in time; it may be carried out or not"
        if self._waiting.pop(number, None) is not None:
            self._world.metrics.timed_out.inc()
            text = "the change waited for others until its time was over; it is not carried out"
        decision.answer(Failed(DecisionTimedOut(text)))


class DecisionsInFlight:
    """Answers decisions once they are committed, in order.

    A decision without records waits as well: its answer may depend on earlier decisions.

    Attributes:
        uncommitted_bytes: Of the records of all that are in flight.
    """

    __slots__ = ("_clock", "_in_flight", "_metrics", "_ready", "uncommitted_bytes")

    def __init__(self, clock: Clock, metrics: ControllerMetrics) -> None:
        """Begin empty, with nothing committed."""
        self.uncommitted_bytes = 0
        self._clock, self._metrics = clock, metrics
        self._in_flight: deque[Decision[Any]] = deque()
        self._ready = 0

    def __len__(self) -> int:
        """Number of decisions in flight."""
        return len(self._in_flight)

    def add(self, decision: Decision[Any]) -> None:
        """Add the newest decision, with its outcome and end offset."""
        self._in_flight.append(decision)
        self.uncommitted_bytes += decision.size_bytes

    def settle(self, ready: int = 0) -> None:
        """Answer decisions below `ready` (exclusive), which is committed and visible here."""
        self._ready = max(self._ready, ready)
        while self._in_flight and self._in_flight[0].end_offset <= self._ready:
            decision = self._in_flight.popleft()
            if decision.size_bytes:
                self.uncommitted_bytes -= decision.size_bytes
                now_ms = self._clock.monotonic_ms()
                self._metrics.commit_time_ms.observe(now_ms - decision.placed_ms)
                if decision.elections:
                    self._metrics.elections_ms.observe(now_ms - decision.asked_ms)
                    self._metrics.unclean_elections.inc(decision.unclean_elections)
            assert decision.outcome is not None
            decision.answer(decision.outcome)

    def take_above(self, end_offset: int) -> list[Decision[Any]]:
        """Remove decisions that end above `end_offset`, without an answer, the oldest first."""
        taken: list[Decision[Any]] = []
        while self._in_flight and self._in_flight[-1].end_offset > end_offset:
            decision = self._in_flight.pop()
            self.uncommitted_bytes -= decision.size_bytes
            taken.append(decision)
        return taken[::-1]

    def take_all(self) -> list[Decision[Any]]:
        """Remove all without an answer, the oldest first."""
        return self.take_above(-1)
