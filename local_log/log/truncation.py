"""The new end of a log moves back: its newest records are dropped.

First it is said, in memory and on disk, that the log reaches no further; then files change; then
what was known of the dropped records is forgotten. A start in the middle of this must not take it
for a loss.
"""

from pathlib import Path

from local_log.log.parts import LogParts
from local_log.log.retention import LogRetention
from runtime.disk_errors import half_done


class LogTruncation:
    """Truncates one log; made when it is needed."""

    __slots__ = ("_parts", "_retention")

    def __init__(self, parts: LogParts, retention: LogRetention) -> None:
        self._parts, self._retention = parts, retention

    def to(self, offset: int) -> None:
        """Drop everything at and after `offset`; a batch that holds it goes as a whole.

        Raises:
            KafkaStorageError: the disk failed.
        """
        ends, segments = self._parts.ends, self._parts.segments
        if offset >= ends.log_end_offset:
            return
        self._delete(self._parts.cleaning.spoil())
        if offset <= segments.bases[0]:
            self.fully(max(offset, ends.log_start_offset), keep_log_start=True)
            return
        try:
            end = segments.end_if_cut(offset)
            if end >= ends.log_start_offset:
                self._lower_marks(end)
                segments.cut(end, self._delete)
                self._forget_above(end)
                return
        except OSError as error:
            self._parts.health.fail(half_done(error, "a truncation ended before its end"))

        # The batch with the log start in it went: what was before the start must not come back.
        self.fully(ends.log_start_offset, keep_log_start=True)

    def fully(self, offset: int, *, keep_log_start: bool) -> None:
        """Drop everything and begin again, empty, at `offset`.

        Args:
            offset: the new local start and log end.
            keep_log_start: the range from the log start on is still there, but remote.

        Raises:
            KafkaStorageError: the disk failed.
        """
        ends = self._parts.ends
        self._delete(self._parts.cleaning.spoil())
        try:
            self._retention.free_names()
            self._lower_marks(0)  # until the new segment is there, a start finds nothing at all
            moves_start = not (keep_log_start and ends.log_start_offset <= offset)
            if moves_start and offset > ends.log_start_offset:
                ends.begin_at(offset)
                self._parts.hooks.log_start_moved()  # or the old first segment would count as lost
            self._parts.segments.begin_anew(offset, self._delete)
            if moves_start:
                is_lower = offset < ends.log_start_offset
                ends.begin_at(offset)
                self._parts.epoch_file.chain.clear()
                if is_lower:
                    self._parts.hooks.log_start_moved()
            self._forget_above(offset)
        except OSError as error:
            self._parts.health.fail(half_done(error, "a truncation ended before its end"))

    def _lower_marks(self, end: int) -> None:
        self._parts.flushing.lower(end)
        self._parts.ends.lower(end)
        self._parts.hooks.before_truncation(end)

    def _delete(self, paths: list[Path]) -> None:
        self._parts.delete_later(paths, 0)

    def _forget_above(self, end: int) -> None:
        ends, segments = self._parts.ends, self._parts.segments
        ends.cut(end)
        segments.truncated()
        self._parts.epoch_file.chain.truncate_from_end(end)
        self._parts.producers.cut(segments.all, start=ends.log_start_offset, end=end)
        ends.commit_below(max(ends.log_start_offset, segments.bases[0]))
        self._parts.producers.states.raise_high_watermark(ends.high_watermark)
        ends.changed()
