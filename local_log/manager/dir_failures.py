"""Failure of a log directory: it goes offline with all its logs."""

import logging
from collections.abc import Callable
from functools import partial

from local_log.manager.hosted_logs import HostedLogs
from local_log.manager.log_dir import LogDir
from runtime.disk_errors import is_of_exhaustion
from runtime.executors import Pool
from runtime.incidents import Incident

log = logging.getLogger(__name__)


class DirFailures:
    """Takes directories offline; from any thread.

    Args:
        to_loop: Schedules a function on the loop.
        pool: For writes to disks.

    Attributes:
        on_offline: Called on the loop with a directory that failed.
    """

    def __init__(
        self, hosted: HostedLogs, to_loop: Callable[[Callable[[], None]], object], pool: Pool
    ) -> None:
        self._hosted, self._to_loop, self._pool = hosted, to_loop, pool
        self.on_offline: Callable[[LogDir], None] = lambda _dir: None

    def blame(self, directory: LogDir, error: OSError) -> None:
        """Take a directory offline, unless the process only lacks descriptors or memory."""
        if not is_of_exhaustion(log, f"log directory {directory.path}", error):
            self.take_offline(directory, error)

    def take_offline(self, directory: LogDir, error: OSError) -> None:
        """Take a directory offline, for any error."""
        if not directory.fail(error):
            return
        log.error(Incident.DIRECTORY_OFFLINE.line(path=directory.path, error=error))
        self._to_loop(partial(self._spread, directory, error))
        self._pool.submit(directory.forget_running_incarnation)  # no caller waits for it

    def _spread(self, directory: LogDir, error: OSError) -> None:
        for log in self._hosted.logs_in(directory).values():
            log.set_offline(error)
        self.on_offline(directory)
