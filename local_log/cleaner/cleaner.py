"""The log cleaner of a broker: cleans due logs one after the other, the dirtiest first.

Runs on the loop in short slices. A process of its own reads and writes (`process.py`). The thread
`log-cleaner` waits for it and renames files. The loop chooses the next log and puts new segments in
place. A process that crashes or hangs does no harm: its files are removed, and the pass is repeated
with a growing delay.

DIFFERS: `log.cleaner.threads` only switches the cleaner on or off: one process serves all logs,
with the whole of `log.cleaner.dedupe.buffer.size`.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import Final, Protocol

from kafka_protocol.types import TopicPartition
from local_log.cleaner.log_pass import CleanerSettings, Done, Group, Job
from local_log.cleaner.policy import Range, SourceSegment, cleanable
from local_log.cleaner.process import Alive, Failed, ProcessWorker, WorkerLostError
from local_log.config import LONG_MAX, LogConfig
from local_log.errors import KafkaStorageError, LogClosed
from local_log.file_names import TXN_INDEX
from local_log.log.cleaning import PassSpoiltError
from local_log.log.partition_log import PartitionLog
from local_log.producers.last_batches import LastBatches
from local_log.segment.segment import LogSegment
from runtime.health_reasons import HealthLine, HealthReason
from runtime.incidents import Incident
from runtime.log_context import Outage
from runtime.ports import Ports
from runtime.scheduler import Timer
from runtime.work import OnPool, Runner, Until, Work, logged

log = logging.getLogger(__name__)

POOL: Final = "log-cleaner"
SLICE_LOGS: Final = 20
"""Logs whose segments are listed in one slice."""
LOGS_PER_SLICE: Final = 1000
"""Logs whose settings are read in one slice."""
SLICE_PRODUCERS: Final = 5000
"""Producers of one log that are packed in one slice."""
CHECK_MAX_MS: Final = 60_000
"""How long passes rely on one check; a check visits the segments of every compacted log."""
BACKOFF_MIN_MS: Final = 100
RETRY_MAX_MS: Final = 10 * 60_000
LOSSES_MAX: Final = 5
"""Processes in a row that may crash over one log before it is set aside."""
_SHOWN_MAX: Final = 100


class CleanedLogs(Protocol):
    """The log manager, as the cleaner uses it."""

    def all(self) -> Sequence[PartitionLog]:
        """Every open log."""

    def is_open(self, log: PartitionLog) -> bool:
        """True if a log is still open."""

    def cleaned_to(self, tp: TopicPartition) -> int | None:
        """Return the offset in the cleaner's checkpoint."""

    def note_cleaned(self, log: PartitionLog, offset: int) -> bool:
        """Write the checkpoint durably, unless the log was truncated.

        False if it was not written.
        """


@dataclass(slots=True)
class CleanerFacts:
    """Facts for metrics, of the last pass unless said otherwise.

    Attributes:
        dirty_ratio: Of the dirtiest log, at the last check.
        delay_ms: By how much the oldest record exceeds `max.compaction.lag.ms`, at the last check.
        recopy_ratio: Bytes written per byte read.
        map_use: Used part of the map of keys.
        clean_ms: Duration of the pass.
        checked_ms: Monotonic time of the last check; None before the first.
        failures: Attempts in a row that crashed the process.
        passes, read_bytes, written_bytes: Of all passes.
    """

    dirty_ratio: float = 0.0
    delay_ms: int = 0
    recopy_ratio: float = 0.0
    map_use: float = 0.0
    clean_ms: int = 0
    checked_ms: int | None = None
    failures: int = 0
    passes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


