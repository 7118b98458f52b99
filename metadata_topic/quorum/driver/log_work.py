"""Executes the Raft core's effects on the metadata log and on fetched snapshots.

Appends go to the page cache at once. All that waits for the disk runs on the pool, in the order of
the effects: fsyncs, truncations, chunks of a snapshot. A cut of the log waits until no pool thread
uses it (`gate`), and none may use it before the core has processed the cut.

A flush adds a line to the note of what is flushed (`flushed_end_note`). No work waits for the fsync
of that line: a power cut loses at most the lines of the last second.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar, assert_never

from kafka_protocol.records.control import ControlEntry, leader_change
from metadata_topic.quorum.driver.ports import DriverWorld
from metadata_topic.quorum.driver.raft_metrics import RaftMetrics
from metadata_topic.quorum.log.batches import quorum_entries, voters_entry
from metadata_topic.raft.effects import (
    Append,
    AppendEpochStart,
    AppendVoters,
    DropChunks,
    FlushLog,
    InstallSnapshot,
    TruncateLog,
    WriteChunk,
)
from metadata_topic.raft.events import (
    ChunkWritten,
    Event,
    Flushed,
    SegmentFull,
    Truncated,
)
from runtime.scheduler import Timer
from runtime.work import WorkQueue

T = TypeVar("T")

LINES_FSYNC_MS: Final = 1_000
"""Delay from a flush to the fsync of its line in the note."""

LogEffect = (
    Append
    | AppendEpochStart
    | AppendVoters
    | FlushLog
    | TruncateLog
    | WriteChunk
    | InstallSnapshot
    | DropChunks
)


class LogWork:
    """Executes effects on the log; used from the loop's thread only."""

    def __init__(
        self,
        world: DriverWorld,
        metrics: RaftMetrics,
        *,
        queue: WorkQueue,
        line_queue: WorkQueue,
        handle: Callable[[Event], None],
    ) -> None:
        """Take the parts.

        Args:
            world: Has the log and the snapshots to change.
            metrics: Get the counts and durations.
            queue: Runs the work that the core waits for.
            line_queue: Makes lines of the note durable, apart from the other work.
            handle: Called on the loop with the result of an effect.
        """
        self._log, self._snapshots = world.log, world.snapshots
        self._clock, self._scheduler = world.ports.clock, world.ports.scheduler
        self._metrics = metrics
        self._queue, self._line_queue = queue, line_queue
        self._handle = handle
        self._line_timer: Timer | None = None
        self._is_over = False

    def do(self, effect: LogEffect) -> None:
        """Execute an effect, or queue it.

        Raises:
            KafkaError, OSError: An append failed.
        """
        match effect:
            case AppendEpochStart():
                self._open_epoch(effect)
            case AppendVoters(voters=voters, kraft_version=level):
                entries = [voters_entry(voters)] if level is None else quorum_entries(level, voters)
                self._append_controls(entries, effect.epoch)
            case Append():
                self._append(effect)
            case FlushLog():
                self._flush()
            case TruncateLog(end_offset):
                self._alone(
                    partial(self._truncate, end_offset),
                    lambda _: self._handle(Truncated(end_offset)),
                )
            case WriteChunk(snapshot_id, position, data):
                self._queue.add(
                    partial(self._snapshots.write_chunk, snapshot_id, position, data),
                    lambda end: self._handle(ChunkWritten(snapshot_id, end)),
                )
            case InstallSnapshot(snapshot_id, size_bytes):
                install = partial(self._snapshots.install, snapshot_id, size_bytes)
                self._alone(install, self._handle)
            case DropChunks():
                self._queue.add(self._snapshots.drop_chunks, lambda _: None)
            case _:
                assert_never(effect)

    def stop(self) -> None:
        """Start no more work; queued work is finished."""
        self._is_over = True
        if self._line_timer is not None:
            self._line_timer.cancel()

    # -- appends --------------------------------------------------------------------------------

    def _open_epoch(self, effect: AppendEpochStart) -> None:
        entries = [leader_change(effect.leader_id, effect.voters.ids, effect.granting)]
        if effect.with_voters:
            entries += quorum_entries(effect.kraft_version, effect.voters)
        self._append_controls(entries, effect.epoch)

    def _append_controls(self, entries: Sequence[ControlEntry], epoch: int) -> None:
        self._log.append_controls(entries, epoch=epoch, timestamp_ms=self._clock.wall_ms())

    def _append(self, effect: Append) -> None:
        batches = effect.batches
        if batches[-1].end_offset <= self._log.end_offset:
            return  # the leader's own batches, which it has appended already
        self._log.append_fetched(effect.data, timestamp_ms=self._clock.wall_ms())
        self._metrics.fetched(batches[-1].end_offset - batches[0].base_offset)
        if self._log.wants_flush:
            self._handle(SegmentFull())

    # -- fsyncs ---------------------------------------------------------------------------------

    def _flush(self) -> None:
        began_ms = self._clock.monotonic_ms()

        def flushed(end_offset: int) -> None:
            self._metrics.fsync_ms.observe(self._clock.monotonic_ms() - began_ms)
            self._handle(Flushed(end_offset))
            self._fsync_lines_later()

        self._queue.add(self._log.flush, flushed)

    def _fsync_lines_later(self) -> None:
        if self._line_timer is None and self._log.note.has_unsynced_lines and not self._is_over:
            self._line_timer = self._scheduler.call_later(LINES_FSYNC_MS, self._fsync_lines)

    def _fsync_lines(self) -> None:
        self._line_timer = None
        if not self._is_over:
            self._line_queue.add(self._log.note.fsync_lines, lambda _: self._fsync_lines_later())

    # -- what cuts the log ----------------------------------------------------------------------

    def _alone(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Change the log on the pool, once nothing else uses it there."""
        gate = self._log.gate

        def finish(result: T) -> None:
            done(result)  # the core and the listeners process it before any further read
            gate.open()

        self._queue.add(work, finish, first=gate.shut)

    def _truncate(self, end_offset: int) -> None:
        """Cut the log and make the rest durable, on which the core depends."""
        self._log.truncate_to(end_offset)
        self._log.flush()
