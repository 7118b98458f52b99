"""What this incarnation notes of how far the metadata log is flushed, and when.

After each fsync, so that no later start takes what was flushed for a torn tail: by a line that
nobody waits for (`fsync_lines`); by the whole file after a roll, after many lines, and where
another epoch is led than it names. Before each cut of the log, because it would say too much after
it.

Which of a leader and a follower wrote a batch matters at the next start: what a fetched one says
about a flushed end is about the leader's disk. So the note names the epoch that was led here last,
and forgets it before fetched batches of the same epoch can come: at a start, at a truncation, and
when a snapshot replaces the log.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from local_log.log.partition_log import PartitionLog
from metadata_topic.quorum.log.flushed_end_file import NO_EPOCH, FlushedEnd, FlushedEndFile
from metadata_topic.raft.messages import SnapshotId
from runtime.executors import make_mutex


class FlushedEndNote:
    """See the module; but for `led` on pool threads, also on several at once.

    Methods that write raise OSError if the disk failed.
    """

    def __init__(self, file: FlushedEndFile, log: PartitionLog) -> None:
        """Read what the file says; nothing is written yet.

        Args:
            file: in the log's directory.
            log: what it says is about this log.
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
        """This node, leading `epoch`, appends a batch that it has made."""
        self._led_epoch = epoch

    # -- after an fsync -------------------------------------------------------------------------

    def note_flush(self) -> None:
        """Note what a flush of the log has made durable; the note itself may become so later."""
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
        """Whether there are lines that a power cut may take."""
        return self._durable_lines < self._lines

    def fsync_lines(self) -> None:
        """Make the lines durable; on a pool thread that nobody waits for."""
        with self._mutex:
            lines = self._lines  # one that is added from here on may not be in it
        self._file.fsync_lines()
        with self._mutex:
            self._durable_lines = max(self._durable_lines, lines)

    def write(self) -> None:
        """Note up to where the log is flushed; durable when it returns."""
        with self._mutex:
            segment = self._newest_segment
            end = max(self._log.recovery_point, self._noted.offset)
            self._replace(FlushedEnd(end, led_epoch=self._led_epoch))
            self._noted_segment = segment

    def _replace(self, note: FlushedEnd) -> None:
        """Replace the file, unless it says just that and all of it is durable."""
        if note != self._noted or self.has_unsynced_lines or not self._file.takes_lines:
            self._file.write(note)
            self._noted = note
            self._durable_lines = self._lines

    # -- before a cut ---------------------------------------------------------------------------

    @contextmanager
    def cutting(self, offset: int) -> Iterator[None]:
        """Note that less is flushed, durably; then let the log be truncated to `offset`."""
        with self._mutex:
            self._led_epoch = NO_EPOCH
            self._replace(FlushedEnd(min(self._noted.offset, offset)))
            yield

    def intend_restart(self, snapshot_id: SnapshotId) -> None:
        """Note that a snapshot, which need not be there yet, replaces the log."""
        with self._mutex:
            self._replace(FlushedEnd(self._noted.offset, snapshot_id))

    @contextmanager
    def restarting(self, snapshot_id: SnapshotId) -> Iterator[None]:
        """Note the intent, let the log begin again at the snapshot's end, and note that it did."""
        self.intend_restart(snapshot_id)
        with self._mutex:
            self._led_epoch = NO_EPOCH
            yield
            self._replace(FlushedEnd(snapshot_id.end_offset))
            self._noted_segment = self._newest_segment

    def release(self) -> None:
        """Let go of the open file."""
        self._file.release()
