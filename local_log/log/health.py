"""Whether a log can be used: its disk may have failed, or it may be closed."""

import logging
from collections.abc import Callable
from typing import NoReturn

from local_log.errors import KafkaStorageError, LogClosed
from local_log.recovery.survey import OpenRequest
from runtime.disk_errors import is_of_exhaustion
from runtime.incidents import Incident

log = logging.getLogger(__name__)


class LogHealth:
    """See the module.

    Attributes:
        failure: what its disk has failed with; None while it works.
        is_closed: nothing is done for this log any more.
    """

    __slots__ = ("_failed", "_name", "_path", "failure", "is_closed")

    def __init__(self, request: OpenRequest, failed: Callable[[OSError], None]) -> None:
        self._name, self._path = request.topic_partition, request.directory
        self._failed = failed
        self.failure: OSError | None = None
        self.is_closed = False

    def fail(self, error: OSError) -> NoReturn:
        """Take no more appends: what the disk holds is unknown until a restart has recovered it.

        Where the process has no descriptors or memory left, only this question fails: the
        caller has left files and facts as they were. May be called on a pool thread. A log that was
        closed has not failed: its files are gone because its partition is.

        Raises:
            LogClosed: the log was closed.
            KafkaStorageError: in every other case.
        """
        if self.is_closed:
            raise self.gone() from error
        if self.failure is None and is_of_exhaustion(log, f"log {self._path}", error):
            raise KafkaStorageError(f"{self._path} cannot be used now: {error}") from error
        if self.failure is None:
            self.failure = error
            log.error(Incident.DISK_FAILED.line(path=self._path, error=error))
            self._failed(error)
        self.refuse()

    def refuse(self) -> NoReturn:
        """Say that the log is offline.

        Raises:
            KafkaStorageError: always.
        """
        raise KafkaStorageError(f"{self._path} is offline: {self.failure}") from self.failure

    def gone(self) -> LogClosed:
        """The error that says that the log was closed."""
        return LogClosed(f"{self._name} is gone")

    def set_offline(self, error: OSError) -> None:
        """Go offline because another partition's disk access on the same directory failed."""
        self.failure = self.failure or error

    def close(self) -> None:
        """From here on whatever goes wrong is no failure of the disk."""
        self.is_closed = True
