"""One retention pass over all logs: roll what is due, drop what has expired.

Log starts are on the disk before a first segment goes: a kill after it must still find the start,
or clients would be told that what is remote is gone, and a lost first segment would look like an
expired one. Whatever waits for the disk is done on the pool: the ages of the oldest segments, which
a start does not read, log starts, the epoch chains that then begin there, and the new names of what
goes. The rest is the loop's, a slice of the logs at a time; a log that is lent is waited for.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError, LogClosed
from local_log.log import retention
from local_log.log.partition_log import PartitionLog
from local_log.log.results import Expiry
from local_log.log.retention_policy import Reason
from runtime.executors import Pool

log = logging.getLogger(__name__)

NotKept = Mapping[TopicPartition, KafkaStorageError]
Dropped = list[tuple[TopicPartition, int, Reason]]
Expired = list[tuple[PartitionLog, Expiry]]
R = TypeVar("R")
T = TypeVar("T", PartitionLog, tuple[PartitionLog, Expiry])

SLICE_LOGS: Final = 50
"""After so many logs the loop may serve somebody else."""


def _nothing() -> None:
    """Nobody waits for the end of a pass."""


def _log_of(item: PartitionLog | tuple[PartitionLog, Expiry]) -> PartitionLog:
    """The log of a step of the pass."""
    return item if isinstance(item, PartitionLog) else item[0]


class RetentionPass:
    """See the module.

    Args:
        is_open: whether a log is still served; one that is not is passed over.
        keep_log_starts: makes log starts durable, and names those that it could not.
        to_loop: calls a function on the loop.
    """

    def __init__(
        self,
        *,
        is_open: Callable[[PartitionLog], bool],
        keep_log_starts: Callable[[Iterable[TopicPartition]], NotKept],
        pool: Pool,
        to_loop: Callable[[Callable[[], None]], object],
    ) -> None:
        self._is_open = is_open
        self._keep_log_starts = keep_log_starts
        self._pool = pool
        self._to_loop = to_loop

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
            (partition, base offset, reason) of each dropped segment, once the pool is done.
        """
        dropped: Dropped = []
        expired: Expired = []

        def decide(each: PartitionLog) -> None:
            if not self._is_open(each):
                return
            with _reported(each):
                each.roll_if_due(now_ms)
                expiry = retention.expire(each, now_ms, release_copied=release_copied)
                if expiry is not None:
                    expired.append((each, expiry))

        def keep() -> None:
            if expired:
                names = [each.topic_partition for each, _ in expired]
                self._then(partial(self._keep_log_starts, names), drop)
            else:
                ended()

        def drop(not_kept: NotKept) -> None:
            leaving = [
                (each, expiry) for each, expiry in expired if each.topic_partition not in not_kept
            ]
            self._in_slices(leaving, _write_chains, take_out, ended, slice_ended=rename)

        def take_out(leaving: tuple[PartitionLog, Expiry]) -> None:
            each, expiry = leaving
            if not self._is_open(each):
                return
            with _reported(each):
                went = retention.take_out(each, expiry)
                dropped.extend((each.topic_partition, base, reason) for base, reason in went)
                gone.append(each)

        def rename() -> None:
            names, gone[:] = list(gone), []
            self._then(partial(_rename, names), _delete_later)

        gone: list[PartitionLog] = []
        self._in_slices(logs, partial(_learn_ages, now_ms=now_ms), decide, keep)
        return dropped

    def _then(self, work: Callable[[], R], then: Callable[[R], None]) -> None:
        """Do `work` on the pool, and `then` on the loop with what came of it."""
        try:
            done = self._pool.submit(work)
        except RuntimeError:
            return  # the process stops: the next one goes on
        # Not by its name here: it keeps its callbacks, and would be in a cycle with all the logs.
        done.add_done_callback(lambda future: self._to_loop(lambda: then(future.result())))

    def _in_slices(
        self,
        items: Sequence[T],
        prepare: Callable[[Sequence[T]], None],
        do: Callable[[T], None],
        end: Callable[[], None],
        *,
        slice_ended: Callable[[], None] = _nothing,
    ) -> None:
        """For a slice after the other: `prepare` it on the pool, then `do` each on the loop."""
        slice_, rest = list(items[:SLICE_LOGS]), items[SLICE_LOGS:]
        left = len(slice_)

        def go_on(_: None) -> None:
            for item in slice_:
                _log_of(item).loan.when_here(partial(here, item))
            if not slice_:
                end()

        def here(item: T) -> None:
            nonlocal left
            do(item)
            left -= 1
            if left:
                return
            slice_ended()
            if rest:
                self._in_slices(rest, prepare, do, end, slice_ended=slice_ended)
            else:
                end()

        self._then(partial(prepare, slice_), go_on)


@contextmanager
def _reported(each: PartitionLog) -> Iterator[None]:
    """What goes wrong with one log does not keep the others from their turn."""
    try:
        yield
    except LogClosed:
        pass  # deleted meanwhile
    except KafkaStorageError as error:
        log.error("retention failed: partition=%s error=%s", each.topic_partition, error)  # noqa: TRY400


def _learn_ages(logs: Iterable[PartitionLog], now_ms: int) -> None:
    for each in logs:
        with _reported(each):
            retention.learn_ages(each, now_ms)


def _write_chains(expired: Iterable[tuple[PartitionLog, Expiry]]) -> None:
    for each, expiry in expired:
        with _reported(each):
            each.epoch_file.write_clipped_ahead(expiry.log_start_offset)


def _rename(logs: Iterable[PartitionLog]) -> list[tuple[PartitionLog, list[Path]]]:
    renamed = []
    for each in logs:
        with _reported(each):
            renamed.append((each, retention.rename_leaving(each)))
    return renamed


def _delete_later(renamed: Iterable[tuple[PartitionLog, list[Path]]]) -> None:
    for each, paths in renamed:
        each.delete_later(paths)
