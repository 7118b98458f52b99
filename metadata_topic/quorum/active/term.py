"""One term of the active controller: decisions in flight on the newest decided image.

A decision goes through four stages, always in the order of the requests. It waits
(`WaitingDecisions`). It is taken here, in steps if it is large, with other work of the loop in
between. It is gathered with others into one append (`decision_appends`). It is in flight until it
is committed and visible here (`DecisionsInFlight`). Only then it is answered.

Each is taken on the *decided* image: the committed one and all decisions since. So its answer, also
a refusal, may depend on records that are not committed yet. Therefore an answer without records,
too, waits until all earlier decisions are committed.

Nothing of a term outlives it. At its end a caller whose change is not written gets
NotControllerError: a broker then asks the next controller. A caller whose records may be in the log
gets DecisionTimedOut, and the client decides whether to retry. DIFFERS: Kafka answers
NOT_CONTROLLER to both, and its brokers make a change twice.

Callback-based, on the loop's thread.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from kafka_protocol.errors import KafkaError
from metadata_topic.controller.errors import NotControllerError, UnwrittenDecisionError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import make
from metadata_topic.quorum.active.activation import begin_term, first_decisions
from metadata_topic.quorum.active.decision_appends import DecisionAppends
from metadata_topic.quorum.active.decisions import Decide, Decision, Done, Failed, Outcome
from metadata_topic.quorum.active.decisions_in_flight import DecisionsInFlight, WaitingDecisions
from metadata_topic.quorum.active.no_op_timer import NoOpTimer
from metadata_topic.quorum.active.ports import ControllerWorld
from metadata_topic.quorum.active.submit import DecisionTimedOut
from metadata_topic.quorum.log.decision_batches import (
    BatchPlace,
    PreparedDecision,
    decide_and_prepare,
)
from runtime.collector import collect_after_step
from runtime.scheduler import Timer
from runtime.work import Steps

_DECISIONS_PER_SLICE: Final = 8
"""Small decisions taken without a pause: some milliseconds."""


class ControllerTerm:
    """The decisions of one term.

    Attributes:
        epoch: Of the quorum.
        decided: The newest decided image.
        is_over: The term has ended.
    """

    def __init__(
        self, world: ControllerWorld, epoch: int, image: MetadataImage, fail: Callable[[str], None]
    ) -> None:
        """Begin a term; `begin` takes its first decisions.

        Args:
            world: Ports of the controller.
            epoch: Of the quorum, led by this node.
            image: Has all records before the log's end, except those of an open transaction.
            fail: Called with the reason if the term cannot continue.
        """
        self.epoch = epoch
        self.decided = image
        self.is_over = False
        self._world = world
        self._settings = world.settings
        self._fail = fail
        self._waiting = WaitingDecisions(world)
        self._current: Decision[Any] | None = None
        self._begun_ms = 0
        self._steps: Steps[tuple[Any, PreparedDecision | None]] | None = None
        self._appends = DecisionAppends(world, epoch, self)
        self._appended: MetadataImage | None = None
        self._in_flight = DecisionsInFlight(world.clock, world.metrics)
        self._slice_timer: Timer | None = None
        self._quiet: Callable[[], None] | None = None
        self._no_op_timer = NoOpTimer(
            world,
            wrote_ms=lambda: self._appends.wrote_ms,
            is_idle=lambda: self.decision_count == 0,
            write=lambda: self._add_own(_no_op, _ignore),
        )

    @property
    def decision_count(self) -> int:
        """Number of decisions that wait, are in progress, or are not committed yet."""
        return len(self._waiting) + len(self._in_flight) + (self._current is not None)

    @property
    def is_appended(self) -> bool:
        """True if all decisions taken are in the log."""
        return self._appends.is_empty

    # -- begin and end --------------------------------------------------------------------------

    def begin(self) -> None:
        """Queue the first decisions of a controller, and start the NoOp timer."""
        beginning = begin_term(self.decided, self._place(self._world.log.log_end()))
        self.decided = beginning.image
        if beginning.data is not None:
            self._appends.add(beginning.data)
        settings = self._settings
        for decide in first_decisions(
            settings.bootstrap,
            min_insync_replicas=settings.election_defaults.min_isr,
            registration=settings.registration,
        ):
            self._add_own(decide, self._first_taken)
        self._no_op_timer.start()

    def _first_taken(self, outcome: Outcome[None]) -> None:
        if isinstance(outcome, Failed) and not self.is_over:
            self._fail(f"the first records of a controller cannot be written: {outcome.error}")

    def end(self, why: str) -> None:
        """Drop all decisions that are not committed, with an answer to each caller."""
        self.is_over = True
        if self._slice_timer is not None:
            self._slice_timer.cancel()
        self._no_op_timer.cancel()
        self._appends.stop()
        current = self._take_current()
        for decision in [*self._in_flight.take_all(), *current, *self._waiting.take_all()]:
            error: KafkaError = NotControllerError(f"{why}; the change is not carried out")
            if decision.size_bytes:
                error = DecisionTimedOut(f"{why}; the change may be carried out or not")
            decision.answer(Failed(error))

    def _take_current(self) -> list[Decision[Any]]:
        """Remove the decision in progress, if any, without an answer."""
        current = [] if self._current is None else [self._current]
        if self._steps is not None:
            self._steps.close()
        self._current = self._steps = None
        return current

    # -- decisions ------------------------------------------------------------------------------

    def add(self, decision: Decision[Any], timeout_ms: int) -> None:
        """Queue a decision with the longest wait of its caller."""
        self._waiting.add(decision, timeout_ms=timeout_ms)
        self._arm()

    def _add_own(self, decide: Decide[None], done: Callable[[Outcome[None]], None]) -> None:
        """Queue a decision without a caller, and so without a timeout."""
        self._waiting.add(Decision(decide, done, asked_ms=self._now()), timeout_ms=None)
        self._arm()

    def when_quiet(self, do: Callable[[], None]) -> None:
        """Call `do` once the log has all decisions taken; waiting decisions come after it."""
        self._quiet = do
        self._arm()

    def _is_quiet_now(self) -> bool:
        """Call the waiting function if the log has all decisions taken; else `on_appended` does."""
        if self._quiet is None:
            return True
        if self._appends.is_empty:
            quiet, self._quiet = self._quiet, None
            quiet()
        return self._quiet is None and not self.is_over

    def _arm(self) -> None:
        if self._slice_timer is None and not self.is_over:
            self._slice_timer = self._world.scheduler.call_later(0, self._on_slice)

    def _on_slice(self) -> None:
        with self._world.metrics.busy_ms.taken():
            self._run_slice()

    def _run_slice(self) -> None:
        """Take some small decisions, or one step of a large one; then yield the loop."""
        self._slice_timer = None
        for _ in range(_DECISIONS_PER_SLICE):
            if self._steps is None and not self._begin_next():
                return  # no decision can be taken; `settle` arms the next slice
            if not self._step() or self.is_over:
                break
        if self._steps is not None or self._waiting:
            self._arm()

    def _begin_next(self) -> bool:
        if not self._is_quiet_now():
            return False
        is_full = self._in_flight.uncommitted_bytes >= self._settings.uncommitted_bytes_max
        if not self._waiting or (is_full and self._in_flight):
            return False
        self._follow_log()
        decision = self._current = self._waiting.take()
        self._begun_ms = self._now()
        metrics = self._world.metrics
        metrics.started.inc()
        metrics.queue_time_ms.observe(self._begun_ms - decision.asked_ms)
        place = self._place(self.decided.provenance.end_offset)
        limit = self._settings.max_batch_bytes
        self._steps = decide_and_prepare.steps(
            decision.decide, self.decided, place, batch_bytes_max=limit
        )
        return True

    def _follow_log(self) -> None:
        """Move the decided image behind control records that the quorum has appended since."""
        end_offset = self._world.log.log_end()
        if self._appends.is_empty and end_offset > self.decided.provenance.end_offset:
            provenance = Provenance(end_offset - 1, self.epoch, self._world.clock.wall_ms())
            self.decided = replace(self.decided, provenance=provenance)

    def _place(self, base_offset: int) -> BatchPlace:
        flushed_end = min(base_offset, self._world.log.flushed_end())
        return BatchPlace(base_offset, self.epoch, self._world.clock.wall_ms(), flushed_end)

    def _step(self) -> bool:
        """Run the next step of the decision in progress; returns whether it is taken now."""
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration as end:
            response, prepared = end.value
            self._taken(Done(response), prepared)
        except Exception as error:  # noqa: BLE001  (nothing is written yet: the caller gets the error)
            self._taken(Failed(error), None)
        else:
            collect_after_step()
            return False
        return True

    def _taken(self, outcome: Outcome[Any], prepared: PreparedDecision | None) -> None:
        decision, self._current, self._steps = self._current, None, None
        assert decision is not None
        now_ms = decision.placed_ms = self._now()
        self._world.metrics.processing_time_ms.observe(now_ms - self._begun_ms)
        if prepared is not None:
            try:
                self.decided, delta = prepared.loader.take()
            except Exception as error:  # noqa: BLE001  (the image is lost, and with it the term)
                self._current = decision
                self._fail(f"a decision broke the image: {error!r}")
                return
            decision.size_bytes = len(prepared.data)
            decision.elections, decision.unclean_elections = (
                delta.elections,
                delta.unclean_elections,
            )
        decision.outcome = outcome
        decision.end_offset = self.decided.provenance.end_offset
        self._in_flight.add(decision)
        if isinstance(outcome, Done):
            decision.placed(decision.end_offset)
        if prepared is not None:
            self._appends.add(prepared.data)
        self._in_flight.settle()

    # -- the log --------------------------------------------------------------------------------

    def on_appended(self) -> None:
        """All decisions taken so far are in the log."""
        self._appended = self.decided
        if self._quiet is not None:
            self._arm()

    def on_broken(self, reason: str) -> None:
        """End the term: the log takes no more of its appends."""
        self._fail(reason)

    def on_not_appended(self, error: KafkaError) -> None:
        """Drop the decisions since the last append: nothing was written, and the log continues.

        Causes are a lack of descriptors or memory. The decision in progress is dropped too, because
        it is based on the dropped ones.
        """
        if self._appended is None:
            self._fail(f"the first append of a term failed: {error!r}")
            return
        self.decided = self._appended
        if self._quiet is not None:
            self._arm()
        dropped = self._in_flight.take_above(self._appends.end_offset)
        if self._steps is not None:
            dropped += self._take_current()
        for decision in dropped:
            decision.answer(Failed(UnwrittenDecisionError(f"the change is not written: {error}")))

    def settle(self, ready: int, image: MetadataImage) -> None:
        """Answer decisions that are committed and visible.

        Args:
            ready: Everything below (exclusive) is committed, and applied on this node.
            image: The newest one that is applied here.
        """
        is_quiet = self._appends.is_empty and self._steps is None
        if is_quiet and image.provenance.end_offset == self.decided.provenance.end_offset:
            self.decided = image  # equal to ours: keep only one of the two
            if self._appended is not None:
                self._appended = image
        self._appends.on_committed(ready)
        self._in_flight.settle(ready)
        if self._waiting:
            self._arm()

    def _now(self) -> int:
        return self._world.clock.monotonic_ms()


def _no_op(_image: MetadataImage) -> ControllerResult[None]:
    return ControllerResult((make("NoOpRecord"),), None)


def _ignore(_outcome: Outcome[None]) -> None:
    """Ignore the outcome of a decision without a caller."""
