"""Questions that wait until the segments of their partition are known.

They are called when the manager says so, however long that takes and however many they are: none of
them looks again by itself. Belongs to the owner's thread.
"""

from rlm.read.line import Line, Waiter
from runtime.scheduler import Scheduler

Key = tuple[bytes, int]
"""Topic id and partition."""


class Readiness:
    """A line for each partition that somebody waits for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lines: dict[Key, Line] = {}

    def wait(self, partition: Key, waiter: Waiter) -> None:
        """Have `waiter` called when the partition may be readable."""
        line = self._lines.get(partition)
        if line is None:
            line = self._lines[partition] = Line(self._scheduler)
        line.join(waiter)

    def leave(self, partition: Key, waiter: Waiter) -> None:
        """Wait no longer; fine for one that does not."""
        line = self._lines.get(partition)
        if line is not None:
            line.leave(waiter)
            if not line:
                del self._lines[partition]

    def may_be_readable(self, partition: Key) -> None:
        """Its segments became known, or it became known which of them count."""
        line = self._lines.get(partition)
        if line is not None:
            line.call()
            if not line and self._lines.get(partition) is line:
                del self._lines[partition]
