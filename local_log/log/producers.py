"""Producers of one log, in memory and in snapshot files.

A roll keeps a snapshot of the producers. With very many of them it freezes their state in memory,
and the flush that follows writes it on a pool thread. A kill before that leaves no file. The next
start then uses an older snapshot and the batches after it, as if the snapshot were damaged.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from local_log.producers.snapshots import ProducerSnapshots
from local_log.producers.state import ProducerState, ProducerStates, entries_of
from local_log.segment.recovery import build_producers
from local_log.segment.segment import LogSegment
from runtime.disk import Disk
from runtime.executors import make_mutex

log = logging.getLogger(__name__)

PRODUCERS_AT_ONCE_MAX: Final = 40
"""Limit up to which the roll itself writes the snapshot."""


class LogProducers:
    """Producers of one log.

    Attributes:
        states: Up to the log end; replaced by a truncation.
        snapshots: The files.
    """

    __slots__ = ("_disk", "_due", "_is_closed", "_mutex", "snapshots", "states")

    def __init__(self, states: ProducerStates, snapshots: ProducerSnapshots, disk: Disk) -> None:
        self.states, self.snapshots, self._disk = states, snapshots, disk
        # Snapshots to write: offset, and a frozen state.
        self._due: deque[tuple[int, Mapping[int, ProducerState]]] = deque()
        self._mutex = make_mutex()
        self._is_closed = False

    def begin_segment(self, base_offset: int) -> None:
        """Keep the state at the start of a new segment.

        A snapshot of very many is written later.

        Raises:
            OSError: The disk failed.
        """
        self.states.end_offset = base_offset
        if len(self.states.producers) <= PRODUCERS_AT_ONCE_MAX:
            self.snapshots.write(base_offset, self.states.dump())
        elif not self._is_closed:
            self.snapshots.expect(base_offset)
            self._due.append((base_offset, self.states.freeze()))

    def write_due(self) -> None:
        """Write the waiting snapshots; on any thread.

        The log can do without them: one that cannot be written is dropped.
        """
        while self._due:
            with self._mutex:
                if not self._due:
                    break
                offset, producers = self._due[0]
                try:
                    self.snapshots.write_file(offset, entries_of(producers))
                except OSError as error:
                    path = self.snapshots.path(offset)
                    log.warning("no producer snapshot: path=%s error=%s", path, error)
                self._due.popleft()

    def cut(self, segments: Sequence[LogSegment], *, start: int, end: int) -> None:
        """Return to the state at `end`, the new log end.

        Args:
            segments: Of the log.
            start: The log start.
            end: Exclusive.

        Raises:
            OSError: The disk failed.
        """
        with self._mutex:
            self._due = deque(each for each in self._due if each[0] <= end)
        self.snapshots.remove([offset for offset in self.snapshots.offsets if offset > end])
        self.states = build_producers(segments, self.snapshots, start=start, end=end)

    def write_last(self, end: int) -> None:
        """Write a snapshot at the log end, which saves the next start a recovery."""
        self.write_due()
        is_expected = end in self.snapshots.offsets  # an earlier write of it may have failed
        if not is_expected or not self._disk.exists(self.snapshots.path(end)):
            self.snapshots.write(end, self.states.dump())

    def fsync_last(self) -> None:
        """Make the newest snapshot durable."""
        for offset in self.snapshots.offsets[-1:]:
            self._disk.fsync_path(self.snapshots.path(offset))

    def close(self) -> None:
        """Write nothing more: the directory may have a new name, and another log the old one."""
        with self._mutex:
            self._is_closed = True
            self._due.clear()
