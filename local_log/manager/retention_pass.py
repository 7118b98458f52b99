"""One retention pass over all logs: roll what is due, drop what has expired.

Log starts are on the disk before a first segment goes: a kill after it must still find the start,
or clients would be told that what is remote is gone, and a lost first segment would look like an
expired one. Whatever waits for the disk is done on the pool: the ages of the oldest segments, which
a start does not read, log starts, the epoch chains that then begin there, and the new names of what
goes. The rest is the loop's, a slice of the logs at a time; a log that is leased comes last.
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
"""For so many logs the pool does its part at a time."""
CHECK_WORK: Final = 20
CHANGE_WORK: Final = 1_000
"""Units of work (`runtime.work`) of a log that stays as it is, and of one that files change of."""


def _nothing() -> None:
    """Nobody waits for the end of a pass."""


class RetentionPass:
    """See the module.

    Args:
        is_open: whether a log is still served; one that is not is passed over.
        keep_log_starts: makes log starts durable, and names those that it could not.
        pool: waits for the disk.
        scheduler: of the loop.
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
        """Do one pass.

        Args:
            logs: of these.
            now_ms: wall clock.
            ended: called on the loop once all is taken out; not at all where the process stops.
            release_copied: also take out whatever is copied, as if local retention were over.

        Returns:
            (partition, base offset, reason) of each dropped segment, once the pass is over.
        """
        dropped: Dropped = []

        def work() -> Work[None]:
            late = yield from self._round(logs, now_ms, dropped, release_copied=release_copied)
            for each in late:  # a disk that hangs may have them: all others have had their turn
                yield Until(each.lease.when_here)
                yield from self._round([each], now_ms, dropped, release_copied=release_copied)
            ended()

        Runner(work, self._scheduler, failed=logged("retention pass")).start()
        return dropped

    def _round(
        self, logs: Sequence[PartitionLog], now_ms: int, dropped: Dropped, *, release_copied: bool
    ) -> Work[list[PartitionLog]]:
        """Look at logs and drop what has expired of them; returns those that were leased."""
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
    """What goes wrong with one log does not keep the others from their turn."""
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


def _rename(logs: Iterable[PartitionLog]) -> list[tuple[PartitionLog, list[Path]]]:
    renamed = []
    for each in logs:
        with _reported(each):
            renamed.append((each, retention.rename_leaving(each)))
    return renamed
