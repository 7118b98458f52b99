"""Carries out what the Raft core wants, and tells it what came of it.

    driver = RaftDriver(core, world)
    driver.start(Started(...))
    driver.receive(request, respond)                 # from the network
    driver.propose(batches, data, epoch)             # from the active controller
    driver.close(done)

On the loop's thread only, without asyncio: the simulator runs the same code. Appends go to the page
cache at once; fsyncs, truncations and files of snapshots are work for a pool, votes in one queue,
the log in another, so that neither holds up the other. What cuts the log waits until nobody uses it
beside the loop (`log_gate`). A message leaves once the vote or epoch that it depends on is durable,
and waits for nothing else.

The core is never entered twice: what happens while a step is carried out waits for its end. The
listener is told after the step, one thing at a time; it may propose and close from there.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, assert_never

from kafka_protocol.errors import KafkaError, TidemarkError
from kafka_protocol.records.control import leader_change
from local_log.errors import KafkaStorageError
from metadata_topic.quorum.batches import quorum_entries
from metadata_topic.quorum.driver_answers import Answers, Respondent
from metadata_topic.quorum.driver_ports import DriverWorld
from metadata_topic.quorum.raft_metrics import RaftMetrics
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import (
    AdvanceHighWatermark,
    Append,
    AppendEpochStart,
    Closed,
    DropChunks,
    Effect,
    Fatal,
    FlushLog,
    InstallSnapshot,
    NoteLeaderLogStart,
    Persist,
    Refuse,
    Report,
    Respond,
    RespondChunk,
    RespondRecords,
    RoleChanged,
    Send,
    TruncateLog,
    WakeAt,
    WriteChunk,
)
from metadata_topic.raft.events import (
    Answered,
    ChunkWritten,
    Closing,
    Event,
    Flushed,
    LogStartRaised,
    Persisted,
    Proposed,
    Received,
    Resign,
    SegmentFull,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotWritten,
    Started,
    Tick,
    Truncated,
)
from metadata_topic.raft.messages import (
    BatchFacts,
    FetchResponse,
    Request,
)
from metadata_topic.raft.roles import Role
from runtime.scheduler import Timer
from runtime.work_queue import WorkQueue

log = logging.getLogger(__name__)

T = TypeVar("T")

FETCHES_A_TURN: Final = 50
"""So many Fetches are answered without a pause: with all that follows some 10 ms of the loop."""
LINES_FSYNC_MS: Final = 1_000
"""So long after a flush its note is durable, too."""


class RaftFailureError(TidemarkError):
    """The replica must not go on: it could lose or invent committed records."""


class RaftDriver:
    """See the module.

    Attributes:
        core: the replica; read it, never step it.
        metrics: see there.
        failure: what ended the replica; None while it is well.
    """

    def __init__(self, core: RaftCore, world: DriverWorld) -> None:
        """Take the parts; nothing happens before `start`."""
        self.core = core
        self.failure: BaseException | None = None
        self._world = world
        self._clock, self._dice = world.ports.clock, world.ports.dice
        self._scheduler, self._log = world.ports.scheduler, world.log
        commit = world.ports.executors.commit
        self._votes = WorkQueue(commit, self._scheduler, self._fail)
        self._log_work = WorkQueue(commit, self._scheduler, self._fail)
        self._line_work = WorkQueue(world.ports.executors.background, self._scheduler, self._fail)
        self._line_timer: Timer | None = None
        self._events: deque[Event] = deque()
        self._notices: deque[Callable[[], None]] = deque()
        self._is_stepping = self._is_telling = False
        self._answers = Answers(world, self._leads)
        self.metrics = RaftMetrics(world.ports.metrics, self._clock)
        self._durable = 0
        self._held: list[tuple[int, Callable[[], None]]] = []
        self._fetches: deque[Callable[[], None]] = deque()
        self._fetches_now = 0
        self._persist: Persist | None = None
        self._timer: Timer | None = None
        self._closed: Callable[[], None] | None = None
        self._is_started = self._is_over = False

    # -- what happens ---------------------------------------------------------------------------

    def start(self, event: Started) -> None:
        """Begin, with what was found on the disk."""
        self._is_started = True
        self._log.on_offline = self._log_failed
        self._handle(event)
        self.metrics.show(self.core)

    def receive(self, request: Request, respond: Respondent) -> None:
        """Take a request of another replica; `respond` is called at most once, perhaps at once.

        Before the start it is dropped: the listener opens first, and the other asks again.
        """
        if self._is_started and not self._is_over:
            token = self._answers.expect(respond)
            self._handle(Received(token, request, self._dice.random()))

    def propose(self, batches: tuple[BatchFacts, ...], data: bytes | bytearray, epoch: int) -> bool:
        """Append batches as the leader of `epoch`, all or none; they are not durable yet.

        Returns:
            False: this node does not lead `epoch`, or its log does not end where they begin.

        Raises:
            KafkaError: nothing could be written for a reason outside of the disk, descriptors or
                memory; nothing was appended and the log goes on.
        """
        can_append = self._leads(epoch) and not self._is_stepping and not self._is_over
        if not can_append or batches[0].base_offset != self._log.end_offset:
            return False
        before = self._log.end_offset
        try:
            self._log.append(data, timestamp_ms=self._clock.wall_ms())
        except Exception as error:
            if not (isinstance(error, KafkaError) and self._log.is_untouched(before)):
                self._fail(error)  # nobody knows what is in the log now
            raise
        end = batches[-1].end_offset
        self.metrics.appended(end - before, end)
        self._handle(Proposed(epoch, batches, data))
        return True

    def note_snapshot(self, event: SnapshotWritten) -> None:
        """This node has made a snapshot."""
        self._handle(event)

    def note_log_start(self, event: LogStartRaised) -> None:
        """Old snapshots, and the log before the oldest that is left, are gone."""
        self._handle(event)

    def resign(self, reason: str) -> None:
        """Let somebody else lead."""
        log.error("this node gives the lead up: %s", reason)
        self._handle(Resign(self._dice.random()))

    def fail(self, error: BaseException) -> None:
        """End the replica where it is, because what stands on it cannot go on."""
        self._fail(error)

    def close(self, done: Callable[[], None]) -> None:
        """Hand the lead over and finish the work under way; then `done`, once.

        Fine to call before `start`, which then does not come.
        """
        self._closed = done
        if self._is_over or not self._is_started:
            self._end()
        else:
            self._handle(Closing(self._dice.random()))

    # -- steps ----------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if self._is_over:
            return
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        began_ms = self._clock.monotonic_ms()
        try:
            while self._events and not self._is_over:
                self._step(self._events.popleft())
        except Exception as error:  # a bug, or the disk: nobody knows what is on it
            log.exception("the replica of the metadata log fails")
            self._fail(error)
        finally:
            self._is_stepping = False
            self.metrics.busy_ms.note(self._clock.monotonic_ms() - began_ms)
        self._tell()

    def _step(self, event: Event) -> None:
        self._fetches_now = 0
        for effect in self.core.step(event, self._clock.monotonic_ms()):
            if self._is_over:
                return
            self._do(effect)

    def _tell(self) -> None:
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._notices:
                self._notices.popleft()()
        finally:
            self._is_telling = False

    def _fail(self, error: BaseException) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.failure = error
        self._answers.forget()
        self._held.clear()
        self._fetches.clear()
        self._notices.append(partial(self._world.listener.on_failure, error))
        if not self._is_stepping:
            self._tell()

    def _log_failed(self, error: OSError) -> None:
        """The log is offline, whoever has found out; on any thread.

        It ends the replica once the caller has returned: that may be one of those who are ended.
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
                self._make_durable(effect)
            case RespondRecords() | Respond(response=FetchResponse()):
                send = partial(self._do_message, effect)
                self._after(effect.after, partial(self._answer_fetch, send))
            case Send() | Respond() | RespondChunk():
                self._after(effect.after, partial(self._do_message, effect))
            case WakeAt(deadline_ms):
                self._wake_at(deadline_ms)
            case Closed():
                self._end()
            case Fatal(reason):
                log.error("the replica of the metadata log must end: %s", reason)
                self._fail(RaftFailureError(reason))
            case Refuse():
                raise AssertionError("a proposal was appended and refused")
            case RoleChanged() | AdvanceHighWatermark() | NoteLeaderLogStart() | Report():
                self._note(effect)
            case _:
                self._do_log(effect)

    def _do_message(self, effect: Send | Respond | RespondRecords | RespondChunk) -> None:
        match effect:
            case Send():
                self._send(effect)
            case Respond(token, response):
                self._answers.respond(token, response)
            case RespondRecords():
                self._answers.respond_records(effect)
            case RespondChunk():
                self._answers.respond_chunk(effect)
            case _:
                assert_never(effect)

    def _note(
        self, effect: RoleChanged | AdvanceHighWatermark | NoteLeaderLogStart | Report
    ) -> None:
        listener = self._world.listener
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
                log.log(logging.ERROR if is_error else logging.WARNING, "metadata quorum: %s", text)
            case _:
                assert_never(effect)

    def _do_log(
        self,
        effect: AppendEpochStart
        | Append
        | FlushLog
        | TruncateLog
        | WriteChunk
        | InstallSnapshot
        | DropChunks,
    ) -> None:
        snapshots = self._world.snapshots
        match effect:
            case AppendEpochStart():
                self._open_epoch(effect)
            case Append(batches, data):
                if batches[-1].end_offset > self._log.end_offset:  # else by `propose`
                    self._log.append_fetched(data, timestamp_ms=self._clock.wall_ms())
                    self.metrics.fetched(batches[-1].end_offset - batches[0].base_offset)
                    if self._log.wants_flush:
                        self._handle(SegmentFull())
            case FlushLog():
                self._flush()
            case TruncateLog(end_offset):
                self._alone(
                    partial(self._truncate, end_offset),
                    lambda _: self._handle(Truncated(end_offset)),
                )
            case WriteChunk(snapshot_id, position, data):
                self._log_work.add(
                    partial(snapshots.write_chunk, snapshot_id, position, data),
                    lambda end: self._handle(ChunkWritten(snapshot_id, end)),
                )
            case InstallSnapshot(snapshot_id, size_bytes):
                self._alone(partial(snapshots.install, snapshot_id, size_bytes), self._installed)
            case DropChunks():
                self._log_work.add(snapshots.drop_chunks, lambda _: None)
            case _:
                assert_never(effect)

    def _flush(self) -> None:
        began_ms = self._clock.monotonic_ms()

        def flushed(end_offset: int) -> None:
            self.metrics.fsync_ms.observe(self._clock.monotonic_ms() - began_ms)
            self._handle(Flushed(end_offset))
            self._fsync_lines_later()

        self._log_work.add(self._log.flush, flushed)

    def _fsync_lines_later(self) -> None:
        """Nobody waits for it: a power cut takes at most what was noted in the last second."""
        if self._line_timer is None and self._log.has_unsynced_lines and not self._is_over:
            self._line_timer = self._scheduler.call_later(LINES_FSYNC_MS, self._fsync_lines)

    def _fsync_lines(self) -> None:
        self._line_timer = None
        if not self._is_over:
            self._line_work.add(self._log.fsync_lines, lambda _: self._fsync_lines_later())

    def _open_epoch(self, effect: AppendEpochStart) -> None:
        entries = [leader_change(effect.leader_id, effect.voters.ids, effect.granting)]
        if effect.with_voters:
            entries += quorum_entries(effect.kraft_version, effect.voters)
        self._log.append_controls(entries, epoch=effect.epoch, timestamp_ms=self._clock.wall_ms())

    def _alone(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Change the log beside the loop, once nobody else uses it there."""
        gate = self._log.gate

        def finish(result: T) -> None:
            done(result)  # the core and the listeners know of it before anybody reads on
            gate.open()

        self._log_work.add(work, finish, first=gate.shut)

    def _truncate(self, end_offset: int) -> None:
        """Cut the log, and make what is left durable: the core counts on it."""
        self._log.truncate_to(end_offset)
        self._log.flush()

    def _installed(self, event: SnapshotInstalled | SnapshotRefused) -> None:
        if isinstance(event, SnapshotInstalled):
            self._notices.append(partial(self._world.listener.on_snapshot_installed, event))
        self._handle(event)

    # -- what must be durable first -------------------------------------------------------------

    def _make_durable(self, effect: Persist) -> None:
        is_waiting = self._persist is not None
        self._persist = effect
        if not is_waiting and self._votes.is_idle:
            self._write_vote()

    def _write_vote(self) -> None:
        effect, self._persist = self._persist, None
        if effect is None:
            return
        write = partial(
            self._world.state_file.write,
            effect.election,
            kraft_version=effect.kraft_version,
            voters=effect.voters,
        )
        self._votes.add(write, lambda _: self._persisted(effect.number))

    def _persisted(self, number: int) -> None:
        self._durable = number
        self._write_vote()  # only the newest of those that came meanwhile
        ready = [send for after, send in self._held if after <= number]
        self._held = [one for one in self._held if one[0] > number]
        self._fetches_now = 0
        for send in ready:
            send()
        self._handle(Persisted(number))

    def _after(self, number: int, send: Callable[[], None]) -> None:
        if self._durable >= number:
            send()
        else:
            self._held.append((number, send))

    # -- messages -------------------------------------------------------------------------------

    def _answer_fetch(self, send: Callable[[], None]) -> None:
        """Thousands may have waited for the same commit: then others come in between."""
        if self._fetches or self._fetches_now >= FETCHES_A_TURN:
            self._fetches.append(send)
            if len(self._fetches) == 1:
                self._scheduler.call_later(0, self._answer_more)
        else:
            self._fetches_now += 1
            send()

    def _answer_more(self) -> None:
        for _ in range(min(FETCHES_A_TURN, len(self._fetches))):
            self._fetches.popleft()()
        if self._fetches:
            self._scheduler.call_later(0, self._answer_more)

    def _send(self, effect: Send) -> None:
        number, random = effect.number, self._dice.random
        self._world.transport.send(
            effect.to,
            effect.request,
            effect.timeout_ms,
            lambda response: self._handle(Answered(number, response, random())),
        )

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
        self._handle(Tick(self._dice.random()))

    def _end(self) -> None:
        """Take no more events; what is under way on the disk ends first."""
        self._is_over = True
        self._wake_at(None)
        if self._line_timer is not None:
            self._line_timer.cancel()
        done, self._closed = self._closed, None
        if done is not None:
            for queue in (self._line_work, self._log_work, self._votes):
                done = partial(queue.when_idle, done)
            done()
