"""Notes of this incarnation about the flushed end of the metadata log.

A note follows each fsync, so that no later start takes flushed bytes for a torn tail. It is a line
without a wait for its own fsync (`fsync_lines`). The whole file is written after a roll, after many
lines, and when this node leads another epoch than that in the file. A note precedes each cut of the
log, because the old one would claim too much.

The next start must know if a batch was written as leader or fetched: a fetched batch has the
flushed end of the leader's disk. So the note has the last epoch that was led here. It drops that
epoch at a start, at a truncation, and when a snapshot replaces the log. After each of these,
fetched batches of the same epoch can arrive.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from local_log.log.partition_log import PartitionLog
from metadata_topic.quorum.log.flushed_end_file import NO_EPOCH, FlushedEnd, FlushedEndFile
from metadata_topic.raft.messages import SnapshotId
from runtime.executors import make_mutex


class FlushedEndNote:
    """Note of one log; on pool threads, also on several at once, except for `led`.

    Methods that write raise OSError if the disk failed.
    """

    def __init__(self, file: FlushedEndFile, log: PartitionLog) -> None:
        """Read the file; nothing is written yet.

        Args:
            file: In the log's directory.
            log: The metadata log in the same directory.
        """
        self._file, self._log = file, log
        self._mutex = make_mutex()
        self._noted = file.read() or FlushedEnd(0)
        self._noted_segment = self._newest_segment
        self._led_epoch = NO_EPOCH
        self._lines = self._durable_lines = 0

    @property
    def _newest_segment(self) -> int:
        return self._log.segments.active.base_offset

    def led(self, epoch: int) -> None:
        """Note that this node, leading `epoch`, appends a batch of its own."""
        self._led_epoch = epoch

    # -- after an fsync -------------------------------------------------------------------------

    def note_flush(self) -> None:
        """Note the flushed end after a flush; the note itself may become durable later."""
        if (
            not self._file.takes_lines
            or self._newest_segment != self._noted_segment
            or NO_EPOCH != self._led_epoch != self._noted.led_epoch
        ):
            self.write()
        else:
            self._add_line()

    def _add_line(self) -> None:
        with self._mutex:
            end = self._log.recovery_point
            if end > self._noted.offset:
                self._file.add_line(end)
                self._noted = replace(self._noted, offset=end)
                self._lines += 1

    @property
    def has_unsynced_lines(self) -> bool:
        """True if a power cut may lose lines."""
        return self._durable_lines < self._lines

    def fsync_lines(self) -> None:
        """Make the lines durable; on a pool thread, apart from other work."""
        with self._mutex:
            lines = self._lines  # a line added from here on may not be included
        self._file.fsync_lines()
        with self._mutex:
            self._durable_lines = max(self._durable_lines, lines)

    def write(self) -> None:
        """Note the flushed end; durable when it returns."""
        with self._mutex:
            segment = self._newest_segment
            end = max(self._log.recovery_point, self._noted.offset)
            self._replace(FlushedEnd(end, led_epoch=self._led_epoch))
            self._noted_segment = segment

    def _replace(self, note: FlushedEnd) -> None:
        """Replace the file, unless its content is equal and durable."""
        if note != self._noted or self.has_unsynced_lines or not self._file.takes_lines:
            self._file.write(note)
            self._noted = note
            self._durable_lines = self._lines

    # -- before a cut ---------------------------------------------------------------------------

    @contextmanager
    def cutting(self, offset: int) -> Iterator[None]:
        """Note a lower flushed end, durably; then let the log be truncated to `offset`."""
        with self._mutex:
            self._led_epoch = NO_EPOCH
            self._replace(FlushedEnd(min(self._noted.offset, offset)))
            yield

    def intend_restart(self, snapshot_id: SnapshotId) -> None:
        """Note that a snapshot, which may not exist yet, replaces the log."""
        with self._mutex:
            self._replace(FlushedEnd(self._noted.offset, snapshot_id))

    @contextmanager
    def restarting(self, snapshot_id: SnapshotId) -> Iterator[None]:
        """Note the intent, let the log restart at the snapshot's end, and note that it did."""
        self.intend_restart(snapshot_id)
        with self._mutex:
            self._led_epoch = NO_EPOCH
            yield
            self._replace(FlushedEnd(snapshot_id.end_offset))
            self._noted_segment = self._newest_segment

    def release(self) -> None:
        """Drop the reference to the open file."""
        self._file.release()
