"""One retention pass over all logs: rolls due segments, deletes expired ones.

Log starts are on the disk before a segment is deleted. Otherwise a kill could lose the log start.
Then offsets in the remote tier would be refused, and a lost first segment would look like an
expired one. Work that waits for the disk runs on the pool. It reads the ages of the oldest segments
(a start does not), writes log starts and clipped epoch chains, and renames files. The loop does the
rest, for a slice of the logs at a time; a leased log comes last.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError, LogClosed
from local_log.log import retention
from local_log.log.partition_log import PartitionLog
from local_log.log.results import Expiry
from local_log.log.retention_policy import Reason
from runtime.executors import Pool
from runtime.incidents import Incident
from runtime.scheduler import Scheduler
from runtime.work import OnPool, Pace, Runner, Until, Work, logged

log = logging.getLogger(__name__)

T = TypeVar("T")
NotKept = Mapping[TopicPartition, KafkaStorageError]
Dropped = list[tuple[TopicPartition, int, Reason]]
Expired = list[tuple[PartitionLog, Expiry]]

SLICE_LOGS: Final = 50
"""Logs for which the pool does its part at a time."""
CHECK_WORK: Final = 20
CHANGE_WORK: Final = 1_000
"""Units of work (`runtime.work`) of a log without changes, and of one with changes of files."""


def _nothing() -> None:
    """Ignore the end of a pass."""


class RetentionPass:
    """Runs retention passes.

    Args:
        is_open: Returns True if a log is still in use; other logs are skipped.
        keep_log_starts: Makes log starts durable; returns those that failed.
        pool: For work that waits for the disk.
        scheduler: Of the loop.
    """

    def __init__(
        self,
        *,
        is_open: Callable[[PartitionLog], bool],
        keep_log_starts: Callable[[Iterable[TopicPartition]], NotKept],
        pool: Pool,
        scheduler: Scheduler,
    ) -> None:
        self._is_open = is_open
        self._keep_log_starts = keep_log_starts
        self._pool = pool
        self._scheduler = scheduler

    def run(
        self,
        logs: Sequence[PartitionLog],
        now_ms: int,
        *,
        ended: Callable[[], None] = _nothing,
        release_copied: bool = False,
    ) -> Dropped:
        """Begin one pass; it continues after the return.

        Args:
            logs: To check.
            now_ms: Wall clock.
            ended: Called on the loop at the end of the pass; not called if the process stops first.
            release_copied: Also delete copied segments within local retention.

        Returns:
            A list of (partition, base offset, reason), which has all deleted segments at the end.
        """
        dropped: Dropped = []

        def work() -> Work[None]:
            late = yield from self._round(logs, now_ms, dropped, release_copied=release_copied)
            for each in late:  # a hanging disk may have leased them: all other logs come first
                yield Until(each.lease.when_here)
                yield from self._round([each], now_ms, dropped, release_copied=release_copied)
            ended()

        Runner(work, self._scheduler, failed=logged("retention pass")).start()
        return dropped

    def _round(
        self, logs: Sequence[PartitionLog], now_ms: int, dropped: Dropped, *, release_copied: bool
    ) -> Work[list[PartitionLog]]:
        """Check logs and delete expired segments; returns the logs that were leased."""
        pace, expired, late = Pace(), list[tuple[PartitionLog, Expiry]](), list[PartitionLog]()
        for some in _slices(logs):
            yield OnPool(self._pool, _learn_ages, some, now_ms)
            for each in some:
                if each.lease.is_leased:
                    late.append(each)
                    continue
                work_done = CHECK_WORK
                with _reported(each):
                    if self._is_open(each):
                        if each.roll_if_due(now_ms):
                            work_done = CHANGE_WORK
                        expiry = retention.expire(each, now_ms, release_copied=release_copied)
                        if expiry is not None:
                            expired.append((each, expiry))
                if pace.is_step_over(work_done):
                    yield None
        if expired:
            names = [each.topic_partition for each, _ in expired]
            not_kept = yield OnPool(self._pool, self._keep_log_starts, names)
            kept = [item for item in expired if item[0].topic_partition not in not_kept]
            late += yield from self._drop(kept, dropped)
        return late

    def _drop(self, leaving: Expired, dropped: Dropped) -> Work[list[PartitionLog]]:
        pace, late = Pace(), list[PartitionLog]()
        for some in _slices(leaving):
            yield OnPool(self._pool, _write_chains, some)
            gone = []
            for each, expiry in some:
                if each.lease.is_leased:
                    late.append(each)
                    continue
                with _reported(each):
                    if self._is_open(each):
                        went = retention.take_out(each, expiry)
                        name = each.topic_partition
                        dropped.extend((name, base, reason) for base, reason in went)
                        gone.append(each)
                if pace.is_step_over(CHANGE_WORK):
                    yield None
            for each, paths in (yield OnPool(self._pool, _rename, gone)):
                each.delete_later(paths)
        return late


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + SLICE_LOGS] for start in range(0, len(items), SLICE_LOGS))


@contextmanager
def _reported(each: PartitionLog) -> Iterator[None]:
    """Log an error of one log, so that the others continue."""
    try:
        yield
    except LogClosed:
        pass  # deleted meanwhile
    except KafkaStorageError as error:
        log.error(Incident.RETENTION_FAILED.line(partition=each.topic_partition, error=error))  # noqa: TRY400
    except Exception:
        log.exception(
            Incident.DEFECT.line(what=f"retention failed: partition={each.topic_partition}")
        )


def _learn_ages(logs: Iterable[PartitionLog], now_ms: int) -> None:
    for each in logs:
        with _reported(each):
            retention.learn_ages(each, now_ms)


def _write_chains(expired: Iterable[tuple[PartitionLog, Expiry]]) -> None:
    for each, expiry in expired:
        with _reported(each):
            first = each.chain_start(expiry.log_start_offset)
            each.epoch_file.write_clipped_ahead(first)
            retention.keep_producers(each, expiry)


def _rename(logs: Iterable[PartitionLog]) -> list[tuple[PartitionLog, list[Path]]]:
    renamed = []
    for each in logs:
        with _reported(each):
            renamed.append((each, retention.rename_leaving(each)))
    return renamed
