"""A look at all compacted logs: which are due, the dirtiest first. It serves many passes."""

from collections.abc import Sequence

from local_log.cleaner.log_facts import NotedLog
from local_log.log.partition_log import PartitionLog


class Look:
    """Filled some logs at a time, on a pool: each costs the files of its segments.

    Attributes:
        dirty_ratio: of the dirtiest log.
        failed: logs that could not be read, and why; their files may have gone meanwhile.
        delay_ms: longest time by which a record waits too long.
    """

    def __init__(self, now_ms: int) -> None:
        """See nothing yet; `now_ms` is the wall clock."""
        self._now_ms = now_ms
        self._due: list[tuple[float, PartitionLog]] = []
        self.dirty_ratio = 0.0
        self.delay_ms = 0
        self.failed: list[tuple[NotedLog, OSError]] = []

    def add(self, some: Sequence[NotedLog]) -> None:
        """Look at these; logs that cannot be read are left out."""
        for noted in some:
            try:
                found = noted.range(self._now_ms)
            except OSError as error:
                self.failed.append((noted, error))
                continue
            self.dirty_ratio = max(self.dirty_ratio, found.dirty_ratio)
            self.delay_ms = max(self.delay_ms, found.delay_ms)
            if found.is_due(noted.config):
                self._due.append((found.dirty_ratio, noted.log))

    def ranked(self) -> list[PartitionLog]:
        """Those that are due, the dirtiest first."""
        self._due.sort(key=lambda entry: entry[0], reverse=True)
        return [each for _, each in self._due]
