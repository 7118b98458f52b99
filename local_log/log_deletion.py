"""Files that were renamed away are unlinked later, so that who still reads them can finish."""

import logging
from collections.abc import Iterable
from pathlib import Path

from runtime.clock import Clock
from runtime.disk import Disk
from runtime.executors import Pool
from runtime.scheduler import Scheduler

_log = logging.getLogger(__name__)


class DelayedDeletion:
    """Unlinks on the pool what has waited long enough."""

    def __init__(self, disk: Disk, clock: Clock, scheduler: Scheduler | None, pool: Pool) -> None:
        self._disk, self._clock, self._scheduler, self._pool = disk, clock, scheduler, pool
        self._waiting: list[tuple[int, list[Path]]] = []

    def later(self, paths: list[Path], delay_ms: int) -> None:
        """Unlink files or trees after `delay_ms`."""
        if not paths:
            return
        self._waiting.append((self._clock.monotonic_ms() + delay_ms, paths))
        if self._scheduler is not None:
            self._scheduler.call_later(delay_ms + 1, self.run)

    def run(self) -> None:
        """Hand what is due to the pool."""
        now_ms = self._clock.monotonic_ms()
        due = [paths for due_ms, paths in self._waiting if due_ms <= now_ms]
        self._waiting = [entry for entry in self._waiting if entry[0] > now_ms]
        for paths in due:
            self._pool.submit(self._unlink, paths)

    def _unlink(self, paths: Iterable[Path]) -> None:
        for path in paths:
            try:
                if self._disk.is_dir(path):
                    self._disk.remove_tree(path)
                else:
                    self._disk.unlink(path)
            except OSError as error:
                _log.warning("could not remove a deleted file: path=%s error=%s", path, error)