@dataclass(frozen=True, slots=True)
class NotedLog:
    """State of a log at one moment: noted on the loop, its files read on a pool thread.

    Attributes:
        segments: All of them, the last one active.
        active_bytes: Size of the active one, up to the log end.
    """

    log: PartitionLog
    config: LogConfig
    segments: Sequence[LogSegment]
    log_start_offset: int
    log_end_offset: int
    active_bytes: int
    stable_end: int
    cleaned_to: int | None

    @classmethod
    def of(cls, log: PartitionLog, cleaned_to: int | None) -> "NotedLog":
        """Note the state of a log; on the loop."""
        return cls(
            log,
            log.config,
            list(log.segments.all),
            log.log_start_offset,
            log.log_end_offset,
            log.segments.active.size_bytes,
            log.last_stable_offset,
            cleaned_to,
        )

    def range(self, now_ms: int) -> Range:
        """Return the cleanable part; on a pool thread.

        Raises:
            OSError: A file cannot be read, or was deleted meanwhile.
        """
        config = self.config
        needs_first = config.max_compaction_lag_ms != LONG_MAX
        needs_newest = config.min_compaction_lag_ms > 0
        closed = [
            SourceSegment(
                segment.base_offset,
                following.base_offset,
                segment.size_bytes,
                first_timestamp=segment.first_batch_timestamp if needs_first else -1,
                max_timestamp=segment.max_timestamp if needs_newest else -1,
            )
            for segment, following in pairwise(self.segments)
        ]
        return cleanable(
            closed,
            config,
            now_ms,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            stable_end=self.stable_end,
            cleaned_to=self.cleaned_to,
        )

    def job(
        self,
        found: Range,
        producers: bytes,
        settings: CleanerSettings,
        *,
        number: int,
        token: str,
        now_ms: int,
    ) -> Job:
        """Make the job for the cleaner process; on a pool thread.

        Raises:
            OSError: A file cannot be read, or was deleted meanwhile.
        """
        config, disk, segments, ahead = self.config, self.log.disk, [], []
        for segment, following in pairwise(self.segments):
            base_offset, end_offset = segment.base_offset, following.base_offset
            if end_offset > found.first_uncleanable:
                ahead.append(SourceSegment(base_offset, end_offset, segment.size_bytes))
                continue
            sizes = [disk.size(one.path) for one in (segment.offset_index, segment.time_index)]
            segments.append(SourceSegment(base_offset, end_offset, segment.size_bytes, *sizes))
        active = self.segments[-1].base_offset
        ahead.append(SourceSegment(active, self.log_end_offset, self.active_bytes))
        return Job(
            number=number,
            token=token,
            directory=str(self.log.directory),
            segments=segments,
            ahead=ahead,
            first_dirty=min(found.first_dirty, found.first_uncleanable),
            aborted=[one.base_offset for one in self.segments if disk.exists(one.path(TXN_INDEX))],
            producers=producers,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            settings=settings,
        )


def check_logs(some: Sequence[NotedLog], now_ms: int) -> list[tuple[NotedLog, Range | OSError]]:
    """Return the cleanable part of each, or the error of reading it; on a pool thread."""
    found: list[tuple[NotedLog, Range | OSError]] = []
    for noted in some:
        try:
            found.append((noted, noted.range(now_ms)))
        except OSError as error:
            found.append((noted, error))
    return found


@dataclass(slots=True)
class _Retry:
    """A log whose last pass failed.

    Attributes:
        at_ms: Monotonic time of the next attempt.
        failures: Number of consecutive failures.
        losses: Number of these failures that crashed the process.
    """

    at_ms: int
    failures: int
    losses: int
    outage: Outage = field(repr=False)


