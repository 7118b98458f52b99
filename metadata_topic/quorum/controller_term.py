"""One term of the active controller: decisions in flight on the newest decided image.

A decision goes through four places, always in the order in which it was asked for: it waits, is
taken (in steps, if it is large, with other work of the loop in between), is gathered with others
into one append, and is in flight until it is committed and visible here. Only then it is answered.

Decisions are gathered while those before them are being committed, for `append_linger_ms` at most;
nobody waits for company that may not come (DIFFERS: Kafka always waits so long).

Each is taken on the *decided* image: the committed one and everything decided since. So its answer,
be it a refusal, may rest on records that are not committed yet; therefore also an answer without
records waits until everything decided before is committed.

Nothing of a term outlives it. At its end every caller is told that this is no controller, whatever
becomes of the records, and the decided image is gone with it.

Callback-based, on the loop's thread.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kafka_protocol.errors import KafkaError
from kafka_protocol.steps import Steps
from metadata_topic.controller.errors import UnwrittenDecisionError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import make
from metadata_topic.quorum.activation import begin_term, first_decisions
from metadata_topic.quorum.controller_ports import ControllerWorld
from metadata_topic.quorum.deadlines import DecisionTimedOut
from metadata_topic.quorum.decision_batches import (
    BatchPlace,
    PreparedDecision,
    decide_and_prepare,
)
from metadata_topic.quorum.decisions import Decision, Done, Failed, Outcome
from metadata_topic.quorum.gathered import Gathered
from metadata_topic.quorum.idle_records import ms_before_no_op
from runtime.collector import look_after_step
from runtime.scheduler import Timer

_DECISIONS_A_TURN: Final = 8
"""Small decisions that are taken without a pause: some milliseconds."""
_FLUSH_LOOK_MS: Final = 2
"""So often the term looks whether the log is flushed, where an append must wait for that."""


class ControllerTerm:
    """See the module.

    Attributes:
        epoch: of the quorum.
        decided: the newest decided image.
        is_over: nothing of this term counts any more.
    """

    def __init__(
        self, world: ControllerWorld, epoch: int, image: MetadataImage, fail: Callable[[str], None]
    ) -> None:
        """Begin a term; `begin` takes its first decisions.

        Args:
            world: what the controller stands on.
            epoch: of the quorum, led by this node.
            image: everything before the log's end is applied in it, or in a dead transaction.
            fail: ends the term because it cannot go on.
        """
        self.epoch = epoch
        self.decided = image
        self.is_over = False
        self._world = world
        self._settings = world.settings
        self._fail = fail
        self._ready = 0
        self._number = 0
        self._waiting: dict[int, Decision[Any]] = {}
        self._current: Decision[Any] | None = None
        self._begun_ms = 0
        self._steps: Steps[tuple[Any, PreparedDecision | None]] | None = None
        self._gathered = Gathered()
        self._in_flight: deque[Decision[Any]] = deque()
        self._uncommitted_bytes = 0
        self._appended_end = 0
        self._appended: MetadataImage | None = None
        self._wrote_ms = world.clock.monotonic_ms()
        self._turn_timer: Timer | None = None
        self._append_timer: Timer | None = None
        self._idle_timer: Timer | None = None

    @property
    def decision_count(self) -> int:
        """Decisions that wait, are under way, or are not committed yet."""
        return len(self._waiting) + len(self._in_flight) + (self._current is not None)

    # -- begin and end --------------------------------------------------------------------------

    def begin(self) -> None:
        """Write what a new controller owes the log, and look after idle times."""
        beginning = begin_term(self.decided, self._place(self._world.log.log_end()))
        self.decided = beginning.image
        if beginning.data is not None:
            self._gather(beginning.data)
        settings = self._settings
        for decide in first_decisions(
            settings.bootstrap,
            bootstrap_problem=settings.bootstrap_problem,
            min_insync_replicas=settings.min_insync_replicas,
            registration=settings.registration,
        ):
            self._add_own(Decision(decide, self._first_taken, asked_ms=self._now()))
        self._look_idle()

    def _first_taken(self, outcome: Outcome[None]) -> None:
        if isinstance(outcome, Failed) and not self.is_over:
            self._fail(f"the first records of a controller cannot be written: {outcome.error}")

    def end(self, error: Exception) -> None:
        """Drop everything that is not committed; tell all who wait."""
        self.is_over = True
        for timer in (self._turn_timer, self._append_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        if self._steps is not None:
            self._steps.close()
        current = () if self._current is None else (self._current,)
        dropped = [*self._in_flight, *current, *self._waiting.values()]
        self._in_flight.clear()
        self._waiting.clear()
        self._current = self._steps = None
        for decision in dropped:
            decision.answer(Failed(error))

    # -- decisions ------------------------------------------------------------------------------

    def add(self, decision: Decision[Any], timeout_ms: int) -> None:
        """Queue a decision; its caller waits so long at most."""
        number = self._add_own(decision)
        decision.timer = self._world.scheduler.call_later(
            timeout_ms, partial(self._late, number, decision)
        )

    def _add_own(self, decision: Decision[Any]) -> int:
        """Queue a decision that nobody waits for: it has no deadline."""
        self._number += 1
        self._waiting[self._number] = decision
        self._arm()
        return self._number

    def _late(self, number: int, decision: Decision[Any]) -> None:
        text = "the change was not committed in time; it may be carried out or not"
        if self._waiting.pop(number, None) is not None:
            self._world.metrics.timed_out.inc()
            text = "the change waited for others until its time was over; it is not carried out"
        decision.answer(Failed(DecisionTimedOut(text)))

    def _arm(self) -> None:
        if self._turn_timer is None and not self.is_over:
            self._turn_timer = self._world.scheduler.call_later(0, self._turn)

    def _turn(self) -> None:
        began_ms = self._now()
        self._take_turn()
        self._world.metrics.busy_ms.note(self._now() - began_ms)

    def _take_turn(self) -> None:
        """Take some small decisions, or a step of a large one; then others have the loop."""
        self._turn_timer = None
        for _ in range(_DECISIONS_A_TURN):
            if self._steps is None and not self._begin_next():
                return  # nothing to do, or `settle` goes on
            if not self._step() or self.is_over:
                break
        if self._steps is not None or self._waiting:
            self._arm()

    def _begin_next(self) -> bool:
        is_full = self._uncommitted_bytes >= self._settings.uncommitted_bytes_max
        if not self._waiting or (is_full and self._in_flight):
            return False
        self._follow_log()
        number = next(iter(self._waiting))
        decision = self._current = self._waiting.pop(number)
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
        """Control records of the quorum's own may have gone into the log since."""
        end_offset = self._world.log.log_end()
        if not self._gathered and end_offset > self.decided.provenance.end_offset:
            provenance = Provenance(end_offset - 1, self.epoch, self._world.clock.wall_ms())
            self.decided = replace(self.decided, provenance=provenance)

    def _place(self, base_offset: int) -> BatchPlace:
        flushed_end = min(base_offset, self._world.log.flushed_end())
        return BatchPlace(base_offset, self.epoch, self._world.clock.wall_ms(), flushed_end)

    def _step(self) -> bool:
        """Go on with the decision under way; whether it is taken now."""
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration as end:
            response, prepared = end.value
            self._taken(Done(response), prepared)
        except Exception as error:  # noqa: BLE001  (nothing is written yet: its caller is told)
            self._taken(Failed(error), None)
        else:
            look_after_step()
            return False
        return True

    def _taken(self, outcome: Outcome[Any], prepared: PreparedDecision | None) -> None:
        decision, self._current, self._steps = self._current, None, None
        assert decision is not None
        now_ms = decision.placed_ms = self._now()
        self._world.metrics.processing_time_ms.observe(now_ms - self._begun_ms)
        if prepared is not None:
            try:
                self.decided, _ = prepared.loader.take()
            except Exception as error:  # noqa: BLE001  (the image is lost, and with it the term)
                self._current = decision
                self._fail(f"a decision broke the image: {error!r}")
                return
            decision.size_bytes = len(prepared.data)
            self._uncommitted_bytes += decision.size_bytes
        decision.outcome = outcome
        decision.end_offset = self.decided.provenance.end_offset
        self._in_flight.append(decision)
        if isinstance(outcome, Done):
            decision.placed(decision.end_offset)
        if prepared is not None:
            self._gather(prepared.data)
        self._settle()

    # -- the log --------------------------------------------------------------------------------

    def _gather(self, data: bytearray) -> None:
        self._gathered.add(data)
        if len(self._gathered) >= self._settings.max_batch_bytes:
            self._append()
        elif self._append_timer is None:
            self._append_after(self._settings.append_linger_ms if self._is_committing else 0)

    @property
    def _is_committing(self) -> bool:
        """Whether something that was appended is not committed yet."""
        return self._ready < self._appended_end

    def _append_after(self, delay_ms: int) -> None:
        if self._append_timer is not None:
            self._append_timer.cancel()
        self._append_timer = self._world.scheduler.call_later(delay_ms, self._append)

    def _append(self) -> None:
        if self._append_timer is not None:
            self._append_timer.cancel()
            self._append_timer = None
        if self._world.log.must_flush(len(self._gathered)):
            self._append_after(_FLUSH_LOOK_MS)
            return
        self._wrote_ms = self._now()
        batches, data = self._gathered.take()
        try:
            is_taken = self._world.log.propose(batches, data, self.epoch)
        except KafkaError as error:
            if not self.is_over:  # else the log broke
                self._take_back(error)
            return
        except Exception as error:  # noqa: BLE001  (nobody knows what is in the log now)
            if not self.is_over:
                self._fail(f"an append failed: {error!r}")
            return
        if is_taken:
            self._appended_end, self._appended = batches[-1].end_offset, self.decided
        elif not self.is_over:
            self._fail(f"the log did not take batches at offset {batches[0].base_offset}")

    def _take_back(self, error: KafkaError) -> None:
        """Nothing was written, and the log goes on: forget what was decided since the last append.

        Descriptors or memory ran out, say. The decision under way rests on what is forgotten, too.
        """
        if self._appended is None:
            self._fail(f"the first append of a term failed: {error!r}")
            return
        self.decided = self._appended
        dropped = [one for one in self._in_flight if one.end_offset > self._appended_end]
        self._in_flight = deque(one for one in self._in_flight if one not in dropped)
        if self._steps is not None and self._current is not None:
            self._steps.close()
            dropped.append(self._current)
            self._current = self._steps = None
        for decision in dropped:
            self._uncommitted_bytes -= decision.size_bytes
            decision.answer(Failed(UnwrittenDecisionError(f"the change is not written: {error}")))

    def settle(self, ready: int, image: MetadataImage) -> None:
        """Answer what is committed and visible.

        Args:
            ready: everything below (exclusive) is committed, and applied on this node.
            image: the newest one that is applied here.
        """
        self._ready = max(self._ready, ready)
        is_quiet = not self._gathered and self._steps is None
        if is_quiet and image.provenance.end_offset == self.decided.provenance.end_offset:
            self.decided = image  # equal to ours; so one of the two need not be kept
            if self._appended is not None:
                self._appended = image
        if self._gathered and not self._is_committing:
            self._append_after(0)
        self._settle()
        if self._waiting:
            self._arm()

    def _settle(self) -> None:
        while self._in_flight and self._in_flight[0].end_offset <= self._ready:
            decision = self._in_flight.popleft()
            if decision.size_bytes:
                self._uncommitted_bytes -= decision.size_bytes
                took_ms = self._now() - decision.placed_ms
                self._world.metrics.commit_time_ms.observe(took_ms)
            assert decision.outcome is not None
            decision.answer(decision.outcome)

    # -- idle times -----------------------------------------------------------------------------

    def _look_idle(self) -> None:
        interval_ms = self._settings.max_idle_interval_ms
        wait_ms = ms_before_no_op(
            self._world.audience(),
            last_write_ms=self._wrote_ms,
            now_ms=self._now(),
            interval_ms=interval_ms,
        )
        if wait_ms is None:
            return
        if wait_ms == 0:
            wait_ms = interval_ms
            if not self.decision_count:
                self._add_own(Decision(_no_op, _ignore, asked_ms=self._now()))
        self._idle_timer = self._world.scheduler.call_later(wait_ms, self._look_idle)

    def _now(self) -> int:
        return self._world.clock.monotonic_ms()


def _no_op(_image: MetadataImage) -> ControllerResult[None]:
    return ControllerResult((make("NoOpRecord"),), None)


def _ignore(_outcome: Outcome[None]) -> None:
    """Nobody asked for it."""
