"""How far one log is durable, and the flush that moves this on.

A flush may run on a pool thread, several at a time, beside the loop that appends, rolls and
truncates.
"""

from errno import ENOMEM
from functools import partial

from local_log.log.ends import LogEnds
from local_log.log.epoch_file import EpochFile
from local_log.log.place import LogPlace
from local_log.log.segments import LogSegments
from local_log.segment.segment import LogSegment
from runtime.disk_errors import half_done
from runtime.executors import make_mutex


class LogFlushing:
    """See the module.

    Attributes:
        recovery_point: everything below (exclusive) survives a power cut.
        unflushed_since_ms: when the first append after the last flush came; None: there was none.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_ends",
        "_epoch_file",
        "_is_asked",
        "_marks",
        "_segments",
        "_truncations",
        "recovery_point",
        "unflushed_since_ms",
    )

    def __init__(
        self,
        recovery_point: int,
        place: LogPlace,
        *,
        ends: LogEnds,
        segments: LogSegments,
        epoch_file: EpochFile,
    ) -> None:
        self.recovery_point = recovery_point
        self.unflushed_since_ms: int | None = None
        self._directory, self._disk = place.directory, place.disk
        self._ends, self._segments, self._epoch_file = ends, segments, epoch_file
        self._is_asked = False
        # Counted, under `_marks`, before a truncation changes anything: a flush that has run beside
        # it does not know what it has flushed.
        self._truncations = 0
        self._marks = make_mutex()

    def appended(self, now_ms: int) -> None:
        """The first append since all was flushed."""
        self.unflushed_since_ms = now_ms

    def is_due(self, now_ms: int, flush_ms: int) -> bool:
        """Whether `flush_ms` have passed since the first unflushed append.

        Said once: while that flush waits for its thread or its disk, no other is wanted.
        """
        since = self.unflushed_since_ms
        if since is None or self._is_asked or now_ms - since < flush_ms:
            return False
        self._is_asked = True
        return True

    def lower(self, end: int) -> None:
        """Before a truncation: nothing above `end` (exclusive) is durable."""
        with self._marks:
            self._truncations += 1
            self.recovery_point = min(self.recovery_point, end)

    def flush(self, up_to: int | None) -> None:
        """Fsync everything below `up_to` (default: the log end) and move the recovery point there.

        Raises:
            LogClosed, KafkaStorageError: as `LogSegments.on_a_copy`.
        """
        try:
            self._flush(up_to)
        finally:
            self._is_asked = False
        if self.recovery_point >= self._ends.log_end_offset:
            self.unflushed_since_ms = None

    def _flush(self, up_to: int | None) -> None:
        while True:
            truncations = self._truncations
            # Before the segments are looked at: what is appended meanwhile may lie in a new one.
            end = self._ends.log_end_offset
            target = end if up_to is None else min(up_to, end)
            self._segments.on_a_copy(partial(self._fsync, target=target))
            with self._marks:
                if truncations == self._truncations:
                    self.recovery_point = max(self.recovery_point, target)
                    break

    def _fsync(self, segments: list[LogSegment], target: int) -> None:
        """Fsync what is not known to be safe below `target` (exclusive)."""
        start, version = self.recovery_point, self._epoch_file.version
        names_are_new = False
        if target > start:
            for index, segment in enumerate(segments):
                is_last = index + 1 == len(segments)
                if segment.base_offset < target and (
                    is_last or segments[index + 1].base_offset > start
                ):
                    try:
                        segment.fsync()
                    except OSError as error:
                        if error.errno == ENOMEM:  # what was written may be lost
                            raise half_done(error, "fsync") from error
                        raise
                    names_are_new |= segment.base_offset >= start
        if version != self._epoch_file.durable_version:
            self._epoch_file.fsync()
            names_are_new = True
        if names_are_new:
            self._disk.fsync_path(self._directory)
        self._epoch_file.fsynced(version)
