"""Executes the effects of the Raft core, and returns their results to it as events.

    driver = RaftDriver(core, world)
    driver.start(Started(...))
    driver.receive(request, respond)                 # from the network
    driver.propose(batches, data, epoch)             # from the active controller
    driver.close(done)

It runs on the loop's thread only, without asyncio: the simulator runs the same code. Work that
waits for the disk runs on a pool. Votes (`QuorumStateWriter`) and the log (`log_work`) have
separate queues, so that neither delays the other. A message is sent once the vote or epoch that it
depends on is durable, and waits for nothing else (`outgoing_messages`).

The core is never entered twice: events during a step wait for its end. The listener is called after
the step, one event at a time; it may propose and close from there.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import assert_never

from kafka_protocol.errors import KafkaError, TidemarkError
from local_log.errors import KafkaStorageError
from metadata_topic.quorum.driver.answers import Answers, Respondent
from metadata_topic.quorum.driver.log_work import LogWork
from metadata_topic.quorum.driver.outgoing_messages import OutgoingMessages
from metadata_topic.quorum.driver.ports import DriverWorld
from metadata_topic.quorum.driver.quorum_state_file import QuorumStateWriter
from metadata_topic.quorum.driver.raft_metrics import RaftMetrics
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import (
    AdvanceHighWatermark,
    AwaitAppend,
    Closed,
    Effect,
    Fatal,
    NoteLeaderLogStart,
    Persist,
    Refuse,
    Report,
    Respond,
    RespondChunk,
    RespondRecords,
    RoleChanged,
    Send,
    WakeAt,
)
from metadata_topic.raft.events import (
    AbleToLead,
    AppendGranted,
    Closing,
    Event,
    LogStartRaised,
    Persisted,
    Proposed,
    Received,
    Resign,
    SnapshotInstalled,
    SnapshotWritten,
    Started,
    Tick,
)
from metadata_topic.raft.messages import BatchFacts, Request
from metadata_topic.raft.roles import Role
from runtime.incidents import Incident
from runtime.log_context import LimitedLog
from runtime.scheduler import Timer
from runtime.work import WorkQueue

log = logging.getLogger(__name__)


class RaftFailureError(TidemarkError):
    """The replica must not continue: it could lose or invent committed records."""


class RaftDriver:
    """Runs one Raft core; on the loop's thread.

    Attributes:
        core: The replica; read it, never step it.
        metrics: Of the replica.
        failure: Error that ended the replica; None while it runs.
    """

    def __init__(self, core: RaftCore, world: DriverWorld) -> None:
        """Take the parts; no effect before `start`."""
        self.core = core
        self.failure: BaseException | None = None
        self._log, self._listener = world.log, world.listener
        self._clock, self._rng = world.ports.clock, world.ports.rng
        self._scheduler = world.ports.scheduler
        self.metrics = RaftMetrics(world.ports.metrics, self._clock)
        self._reports = LimitedLog(self._clock)
        commit, background = world.ports.executors.commit, world.ports.executors.background
        self._vote_queue = WorkQueue(commit, self._scheduler, self._fail)
        self._log_queue = WorkQueue(commit, self._scheduler, self._fail)
        self._line_queue = WorkQueue(background, self._scheduler, self._fail)
        self._quorum_state = QuorumStateWriter(world.state_file, self._vote_queue, self._persisted)
        self._log_work = LogWork(
            world,
            self.metrics,
            queue=self._log_queue,
            line_queue=self._line_queue,
            handle=self._log_changed,
        )
        self._answers = Answers(world, self._leads)
        self._messages = OutgoingMessages(world, self._answers, self._handle)
        self._events: deque[Event] = deque()
        self._notices: deque[Callable[[], None]] = deque()
        self._is_stepping = self._is_notifying = False
        self._timer: Timer | None = None
        self._closed: Callable[[], None] | None = None
        self._is_started = self._is_over = False

    # -- events ---------------------------------------------------------------------------------

    def start(self, event: Started) -> None:
        """Begin, with the state found on the disk."""
        self._is_started = True
        self._log.on_offline = self._log_failed
        self._handle(event)
        self.metrics.show(self.core)

    def receive(self, request: Request, respond: Respondent) -> None:
        """Take a request of another replica; `respond` is called at most once, perhaps at once.

        Before the start it is dropped: the listener opens first, and the sender retries.
        """
        if self._is_started and not self._is_over:
            token = self._answers.expect(respond)
            self._handle(Received(token, request, self._rng.random()))

    def propose(self, batches: tuple[BatchFacts, ...], data: bytes | bytearray, epoch: int) -> bool:
        """Append batches as the leader of `epoch`, all or none; they are not durable yet.

        Returns:
            False: this node does not lead `epoch`, or its log does not end where the batches begin.

        Raises:
            KafkaError: Nothing was written, for a lack of descriptors or memory; the log takes
                further appends.
        """
        can_append = self._leads(epoch) and not self._is_stepping and not self._is_over
        if not can_append or batches[0].base_offset != self._log.end_offset:
            return False
        before = self._log.end_offset
        try:
            self._log.append(data, timestamp_ms=self._clock.wall_ms())
        except Exception as error:
            if not (isinstance(error, KafkaError) and self._log.is_untouched(before)):
                self._fail(error)  # the content of the log is unknown now
            raise
        end = batches[-1].end_offset
        self.metrics.appended(end - before, end)
        self._handle(Proposed(epoch, batches, data))
        return True

    def grant_append(self) -> None:
        """Append the control records that wait for it (`QuorumListener.on_append_awaited`), if any.

        Not while the listener has batches with offsets that it has not proposed.
        """
        self._handle(AppendGranted())

    def note_snapshot(self, event: SnapshotWritten) -> None:
        """Report a snapshot made by this node."""
        self._handle(event)

    def note_log_start(self, event: LogStartRaised) -> None:
        """Report that old snapshots, and the log before the oldest one left, are deleted."""
        self._handle(event)

    def resign(self, reason: str) -> None:
        """Give up leadership of the quorum."""
        log.warning("this node gives the lead up: %s", reason)
        self._handle(Resign(self._rng.random()))

    def set_able_to_lead(self, *, is_able: bool) -> None:
        """Allow or forbid this replica to stand for election and to lead."""
        self._handle(AbleToLead(is_able, self._rng.random()))

    def fail(self, error: BaseException) -> None:
        """Stop the replica at once, because a part of the node above it cannot continue."""
        self._fail(error)

    def close(self, done: Callable[[], None]) -> None:
        """Hand over leadership and finish the work in progress; then call `done`, once.

        May be called before `start`, which must not follow then.
        """
        self._closed = done
        if self._is_over or not self._is_started:
            self._end()
        else:
            self._handle(Closing(self._rng.random()))

    # -- steps ----------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if self._is_over:
            return
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            with self.metrics.busy_ms.taken():
                while self._events and not self._is_over:
                    self._step(self._events.popleft())
        except (OSError, TidemarkError) as error:  # the content of the disk is unknown
            self._fail(error)  # the listener logs it
        except Exception as error:
            log.exception(Incident.DEFECT.line(what="the replica of the metadata log fails"))
            self._fail(error)
        finally:
            self._is_stepping = False
        self._notify()

    def _step(self, event: Event) -> None:
        self._messages.begin_iteration()
        for effect in self.core.step(event, self._clock.monotonic_ms()):
            if self._is_over:
                return
            self._do(effect)

    def _notify(self) -> None:
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._notices:
                notice = self._notices.popleft()
                try:
                    notice()
                except Exception as error:  # a bug: the listener has missed an event
                    log.exception(Incident.DEFECT.line(what="a listener of the metadata log fails"))
                    self._fail(error)
        finally:
            self._is_notifying = False

    def _fail(self, error: BaseException) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.failure = error
        self._answers.forget()
        self._messages.forget()
        self._log_work.stop()
        self._notices.append(partial(self._listener.on_failure, error))
        if self._closed is not None:
            self._notices.append(self._end)  # the core will not return `Closed` any more
        if not self._is_stepping:
            self._notify()

    def _log_failed(self, error: OSError) -> None:
        """Stop the replica, because the log is offline; on any thread.

        It stops once the caller has returned, since the caller may be one of the parts that stop.
        """
        failure = KafkaStorageError(f"{self._log.partition_log.directory} is offline: {error}")
        failure.__cause__ = error
        self._scheduler.call_soon(
            lambda: self._scheduler.call_later(0, partial(self._fail, failure))
        )

    # -- effects --------------------------------------------------------------------------------

    def _do(self, effect: Effect) -> None:
        match effect:
            case Persist():
                self._quorum_state.write(effect)
            case Send() | Respond() | RespondRecords() | RespondChunk():
                self._messages.send(effect)
            case WakeAt(deadline_ms):
                self._wake_at(deadline_ms)
            case Closed():
                self._end()
            case Fatal(reason):
                self._fail(RaftFailureError(reason))  # the listener logs it
            case Refuse():
                raise AssertionError("a proposal was appended and refused")
            case AwaitAppend():
                self._notices.append(self._listener.on_append_awaited)
            case RoleChanged() | AdvanceHighWatermark() | NoteLeaderLogStart() | Report():
                self._note(effect)
            case _:
                self._log_work.do(effect)

    def _note(
        self, effect: RoleChanged | AdvanceHighWatermark | NoteLeaderLogStart | Report
    ) -> None:
        listener = self._listener
        match effect:
            case RoleChanged(role, epoch, leader_id):
                leader = -1 if leader_id is None else leader_id
                log.info("metadata quorum: role=%s epoch=%d leader=%d", role.value, epoch, leader)
                self.metrics.on_role(effect)
                self._notices.append(partial(listener.on_role, effect))
            case AdvanceHighWatermark(offset):
                self._log.set_high_watermark(offset)
                self.metrics.committed(offset)
                self._notices.append(partial(listener.on_high_watermark, offset))
            case NoteLeaderLogStart(offset):
                self._notices.append(partial(listener.on_leader_log_start, offset))
            case Report(text, is_error):
                if is_error:
                    self._reports.error(log, Incident.QUORUM_FAULT.line(text=text), text)
                else:
                    self._reports.warning(log, f"metadata quorum: {text}", text)
            case _:
                assert_never(effect)

    # -- results of effects ----------------------------------------------------------------------

    def _persisted(self, number: int) -> None:
        self._messages.persisted(number)
        self._handle(Persisted(number))

    def _log_changed(self, event: Event) -> None:
        if isinstance(event, SnapshotInstalled):
            self._notices.append(partial(self._listener.on_snapshot_installed, event))
        self._handle(event)

    def _leads(self, epoch: int) -> bool:
        return self.core.role is Role.LEADER and self.core.epoch == epoch

    # -- time and the end -----------------------------------------------------------------------

    def _wake_at(self, deadline_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            self._timer = self._scheduler.call_later(delay_ms, self._tick)

    def _tick(self) -> None:
        self._handle(Tick(self._rng.random()))

    def _end(self) -> None:
        """Take no more events; work in progress on the disk is finished first."""
        self._is_over = True
        self._wake_at(None)
        self._log_work.stop()
        done, self._closed = self._closed, None
        if done is not None:
            for queue in (self._line_queue, self._log_queue, self._vote_queue):
                done = partial(queue.when_idle, done)
            done()
