"""Producer snapshots of a log with very many producers are written on a pool thread.

A roll of the log keeps the state as it is at that moment, and the flush that follows writes it. A
kill before that leaves no file: the next start begins with an older snapshot and reads the batches
after it, as for a snapshot that is damaged.
"""

import logging
from collections import deque
from collections.abc import Mapping

from local_log.producers.snapshots import ProducerSnapshots
from local_log.producers.state import ProducerState, entries_of
from runtime.executors import make_mutex

log = logging.getLogger(__name__)

PRODUCERS_AT_ONCE_MAX = 200
"""So many are written by the roll itself."""


class LateSnapshots:
    """What is still to be written for one log."""

    __slots__ = ("_due", "_is_closed", "_mutex", "_snapshots")

    def __init__(self, snapshots: ProducerSnapshots) -> None:
        self._snapshots = snapshots
        self._due: deque[tuple[int, Mapping[int, ProducerState]]] = deque()
        self._mutex = make_mutex()
        self._is_closed = False

    def __len__(self) -> int:
        """How many are not written yet."""
        return len(self._due)

    def add(self, offset: int, producers: Mapping[int, ProducerState]) -> None:
        """Keep a state that will not change any more."""
        if self._is_closed:
            return
        self._snapshots.expect(offset)
        self._due.append((offset, producers))

    def write(self) -> None:
        """Write what is due; on any thread.

        The log can do without them: what cannot be written is left out.
        """
        while self._due:
            with self._mutex:
                if not self._due:
                    break
                offset, producers = self._due[0]
                try:
                    self._snapshots.write_file(offset, entries_of(producers))
                except OSError as error:
                    path = self._snapshots.path(offset)
                    log.warning("no producer snapshot: path=%s error=%s", path, error)
                self._due.popleft()

    def close(self) -> None:
        """Write nothing more: the directory may have another name, and its name another log."""
        with self._mutex:
            self._is_closed = True
            self._due.clear()

    def forget_above(self, end_offset: int) -> None:
        """The log was cut: what was known at a later offset is not true any more."""
        with self._mutex:
            self._due = deque(each for each in self._due if each[0] <= end_offset)
