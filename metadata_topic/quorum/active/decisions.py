"""One decision of the active controller: requested, taken, committed, answered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from metadata_topic.controller.result import Decided
from metadata_topic.image.image import MetadataImage
from runtime.scheduler import Timer

R = TypeVar("R")

Decide = Callable[[MetadataImage], Decided[R]]
"""A controller function on an image, at once or in steps; it may be called twice."""


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """The decision is committed and visible on this node."""

    response: R


@dataclass(frozen=True, slots=True)
class Failed:
    """No response: nothing was decided, or the outcome is unknown here."""

    error: BaseException


Outcome = Done[R] | Failed


def ignore_place(_end_offset: int) -> None:
    """Ignore the place of a decision in the log."""


class Decision(Generic[R]):
    """One decision; its caller gets exactly one outcome.

    Attributes:
        decide: See `Decide`.
        placed: Called with the first offset after the decision, once its place in the log is
            known and before the next decision.
        outcome: Answer for the time when `end_offset` is committed; None until it is decided.
        end_offset: Everything below (exclusive) must be committed before the answer.
        elections, unclean_elections: Number of partitions that get another leader by it.
        size_bytes: Of its records in the log, 0 for a decision without any.
        asked_ms, placed_ms: Times of the request and of its place, by the monotonic clock.
        timer: Ends the wait of its caller; set by the queue.
    """

    __slots__ = (
        "_done",
        "asked_ms",
        "decide",
        "elections",
        "end_offset",
        "outcome",
        "placed",
        "placed_ms",
        "size_bytes",
        "timer",
        "unclean_elections",
    )

    def __init__(
        self,
        decide: Decide[R],
        done: Callable[[Outcome[R]], None],
        *,
        asked_ms: int,
        placed: Callable[[int], None] = ignore_place,
    ) -> None:
        self.decide = decide
        self.placed = placed
        self.asked_ms = self.placed_ms = asked_ms
        self.outcome: Outcome[R] | None = None
        self.end_offset = -1
        self.size_bytes = self.elections = self.unclean_elections = 0
        self.timer: Timer | None = None
        self._done: Callable[[Outcome[R]], None] | None = done

    def answer(self, outcome: Outcome[R]) -> None:
        """Give the caller its outcome, unless it has one already."""
        done, self._done = self._done, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if done is not None:
            done(outcome)
