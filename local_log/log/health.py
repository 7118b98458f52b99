"""State of a log: usable, failed with its disk, or closed."""

import logging
from collections.abc import Callable
from typing import NoReturn

from local_log.errors import KafkaStorageError, LogClosed
from local_log.recovery.survey import OpenRequest
from runtime.disk_errors import is_of_exhaustion
from runtime.incidents import Incident

log = logging.getLogger(__name__)


class LogHealth:
    """Health of one log.

    Attributes:
        failure: Error of its disk; None while it works.
        is_closed: The log is closed.
    """

    __slots__ = ("_failed", "_name", "_path", "failure", "is_closed")

    def __init__(self, request: OpenRequest, failed: Callable[[OSError], None]) -> None:
        self._name, self._path = request.topic_partition, request.directory
        self._failed = failed
        self.failure: OSError | None = None
        self.is_closed = False

    def fail(self, error: OSError) -> NoReturn:
        """Take the log offline: the content of its disk is unknown until a restart recovers it.

        If the process lacks descriptors or memory, only this call fails; the caller has left files
        and state unchanged. May be called on a pool thread. A closed log cannot fail: its files are
        gone with its partition.

        Raises:
            LogClosed: The log was closed.
            KafkaStorageError: Otherwise.
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
        """Raise that the log is offline.

        Raises:
            KafkaStorageError: Always.
        """
        raise KafkaStorageError(f"{self._path} is offline: {self.failure}") from self.failure

    def gone(self) -> LogClosed:
        """Make the error of a closed log."""
        return LogClosed(f"{self._name} is gone")

    def set_offline(self, error: OSError) -> None:
        """Go offline because a disk access of another partition in the same directory failed."""
        self.failure = self.failure or error

    def close(self) -> None:
        """Mark the log closed: later errors are not failures of the disk."""
        self.is_closed = True
