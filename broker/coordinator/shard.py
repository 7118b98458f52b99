"""One partition of `__consumer_offsets` that this broker leads, and its groups.

It carries out the decisions of `group` in a fixed order: timers, append of the records, their
replay, and after the commit the answers and the next decision. So an answered commit is as durable
as a produce with acks=all to that partition.

Not thread-safe: runs on the event loop. Requests that wait for others (JoinGroup, SyncGroup) are
parked here under a ticket. Each is answered exactly once: by a decision, or when leadership ends.
"""

import asyncio
import logging
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from broker.coordinator.group.decision import (
    Answer,
    CancelTimer,
    Decision,
    GroupRecord,
    Now,
    SetTimer,
    Ticket,
    TimerKey,
    append_error,
)
from broker.coordinator.group.refusals import refused
from broker.coordinator.group.state import GroupState
from broker.replica.partition import Partition
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.records.keyed import keyed_batch
from local_log.errors import MessageTooLarge, RecordListTooLarge
from local_log.log.append_check import check_size
from local_log.log.opened_batches import Opening
from runtime.clock import Clock
from runtime.incidents import Incident
from runtime.log_context import limited
from runtime.scheduler import Scheduler, Timer
from runtime.timing_wheel import TimingWheel


class NotCoordinator(KafkaError):
    """Another broker leads the partition of `__consumer_offsets` for this group."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorLoadInProgress(KafkaError):
    """The partition for this group is being loaded."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(KafkaError):
    """No broker coordinates this group now: the broker stops, or the topic is missing."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


log = logging.getLogger(__name__)

R = TypeVar("R")
Decide = Callable[[GroupState, Ticket, Now], Decision]
_TIMERS_AT_ONCE: Final = 1_000
"""Session timers set in one iteration of the loop after a load."""
_ANSWERS_AT_ONCE: Final = 200
"""Answers sent in one iteration of the loop."""


class ShardStage(StrEnum):
    """Stage of a shard, in Kafka's words."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ShardParts:
    """Parts that all shards of a broker share.

    Attributes:
        wheel: Timers of all shards; a timer's key has its shard.
        codec: Compression of written batches.
        commit_timeout_ms: How long an answer waits for its commit.
        waited: Called with the wait in milliseconds, if the commit was not immediate.
    """

    clock: Clock
    scheduler: Scheduler
    wheel: "TimingWheel[tuple[Shard, TimerKey]]"
    codec: int
    commit_timeout_ms: int
    waited: Callable[[float], None]