class LogCleaner:
    """The cleaner of one broker; on the loop.

    Attributes:
        facts: For metrics.
    """

    def __init__(
        self,
        logs: CleanedLogs,
        settings: Callable[[], CleanerSettings],
        ports: Ports,
        worker: ProcessWorker,
    ) -> None:
        """Take the parts; `start` begins the work.

        Args:
            logs: All logs.
            settings: Returns the present ones.
            ports: Of the process.
            worker: Runs the passes.
        """
        self._logs, self._settings, self._worker = logs, settings, worker
        self._disk, self._clock, self._rng = ports.disk, ports.clock, ports.rng
        self._scheduler = ports.scheduler
        self._pool = ports.executors.pool(POOL, 1)
        self._runner = Runner(self._steps, ports.scheduler, failed=logged("log cleaner"))
        self._timer: Timer | None = None
        self._number = 0
        self._is_stopped = False
        self._outage = Outage(log, "the cleaner process", ports.clock)
        self._retry_process_ms = 0
        self._last_loss = ""
        self._retries: dict[PartitionLog, _Retry] = {}
        self.facts = CleanerFacts()
        self._aside: set[PartitionLog] = set()
        self._unread: dict[PartitionLog, tuple[Outage, OSError]] = {}

    def start(self) -> None:
        """Check now, and again after each pause."""
        self.look()
        if not self._is_stopped:
            pause_ms = max(self._settings().backoff_ms, BACKOFF_MIN_MS)
            self._timer = self._scheduler.call_later(pause_ms, self.start)

    @property
    def is_working(self) -> bool:
        """True if a check or a pass is in progress."""
        return self._runner.is_running

    def look(self) -> None:
        """Check now; work in progress continues."""
        if not self._is_stopped and self._settings().is_enabled:
            self._runner.start()

    async def stop(self) -> None:
        """Stop cleaning; an unfinished pass is left as after a kill."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._worker.stop()
        await self._runner.stop()
        await self._pool.run(self._worker.close)

    @property
    def uncleanable(self) -> list[PartitionLog]:
        """Logs set aside: not cleaned until the next start, or a truncation."""
        self._aside = {o for o in self._aside if o.cleaning.uncleanable and self._logs.is_open(o)}
        return list(self._aside)

    @property
    def unread(self) -> list[PartitionLog]:
        """Logs that the last check could not read; the next one tries again."""
        return [one for one in self._unread if self._logs.is_open(one)]

    def problems(self) -> list[HealthLine]:
        """Lines about logs that are not cleaned, with reasons; for people, up to a page.

        Only the lines shown are made, since the event loop makes them.
        """
        aside, unread = self.uncleanable, self.unread
        until_the_next_start = (
            HealthReason.NOT_COMPACTED.line(
                partition=one.topic_partition, why=one.cleaning.uncleanable
            )
            for one in aside
        )
        tried_again = (
            HealthReason.NOT_COMPACTED_YET.line(
                partition=one.topic_partition, why=str(self._unread[one][1])
            )
            for one in unread
        )
        lines = sorted(islice(chain(until_the_next_start, tried_again), _SHOWN_MAX))
        if (more := len(aside) + len(unread) - len(lines)) > 0:
            lines.append(HealthReason.MORE_NOT_COMPACTED.line(count=more))
        if self.facts.failures:
            lines.append(HealthReason.CLEANER_PROCESS.line(why=self._last_loss))
        return lines

    # -- which one ------------------------------------------------------------------------------

    def _steps(self) -> Work[None]:
        while self._continues() and (due := (yield from self._find_due())):
            checked_ms = self._clock.monotonic_ms()
            for each in due:
                if self._may_clean(each):
                    yield from self._clean(each)
                yield None
                if not self._continues() or self._clock.monotonic_ms() - checked_ms >= CHECK_MAX_MS:
                    break  # other logs may be dirtier by now
        yield OnPool(self._pool, self._worker.collect)

    def _continues(self) -> bool:
        """True if a pass may begin: not during the delay after a crash of the process."""
        return not self._is_stopped and self._clock.monotonic_ms() >= self._retry_process_ms

    def _find_due(self) -> Work[list[PartitionLog]]:
        """Return the logs that are due, the dirtiest first; the result serves many passes."""
        candidates: list[PartitionLog] = []
        for number, each in enumerate(self._logs.all(), 1):
            if number % LOGS_PER_SLICE == 0:
                yield None
            if each.config.compacts and self._may_clean(each):
                candidates.append(each)
        now_ms, dirty_ratio, delay_ms = self._clock.wall_ms(), 0.0, 0
        due: list[tuple[float, PartitionLog]] = []
        unread: dict[PartitionLog, tuple[Outage, OSError]] = {}
        for start in range(0, len(candidates), SLICE_LOGS):
            some = [
                NotedLog.of(each, self._logs.cleaned_to(each.topic_partition))
                for each in candidates[start : start + SLICE_LOGS]
                if self._logs.is_open(each)
            ]
            for noted, found in (yield OnPool(self._pool, check_logs, some, now_ms)):
                if isinstance(found, OSError):
                    unread |= self._unreadable(noted, found)
                    continue
                dirty_ratio = max(dirty_ratio, found.dirty_ratio)
                delay_ms = max(delay_ms, found.delay_ms)
                if found.is_due(noted.config):
                    due.append((found.dirty_ratio, noted.log))
        for each, (outage, _) in self._unread.items():
            if each not in unread and self._logs.is_open(each):
                outage.succeeded()
        self._unread = unread
        self.facts.checked_ms = self._clock.monotonic_ms()
        self.facts.dirty_ratio, self.facts.delay_ms = dirty_ratio, delay_ms
        due = yield OnPool(self._pool, sorted, due, key=itemgetter(0), reverse=True)
        return [each for _, each in due]

    def _unreadable(
        self, noted: NotedLog, error: OSError
    ) -> dict[PartitionLog, tuple[Outage, OSError]]:
        """Return the entry of a log that could not be read; each outage is logged once.

        Empty if its segments have changed since they were noted: files may have been deleted.
        """
        each = noted.log
        if not self._logs.is_open(each) or each.segments.all != noted.segments:
            return {}
        outage = Outage(log, f"looking at {each.topic_partition} for the cleaner", self._clock)
        outage = self._unread.get(each, (outage, error))[0]
        outage.failed(error)
        return {each: (outage, error)}

    def _may_clean(self, each: PartitionLog) -> bool:
        if each.is_offline or each.cleaning.uncleanable or each.config.remote_storage_enable:
            return False
        retry = self._retries.get(each)
        return retry is None or self._clock.monotonic_ms() >= retry.at_ms

    # -- one pass -------------------------------------------------------------------------------

    def _clean(self, each: PartitionLog) -> Work[None]:
        if not self._logs.is_open(each) or self._is_stopped:
            return
        token = self._rng.uuid().hex()[:12]
        each.cleaning.begin()
        try:
            # A truncation before `begin` goes unnoticed; the log is noted again after it.
            noted = NotedLog.of(each, self._logs.cleaned_to(each.topic_partition))
            found = yield OnPool(self._pool, noted.range, self._clock.wall_ms())
            if found.cleanable_bytes:
                yield from self._pass(noted, found, token)
            self._succeeded(each)
        except WorkerLostError as error:
            self._process_failed(each, error)
        except (PassSpoiltError, LogClosed) as error:
            log.info("a pass is thrown away: partition=%s %s", each.topic_partition, error)
            self._worker.kill()
            if self._logs.is_open(each) and not each.cleaning.is_spoilt:
                self._postpone(each, error)  # the cause is unknown: not again at once
        except (KafkaStorageError, OSError) as error:
            self._worker.kill()
            self._postpone(each, error)
        finally:
            each.cleaning.end()
        with suppress(LogClosed, KafkaStorageError):  # removed with its directory, or at a start
            yield OnPool(self._pool, each.cleaning.remove_leftovers, token)

    def _pass(self, noted: NotedLog, found: Range, token: str) -> Work[None]:
        each, begun_ms = noted.log, self._clock.monotonic_ms()
        yield from self._put_in_place(each)  # the last pass had no descriptors left, say
        # The new segments are durable, so the segments that they replace must have been durable,
        # too.
        yield OnPool(self._pool, each.flush, found.first_uncleanable)
        if noted.cleaned_to is None or found.resets:
            # Before the first hole: holes are valid only in a log that is in this checkpoint.
            yield OnPool(self._pool, self._note, each, found.first_dirty)
        producers, start = each.producers.states, noted.segments[0].base_offset
        last = LastBatches(producers, start, found.first_uncleanable)
        while last.take(SLICE_PRODUCERS):
            yield None
            self._check(each)
        self._number += 1
        job: Job = yield OnPool(
            self._pool,
            noted.job,
            found,
            bytes(last.packed),
            self._settings(),
            number=self._number,
            token=token,
            now_ms=self._clock.wall_ms(),
        )
        yield OnPool(self._pool, self._worker.begin, job)
        while True:
            self._check(each)
            answer = yield OnPool(self._pool, self._worker.next_answer)
            match answer:
                case Alive():
                    pass
                case Group():
                    yield from self._swap(each, answer, token)
                case Done():
                    yield OnPool(self._pool, self._note, each, answer.cleaned_to)
                    self._count(noted, answer, self._clock.monotonic_ms() - begun_ms)
                    return
                case Failed():
                    if each.cleaning.is_spoilt:  # the truncation removed the missing offsets
                        raise PassSpoiltError(answer.reason)
                    if not answer.is_damage:
                        raise OSError(answer.reason)
                    self.set_aside(each, answer.reason)
                    return

    def _check(self, each: PartitionLog) -> None:
        if each.cleaning.is_spoilt or not self._logs.is_open(each):
            raise PassSpoiltError("the log was truncated or removed")

    def _swap(self, each: PartitionLog, group: Group, token: str) -> Work[None]:
        if not group.is_changed:
            return
        yield OnPool(self._pool, each.cleaning.make_ready, group.old[0], token)
        new = group.segment(each.disk, each.directory)
        yield Until(each.lease.when_here)
        each.cleaning.take(group.old, group.old_bytes, new)
        yield from self._put_in_place(each)

    def _put_in_place(self, each: PartitionLog) -> Work[None]:
        yield OnPool(self._pool, each.cleaning.put_in_place)
        each.delete_later(each.cleaning.settle())

    def _note(self, each: PartitionLog, offset: int) -> None:
        if not self._logs.note_cleaned(each, offset):
            raise PassSpoiltError("the checkpoint of the cleaner was not written")

    # -- results ----------------------------------------------------------------------------------

    def _count(self, noted: NotedLog, done: Done, took_ms: int) -> None:
        facts = self.facts
        facts.passes += 1
        facts.read_bytes += done.read_bytes
        facts.written_bytes += done.written_bytes
        facts.recopy_ratio = done.written_bytes / done.read_bytes if done.read_bytes else 0.0
        facts.map_use, facts.clean_ms = done.map_use, took_ms
        log.info(
            "cleaned: partition=%s to=%d read_bytes=%d written_bytes=%d took_ms=%d keys_left=%s",
            noted.log.topic_partition,
            done.cleaned_to,
            done.read_bytes,
            done.written_bytes,
            took_ms,
            done.keys_left,
        )

    def set_aside(self, each: PartitionLog, reason: str) -> None:
        """Stop cleaning a log until the next start."""
        each.cleaning.set_aside(reason)
        self._aside.add(each)
        log.error(Incident.NOT_CLEANED.line(partition=each.topic_partition, reason=reason))

    def _succeeded(self, each: PartitionLog) -> None:
        self.facts.failures = self._retry_process_ms = 0
        self._outage.succeeded()
        retry = self._retries.pop(each, None)
        if retry is not None:
            retry.outage.succeeded()

    def _process_failed(self, each: PartitionLog, error: WorkerLostError) -> None:
        if self._is_stopped:
            return
        self._outage.failed(error)
        self._last_loss = str(error)
        self.facts.failures += 1
        self._retry_process_ms = self._clock.monotonic_ms() + self._pause_ms(self.facts.failures)
        # Later than the next process: another log comes first.
        retry = self._postpone(each, error)
        retry.at_ms += self._pause_ms(self.facts.failures)
        retry.losses += error.in_job
        if retry.losses >= LOSSES_MAX:
            del self._retries[each]
            self.set_aside(each, f"{LOSSES_MAX} processes in a row ended over it: {error}")
            self.facts.failures = 0

    def _postpone(self, each: PartitionLog, error: Exception) -> _Retry:
        for other in [one for one in self._retries if not self._logs.is_open(one)]:
            del self._retries[other]
        retry = self._retries.get(each)
        if retry is None:
            outage = Outage(log, f"cleaning of {each.topic_partition}", self._clock)
            retry = self._retries[each] = _Retry(0, 0, 0, outage)
        retry.outage.failed(error)
        retry.failures += 1
        retry.at_ms = self._clock.monotonic_ms() + self._pause_ms(retry.failures)
        return retry

    def _pause_ms(self, failures: int) -> int:
        return min(
            max(self._settings().backoff_ms, BACKOFF_MIN_MS) << min(failures - 1, 10), RETRY_MAX_MS
        )
