"""Gate before the store for copies (or deletions): while the store fails, one partition probes.

Each try of a copy writes a STARTED record, which is kept for the copy maximum. A store that is away
must not cost one record for each partition and retry. Pool threads consult the gate and report to
it; `rlm.maintenance.held_passes` schedules the probes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from kafka_protocol.types import TopicIdPartition
from rlm.plugin_calls import StoreClosedError
from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError


class StoreGate:
    """Open while the store works.

    A retriable error closes it. Any other error may concern one partition alone, so it closes the
    gate only when a second partition gets one without a success in between. A success of any
    partition opens it.

    Attributes:
        successes: Number of successes.
        failed_probes: Failed probes since the last success.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._reason = ""
        self._last_failed: TopicIdPartition | None = None
        self._probe_is_due = False
        self._prober: TopicIdPartition | None = None
        self.successes = 0
        self.failed_probes = 0

    @property
    def is_open(self) -> bool:
        """True if all partitions may try."""
        return not self._reason

    @property
    def reason(self) -> str:
        """The error that closed it, "" while it is open."""
        return self._reason

    @property
    def is_probed(self) -> bool:
        """True if a probe runs."""
        return self._prober is not None

    @property
    def probe_is_due(self) -> bool:
        """True if the next partition that asks will probe."""
        return self._probe_is_due

    def let_probe(self) -> None:
        """While closed, let the next partition that asks try the store."""
        with self._lock:
            self._probe_is_due = not self.is_open and self._prober is None

    def open(self) -> None:
        """Let all partitions try, without a success."""
        with self._lock:
            self._open()

    def failed(self, partition: TopicIdPartition, error: RemoteStorageError) -> None:
        """A call of the store failed for the partition."""
        if isinstance(error, StoreClosedError):
            return  # the store was not called: the claim is not ours yet
        with self._lock:
            another = self._last_failed not in {None, partition}
            self._last_failed = partition
            is_retriable = isinstance(error, RetriableRemoteStorageError)
            if is_retriable or another or not self.is_open:
                self._reason = str(error) or repr(error)
            if self._prober == partition:
                self.failed_probes += 1
            self._leave(partition)

    @contextmanager
    def trying(self, partition: TopicIdPartition) -> Iterator[bool]:
        """Enter a try of the store; the block gets False if the partition may not try now.

        A `RemoteStorageError` of the block counts as a failure of the store.
        """
        with self._lock:
            may_try = self.is_open or self._probe_is_due
            if not self.is_open and may_try:
                self._probe_is_due, self._prober = False, partition
        try:
            yield may_try
        except RemoteStorageError as error:
            self.failed(partition, error)
            raise
        finally:
            with self._lock:
                self._leave(partition)

    def worked(self) -> bool:
        """Record a success; returns whether the store had failed before."""
        with self._lock:
            self.successes += 1
            was_closed = not self.is_open
            self._open()
            return was_closed

    def _open(self) -> None:
        self._reason, self._last_failed = "", None
        self._probe_is_due, self._prober, self.failed_probes = False, None, 0

    def _leave(self, partition: TopicIdPartition) -> None:
        if self._prober == partition:
            self._prober = None
