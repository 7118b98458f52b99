"""Changes of one log by compaction: a new segment replaces some old ones.

A kill between any two of these steps leaves either the old segments or the new one:

1. The new files are beside the log as `.cleaned`, fsynced. A start removes them.
2. They are renamed to `.swap`, the log file first, durably. From now on a start completes the work.
3. In memory the new segment replaces the old ones.
4. The old files are renamed to `.deleted`, durably.
5. The new files get their names, the log file last, durably.

Steps 2, 4 and 5 run on a pool thread, 3 on the loop. A truncation in between undoes step 2, or
completes the work, before it changes a file.
"""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafka_protocol.errors import TidemarkError
from local_log.file_names import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TXN_INDEX,
    cleaned_path,
    path_of,
    swap_path,
)
from local_log.log.health import LogHealth
from local_log.log.producers import LogProducers
from local_log.log.segments import LogSegments
from local_log.producers.snapshots import ProducerSnapshots
from local_log.segment.segment import LogSegment
from runtime.disk import Disk
from runtime.executors import make_mutex

log = logging.getLogger(__name__)

_INDEXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)


class PassSpoiltError(TidemarkError):
    """The log was truncated, or a new file is missing: the result of the pass is invalid."""


class LogCleaning:
    """Compaction of one log.

    Attributes:
        is_running: A pass reads the segments; retention leaves them alone.
        is_spoilt: The log was truncated since the pass began.
        uncleanable: Why the log is not cleaned until the next start; "" if it is cleaned.
    """

    __slots__ = (
        "_base_offset",
        "_directory",
        "_disk",
        "_health",
        "_is_closed",
        "_is_ready",
        "_mutex",
        "_new",
        "_old",
        "_producers",
        "_renamed",
        "_segments",
        "is_running",
        "is_spoilt",
        "uncleanable",
    )

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        health: LogHealth,
        segments: LogSegments,
        producers: LogProducers,
    ) -> None:
        self._directory, self._disk = directory, disk
        self._health, self._segments, self._producers = health, segments, producers
        self._mutex = make_mutex()
        self._is_closed = self._is_ready = False
        self._base_offset = 0
        self._new: LogSegment | None = None
        self._old: deque[tuple[LogSegment, ProducerSnapshots | None]] = deque()
        self._renamed: list[Path] = []
        self.is_running = self.is_spoilt = False
        self.uncleanable = ""

    def begin(self) -> None:
        """Begin a pass; on the loop."""
        assert not self.is_running, "one pass at a time"
        self.is_running, self.is_spoilt = True, False

    def end(self) -> None:
        """End the pass; on the loop."""
        self.is_running = False

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._health.fail(error)

    def set_aside(self, reason: str) -> None:
        """Clean the log no more, for this reason; on the loop."""
        self.uncleanable = reason

    # -- the steps ------------------------------------------------------------------------------

    def make_ready(self, base_offset: int, token: str) -> None:
        """Do step 2; on a pool thread.

        Raises:
            PassSpoiltError: The new segment must not be used.
            LogClosed, KafkaStorageError: From `LogHealth.fail`.
        """
        with self._watched():
            with self._mutex:
                self._check()
                self._base_offset = base_offset
                for suffix in (LOG, *_INDEXES):
                    source = cleaned_path(self._directory, base_offset, suffix, token)
                    if self._disk.exists(source):
                        self._is_ready = True
                        target = swap_path(self._directory, base_offset, suffix)
                        self._disk.rename(source, target)
                    elif suffix == LOG:
                        raise PassSpoiltError(f"{source} is gone")
            self._disk.fsync_path(self._directory)

    def _check(self) -> None:
        if self._is_closed:
            raise self._health.gone()
        if self.is_spoilt:
            raise PassSpoiltError("the log was truncated")

    def take(self, bases: Sequence[int], size_bytes: int, new: LogSegment) -> None:
        """Do step 3; on the loop.

        Args:
            bases: Base offsets of the old segments.
            size_bytes: Their total size, as read.
            new: Replaces them.

        Raises:
            PassSpoiltError: The old segments are no longer in the log.
            LogClosed: The log was closed.
        """
        with self._mutex:
            self._check()
            old = self._segments.closed(bases)
            if old is None or not self._is_ready or bases[0] != self._base_offset:
                self._take_back()
                raise PassSpoiltError("its segments have left the log")
            if sum(segment.size_bytes for segment in old) != size_bytes:
                self._take_back()
                raise PassSpoiltError("its segments are not those that were read")
            new.is_moving = True
            self._segments.replace(old, new)
            self._producers.snapshots.forget(bases[1:])
            self._new, self._is_ready = new, False
            snapshots = self._producers.snapshots
            for segment in old:
                has_other_base = segment.base_offset != new.base_offset
                self._old.append((segment, snapshots if has_other_base else None))

    def put_in_place(self) -> None:
        """Do steps 4 and 5 of a taken segment; undo step 2 of another.

        On any thread. No effect if no step is unfinished.

        Raises:
            LogClosed, KafkaStorageError: From `LogHealth.fail`. The steps are still to be done.
        """
        with self._watched():
            if self._new is not None:
                while self._rename_one():
                    pass
                self._disk.fsync_path(self._directory)
                with self._mutex:
                    if self._is_closed:
                        raise self._health.gone()
                    for suffix in (*_INDEXES, LOG):
                        source = swap_path(self._directory, self._base_offset, suffix)
                        if self._disk.exists(source):
                            target = path_of(self._directory, self._base_offset, suffix)
                            self._disk.rename(source, target)
                self._disk.fsync_path(self._directory)
            with self._mutex:
                self._take_back()

    def _rename_one(self) -> bool:
        with self._mutex:  # held for one segment: the loop may wait for it
            if self._is_closed:
                raise self._health.gone()
            if not self._old:
                return False
            segment, snapshots = self._old[0]
            self._renamed += segment.rename_deleted()
            if snapshots is not None:
                self._renamed += snapshots.rename_away(segment.base_offset)
            segment.release()
            self._old.popleft()
            return True

    def settle(self) -> list[Path]:
        """End the work after step 5.

        Returns:
            Files to be unlinked later.
        """
        with self._mutex:  # a truncation may do it on a pool thread
            if self._new is not None:
                self._new.is_moving = False
            self._new, renamed, self._renamed = None, self._renamed, []
        return renamed

    # -- interruptions -----------------------------------------------------------------------------

    def spoil(self) -> list[Path]:
        """Invalidate the pass before a truncation, and give every file its name.

        Returns:
            Files to be unlinked later.

        Raises:
            KafkaStorageError: The disk failed.
        """
        self.is_spoilt = True
        self.uncleanable = ""
        self.put_in_place()
        return self.settle()

    def _take_back(self) -> None:
        """Undo step 2, durably, the log file first: without it a start completes nothing."""
        if not self._is_ready or self._is_closed:
            return
        for suffix in (LOG, *_INDEXES):
            self._disk.unlink(swap_path(self._directory, self._base_offset, suffix))
        self._disk.fsync_path(self._directory)
        self._is_ready = False

    def remove_leftovers(self, token: str) -> None:
        """Unlink the files of a pass that ended early; on a pool thread.

        Files that are ready but not taken are unlinked as well, in the order of their making. If
        they stayed, the next start would replace newer records by them.

        Raises:
            LogClosed, KafkaStorageError: From `LogHealth.fail`.
        """
        with self._watched():
            with self._mutex:
                self._take_back()
            for name in self._disk.list_dir(self._directory):
                if name.endswith(f".{token}{CLEANED}"):
                    self._disk.unlink(self._directory / name)

    def close(self) -> None:
        """Rename nothing more: the directory may have a new name, and another log the old one."""
        with self._mutex:
            self._is_closed = True
            self._old.clear()
            self._new = None
