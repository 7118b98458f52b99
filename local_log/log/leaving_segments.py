"""Segments that have left a log and whose files must still change their names.

A log of thousands of segments lets them go in one step, in memory; their files are renamed away on
a pool thread. Until then a start finds them again and lets them go again: the log start is on the
disk before. Whoever needs one of their names first renames the rest itself.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from local_log.log.retention_policy import SegmentFacts
from local_log.producers.snapshots import ProducerSnapshots
from local_log.segment.segment import LogSegment
from runtime.executors import make_mutex


class LeavingSegments:
    """The segments of one log that are on their way out, oldest first."""

    __slots__ = ("_mutex", "_segments")

    def __init__(self) -> None:
        self._segments: deque[tuple[LogSegment, ProducerSnapshots]] = deque()
        self._mutex = make_mutex()

    def __len__(self) -> int:
        """How many still have their names."""
        return len(self._segments)

    def add(self, segments: Iterable[LogSegment], snapshots: ProducerSnapshots) -> None:
        """These have left the lists of the log, and their snapshots those of `snapshots`."""
        self._segments.extend((segment, snapshots) for segment in segments)

    def rename(self) -> list[Path]:
        """Rename the files of all of them away; on any thread.

        Returns:
            The new names of those that this call has renamed.

        Raises:
            OSError: the disk failed; the segment is not looked at again before a restart.
        """
        renamed: list[Path] = []
        while True:
            with self._mutex:  # held for one segment: the loop may wait for it
                if not self._segments:
                    return renamed
                segment, snapshots = self._segments.popleft()
                renamed += segment.rename_deleted()
                renamed += snapshots.rename_away(segment.base_offset)
                segment.release()

    def close(self) -> None:
        """Rename nothing more: the directory may have another name, and its name another log."""
        with self._mutex:
            for segment, _ in self._segments:
                segment.release()
            self._segments.clear()


class FactsOfSegments(Sequence[SegmentFacts]):
    """What retention must know of segments, found out for those that it asks for.

    Retention asks from the oldest on and stops at the first that stays: of a log of thousands of
    segments it looks at one.
    """

    def __init__(self, segments: Sequence[LogSegment], log_end: int) -> None:
        self._segments, self._log_end = segments, log_end

    def __len__(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # an int here
        """Facts of one segment."""
        if index < 0:
            index += len(self._segments)
        segment = self._segments[index]
        is_last = index + 1 == len(self._segments)
        is_empty = is_last and segment.size_bytes == 0  # its age is not asked for: no file either
        return SegmentFacts(
            segment.base_offset,
            self._log_end if is_last else self._segments[index + 1].base_offset,
            segment.size_bytes,
            -1 if is_empty else segment.retention_timestamp(),
        )
