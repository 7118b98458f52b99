"""Periodic work on every log, for some logs in each iteration of the loop.

Background flushes are submitted a few at a time: thousands of them in the pool's queue would delay
the flushes after rolls, and the checkpoints.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from local_log.errors import KafkaStorageError, LogClosed
from local_log.log.partition_log import PartitionLog
from runtime.executors import Pool
from runtime.incidents import Incident
from runtime.scheduler import Scheduler
from runtime.work import OnPool, Runner, Steps, Work, logged

log = logging.getLogger(__name__)

SLICE_LOGS: Final = 1000
"""Logs checked in one slice, at some tenths of a microsecond each."""
SLICE_PRODUCERS: Final = 5000
FLUSHES_AT_ONCE: Final = 16
"""Logs flushed by one call on the pool, one after the other."""


class LogMaintenance:
    """Periodic flushes and expiries of producers.

    Args:
        logs: Returns all open ones.
        is_open: Returns True if a log is still open.
        pool: Runs the flushes.
        scheduler: Of the loop.
    """

    def __init__(
        self,
        *,
        logs: Callable[[], Sequence[PartitionLog]],
        is_open: Callable[[PartitionLog], bool],
        pool: Pool,
        scheduler: Scheduler,
    ) -> None:
        self._logs, self._is_open, self._pool = logs, is_open, pool
        self._now_ms = self._expiration_ms = 0
        failed = logged("flush of what is due")
        self._flushing = Runner(self._flushes, scheduler, failed=failed)
        failed = logged("expiry of producers")
        self._expiring = Runner(self._expiries, scheduler, failed=failed)

    def flush_due(self, now_ms: int) -> None:
        """Flush logs whose `flush.ms` has passed; no effect during a pass."""
        if not self._flushing.is_running:
            self._now_ms = now_ms
            self._flushing.start()

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers that were silent too long; no effect during a pass."""
        if not self._expiring.is_running:
            self._now_ms, self._expiration_ms = now_ms, expiration_ms
            self._expiring.start()

    def _flushes(self) -> Work[None]:
        now_ms, due = self._now_ms, list[tuple[PartitionLog, int]]()
        for number, each in enumerate(self._logs(), 1):
            if self._is_open(each) and each.flush_if_due(now_ms):
                due.append((each, each.log_end_offset))
            is_slice_over = number % SLICE_LOGS == 0
            if due and (is_slice_over or len(due) == FLUSHES_AT_ONCE):
                yield OnPool(self._pool, _flush_all, due)
                due = []
            if is_slice_over:
                yield None
        if due:
            yield OnPool(self._pool, _flush_all, due)

    def _expiries(self) -> Steps[None]:
        now_ms, expiration_ms, looks = self._now_ms, self._expiration_ms, 0
        for each in self._logs():
            producers = each.producers.states
            ids = list(producers.producers)
            for start in range(0, len(ids), SLICE_PRODUCERS):
                if not self._is_open(each) or each.lease.is_leased:
                    break
                some = ids[start : start + SLICE_PRODUCERS]
                producers.expire(now_ms, expiration_ms, some)
                looks += len(some)
                if looks >= SLICE_PRODUCERS:
                    looks = 0
                    yield
            looks += SLICE_PRODUCERS // SLICE_LOGS
            if looks >= SLICE_PRODUCERS:
                looks = 0
                yield


def _flush_all(due: Iterable[tuple[PartitionLog, int]]) -> None:
    for each, up_to in due:
        flush(each, up_to)


def flush(each: PartitionLog, up_to: int) -> None:
    """Flush a log below `up_to`; errors are logged. On a pool thread."""
    try:
        each.flush(up_to)
    except LogClosed:
        pass  # deleted meanwhile
    except KafkaStorageError as error:
        log.error(Incident.FLUSH_FAILED.line(partition=each.topic_partition, error=error))  # noqa: TRY400