class Shard:
    """The groups of one partition.

    Attributes:
        partition: Partition of `__consumer_offsets`.
        stage: Requests are served while it is ACTIVE.
        state: The groups; complete once the stage is ACTIVE.
        damaged: Number of damaged places in its log.
    """

    __slots__ = (
        "_direct",
        "_last_ticket",
        "_leaving",
        "_parked",
        "_parts",
        "_timers",
        "_uncommitted",
        "_written_end",
        "damaged",
        "partition",
        "stage",
        "state",
    )

    def __init__(self, partition: Partition, state: GroupState, parts: ShardParts) -> None:
        self.partition, self.state, self._parts = partition, state, parts
        self.stage, self.damaged = ShardStage.LOADING, 0
        self._last_ticket: Ticket = 0
        self._parked: dict[Ticket, Future[Any] | None] = {}
        self._direct: Any = None
        self._timers: set[TimerKey] = set()
        self._uncommitted: dict[Future[None], Decision] = {}
        self._written_end = 0
        self._leaving: deque[Answer] = deque()

    @property
    def parked_count(self) -> int:
        """Number of requests without an answer."""
        return len(self._parked)

    @property
    def now(self) -> Now:
        """Wall clock and monotonic clock."""
        return Now(self._parts.clock.wall_ms(), self._parts.clock.monotonic_ms())

    # -- requests

    def run(self, decide: Decide) -> Any:
        """Decide on a request, and carry out the decision.

        Args:
            decide: Makes the decision; its ticket stands for this request.

        Returns:
            The response, or a future of it, which is done after the commit.
        """
        self._last_ticket += 1
        ticket = self._last_ticket
        self._parked[ticket] = None
        try:
            self.carry_out(decide(self.state, ticket, self.now))
        except BaseException:
            self._parked.pop(ticket, None)
            raise
        if ticket not in self._parked:
            response, self._direct = self._direct, None
            return response
        future: Future[Any] = asyncio.get_running_loop().create_future()
        self._parked[ticket] = future
        return future

    def read(self, look: Callable[[GroupState], R]) -> R | Awaitable[R]:
        """Read the groups now; the result is returned once all earlier writes are committed.

        `look` runs at once, because later writes may be uncommitted when the wait ends.

        Returns:
            The result of `look`, or an awaitable of it, which raises NotCoordinator or
            CoordinatorNotAvailable.
        """
        waiting = self.partition.committed(self._written_end)
        seen = look(self.state)
        return seen if waiting is None else self._answer_when_committed(waiting, seen)

    async def _answer_when_committed(self, waiting: "Future[None]", seen: R) -> R:
        done, _ = await asyncio.wait({waiting}, timeout=self._parts.commit_timeout_ms / 1_000)
        if not done:
            waiting.cancel()
            raise CoordinatorNotAvailable(f"{self._name} does not commit what was written")
        if waiting.exception() is not None or self.stage is not ShardStage.ACTIVE:
            raise NotCoordinator(f"{self._name} is not led here any more")
        return seen

    @property
    def _name(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"

    # -- decisions

    def carry_out(self, decision: Decision) -> Exception | None:
        """Carry out a decision.

        Returns:
            The error if its records could not be appended, else None.
        """
        if decision.timers:
            self._set_timers(decision.timers)
        if not decision.records:
            self._answer(decision.answers)
            return None
        try:
            for records in self._batches(decision):
                self._write(records)
        except Exception as error:  # noqa: BLE001 - becomes the answer of waiting requests
            if isinstance(error, MessageTooLarge | RecordListTooLarge) and decision.answers:
                _log_refused(self._name, error)
            self._failed(decision, self._code_of(error))
            return error
        waiting = self.partition.committed(self._written_end)
        if waiting is None:
            self._committed(decision)
        else:
            self._wait(decision, waiting)
        return None

    def _batches(self, decision: Decision) -> Iterable[Sequence[GroupRecord]]:
        if not decision.may_split:
            return (decision.records,)
        config = self.partition.log.config
        return batches_of(
            decision.records, min(config.max_message_bytes, config.segment_bytes) // 2
        )

    def _write(self, records: Sequence[GroupRecord]) -> None:
        """Append one batch, and replay it."""
        first_offset, self._written_end = self._append(records)
        self.state.replay_written(records, first_offset)

    def _append(self, records: Sequence[GroupRecord]) -> tuple[int, int]:
        """Append one batch.

        Returns:
            Its first offset, and its end offset (exclusive).
        """
        parts, now_ms = self._parts, self._parts.clock.wall_ms()
        batch = keyed_batch(records, timestamp_ms=now_ms, codec=parts.codec)
        check_size(len(batch), self.partition.log.config)
        info = self.partition.append(
            batch, now_ms=now_ms, required_acks=-1, opening=Opening.DONE, from_client=False
        )
        return info.first_offset, info.last_offset + 1

    def _code_of(self, error: Exception) -> ErrorCode:
        if isinstance(error, KafkaError):
            return error.code
        subject = self._name, type(error)
        if isinstance(error, OSError):
            line = Incident.STORAGE_FAILED.line(doing=f"append to {self._name}", error=error)
            limited.error(log, line, subject)
            return ErrorCode.KAFKA_STORAGE_ERROR
        line = Incident.DEFECT.line(what=f"{self._name}: append failed")
        limited.error(log, line, subject, exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def _wait(self, decision: Decision, waiting: "Future[None]") -> None:
        self._uncommitted[waiting] = decision
        late = partial(self._late, waiting)
        timer = self._parts.scheduler.call_later(self._parts.commit_timeout_ms, late)
        began_ms = self._parts.clock.monotonic_ms()
        waiting.add_done_callback(partial(self._waited, timer, began_ms))

    def _late(self, waiting: "Future[None]") -> None:
        decision = self._uncommitted.pop(waiting, None)
        waiting.cancel()
        if decision is not None:
            self._failed(decision, ErrorCode.REQUEST_TIMED_OUT)

    def _waited(self, timer: Timer, began_ms: int, waiting: "Future[None]") -> None:
        timer.cancel()
        self._parts.waited(self._parts.clock.monotonic_ms() - began_ms)
        error = None if waiting.cancelled() else waiting.exception()
        decision = self._uncommitted.pop(waiting, None)
        if decision is None:
            return  # it was too late, or leadership has ended
        if error is None:
            self._committed(decision)
            return
        code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
        self._failed(decision, code)

    def _committed(self, decision: Decision) -> None:
        self._answer(decision.answers)
        if decision.then is not None:
            self.carry_out(decision.then(None, self.now))

    def _failed(self, decision: Decision, error: ErrorCode) -> None:
        """Refuse the waiting requests: none of the records has an effect."""
        code = append_error(error)
        if decision.then is not None:
            self.carry_out(decision.then(code, self.now))
        else:
            self._answer([refused(answer, code) for answer in decision.answers])

    def _answer(self, answers: Sequence[Answer]) -> None:
        """Send answers; very many in slices, because each wakes a connection that encodes it."""
        if len(answers) > _ANSWERS_AT_ONCE:
            if not self._leaving:
                asyncio.get_running_loop().call_soon(self._answer_some)
            self._leaving.extend(answers)
            return
        for ticket, response in answers:
            if ticket not in self._parked:
                continue  # leadership has ended, and the request was answered
            waiting = self._parked.pop(ticket)
            if waiting is None:
                self._direct = response
            elif not waiting.done():
                waiting.set_result(response)

    def _answer_some(self) -> None:
        leaving = self._leaving
        self._answer([leaving.popleft() for _ in range(min(len(leaving), _ANSWERS_AT_ONCE))])
        if leaving:
            asyncio.get_running_loop().call_soon(self._answer_some)

    # -- timers

    def _set_timers(self, timers: Sequence[SetTimer | CancelTimer]) -> None:
        wheel = self._parts.wheel
        for timer in timers:
            if isinstance(timer, SetTimer):
                self._timers.add(timer.key)
                wheel.set((self, timer.key), timer.at_ms)
            else:
                self._timers.discard(timer.key)
                wheel.cancel((self, timer.key))

    def fire(self, key: TimerKey) -> None:
        """A timer's time has come."""
        self._timers.discard(key)
        if self.stage is ShardStage.ACTIVE:
            self.carry_out(self.state.timer_fired(key, self.now))

    # -- lifecycle

    def activate(self) -> None:
        """Serve from now on: the groups are loaded."""
        self.stage = ShardStage.ACTIVE
        self._written_end = self.partition.log.log_end_offset
        loaded = self.state.loaded(self.now)
        timers = loaded.timers
        self.carry_out(replace(loaded, timers=timers[:_TIMERS_AT_ONCE]))
        self._set_later(timers, _TIMERS_AT_ONCE)

    def _set_later(self, timers: Sequence[SetTimer | CancelTimer], start: int) -> None:
        """Begin very many sessions in slices; timers that were set meanwhile stay."""
        if start >= len(timers) or self.stage is not ShardStage.ACTIVE:
            return

        def proceed() -> None:
            if self.stage is ShardStage.ACTIVE:
                some = timers[start : start + _TIMERS_AT_ONCE]
                self._set_timers([one for one in some if one.key not in self._timers])
                self._set_later(timers, start + _TIMERS_AT_ONCE)

        self._parts.scheduler.call_soon(proceed)

    def close(self, stage: ShardStage = ShardStage.CLOSED) -> None:
        """Stop serving: all waiting requests get NOT_COORDINATOR."""
        was_active, self.stage = self.stage is ShardStage.ACTIVE, stage
        if not was_active:
            return  # no request waits, and a thread may still use the state
        for key in self._timers:
            self._parts.wheel.cancel((self, key))
        self._timers.clear()
        while self._leaving:
            self._answer([self._leaving.popleft()])
        for answer in self.state.unload(ErrorCode.NOT_COORDINATOR):
            self._answer([answer])
        uncommitted, self._uncommitted = self._uncommitted, {}
        for decision in uncommitted.values():
            for one in decision.answers:
                self._answer([refused(one, ErrorCode.NOT_COORDINATOR)])
        parked, self._parked = self._parked, {}
        for waiting in parked.values():
            if waiting is not None and not waiting.done():
                log.error(
                    Incident.DEFECT.line(what=f"{self._name}: a parked request has no answer")
                )
                waiting.cancel()


def _log_refused(name: str, error: Exception) -> None:
    log.warning(
        "%s: what a client asked for cannot be written, and is refused: %s; "
        "ask for less at once, or raise it for this topic",
        name,
        error,
    )


_RECORD_OVERHEAD: Final = 32
"""Upper bound of a record's bytes beside its key and value."""


def batches_of(records: Sequence[GroupRecord], size_max: int) -> Iterator[Sequence[GroupRecord]]:
    """Cut records, in order, into runs of at most `size_max` bytes, or one record.

    Args:
        records: Records to append.
        size_max: Bytes of a run; its batch has about 60 bytes more.
    """
    start = size = 0
    for position, record in enumerate(records):
        own = len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD
        if size + own > size_max and position > start:
            yield records[start:position]
            start, size = position, 0
        size += own
    yield records[start:]
