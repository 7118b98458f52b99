"""One retention pass over all logs: roll what is due, drop what has expired.

Log starts are on the disk before a first segment goes: a kill after it must still find the start,
or clients would be told that what is remote is gone, and a lost first segment would look like an
expired one. That waits for the disk, so it is done on the pool; the rest is the loop's.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from local_log.log_results import Expiry
from local_log.partition_log import PartitionLog
from local_log.retention import Reason
from runtime.executors import Pool

_log = logging.getLogger(__name__)

NotKept = Mapping[TopicPartition, KafkaStorageError]
Dropped = list[tuple[TopicPartition, int, Reason]]


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

    def run(self, logs: Sequence[PartitionLog], now_ms: int) -> Dropped:
        """Do one pass.

        Returns:
            (partition, base offset, reason) of each dropped segment, once the pool is done.
        """
        dropped: Dropped = []
        expired = []
        for log in logs:
            try:
                log.roll_if_due(now_ms)
                expiry = log.expire(now_ms)
            except KafkaStorageError as error:
                _log.error("retention failed: partition=%s error=%s", log.topic_partition, error)
                continue
            if expiry is not None:
                expired.append((log, expiry))
        if expired:
            kept = self._pool.submit(
                self._keep_log_starts, [log.topic_partition for log, _ in expired]
            )
            kept.add_done_callback(
                lambda _: self._to_loop(partial(self._drop, expired, kept, dropped))
            )
        return dropped

    def _drop(
        self,
        expired: Sequence[tuple[PartitionLog, Expiry]],
        kept: "Future[NotKept]",
        dropped: Dropped,
    ) -> None:
        for log, expiry in expired:
            tp = log.topic_partition
            if tp in kept.result() or not self._is_open(log):
                continue
            try:
                dropped += [(tp, base, reason) for base, reason in log.drop(expiry).dropped]
            except KafkaStorageError as error:
                _log.error("retention failed: partition=%s error=%s", tp, error)
