"""The log `__cluster_metadata-0`: a partition log of metadata and control batches.

It has no retention of its own: only records that a snapshot has may be deleted. A segment is
flushed before the next one begins, and the file `tidemark-flushed-end` has the flushed end after
each flush (`flushed_end_note`). The end of the log is checked before it is opened, see `verdict`.

A leader appends batches of its own (`append`), a follower the leader's bytes unchanged
(`append_fetched`).
"""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from kafka_protocol.files.meta_properties import PARTITION_METADATA, dump_partition_metadata
from kafka_protocol.records.batch import iter_batches, read_header
from kafka_protocol.records.control import ControlEntry, control_batch
from kafka_protocol.types import CLUSTER_METADATA_TOPIC, TopicPartition
from local_log.errors import UnexpectedAppendOffset, WouldWait
from local_log.log import retention
from local_log.log.partition_log import PartitionLog
from local_log.log.results import LogHooks, LogRead
from local_log.log.truncation import truncate_fully_and_start_at, truncate_to
from local_log.recovery.survey import OpenRequest
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.errors import OtherLogError
from metadata_topic.quorum.log.batches import note_flushed_end
from metadata_topic.quorum.log.fetched import BATCHES_MAX
from metadata_topic.quorum.log.flushed_end_file import FlushedEndFile
from metadata_topic.quorum.log.flushed_end_note import FlushedEndNote
from metadata_topic.quorum.log.gate import LogGate
from metadata_topic.raft.messages import SnapshotId
from runtime.clock import Clock
from runtime.disk import Buffer, Disk

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
METADATA_PARTITION: Final = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
_LARGE: Final = 2
"""Factor of `segment_bytes`: upper bound of a segment, see `must_flush`."""


class MetadataLog:
    """Appends and reads batches; the Raft core decides leadership and commits.

    Attributes:
        gate: All uses of the log outside of the loop go through it.
        on_offline: Called once, on any thread, when a write or read finds that the disk failed.
        note: Durable note of the flushed end.
    """

    def __init__(
        self, log: PartitionLog, config: MetadataLogConfig, clock: Clock, note: FlushedEndNote
    ) -> None:
        self.gate = LogGate()
        self.on_offline: Callable[[OSError], object] = lambda _error: None
        self._log = log
        self._config = config
        self._clock = clock
        self._segment_since_ms = clock.wall_ms()  # begun, or found, by this node
        self.note = note

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        config: MetadataLogConfig,
        disk: Disk,
        clock: Clock,
        recovery_point: int,
        log_start: int | None = None,
    ) -> "MetadataLog":
        """Open or create the log in `directory`, which must exist.

        Args:
            directory: Of the log.
            config: Of the log.
            disk: File access.
            clock: Gives segments their time.
            recovery_point: Everything below (exclusive end) was flushed before.
            log_start: At or above the first segment's first offset; None: that offset.

        Raises:
            OSError: The disk failed.
        """
        identity = directory / PARTITION_METADATA
        if not disk.exists(identity):
            disk.atomic_write(identity, dump_partition_metadata(METADATA_TOPIC_ID))
        made: MetadataLog | None = None

        def failed(error: OSError) -> None:
            if made is not None:
                made.on_offline(error)

        request = OpenRequest(
            METADATA_PARTITION,
            directory,
            config.log_config(),
            clock.wall_ms(),
            recovery_point=recovery_point,
            log_start=log_start,
        )
        log = PartitionLog.open(
            request, topic_id=METADATA_TOPIC_ID, disk=disk, hooks=LogHooks(failed=failed)
        )
        made = cls(log, config, clock, FlushedEndNote(FlushedEndFile(directory, disk), log))
        return made

    @property
    def start_offset(self) -> int:
        """First offset in the log."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """First offset not written yet (exclusive end)."""
        return self._log.log_end_offset

    @property
    def flushed_end(self) -> int:
        """First offset not known to be flushed (exclusive end)."""
        return self._log.recovery_point

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._log.size_bytes

    @property
    def high_watermark(self) -> int:
        """First offset not known to be committed (exclusive end)."""
        return self._log.high_watermark

    @property
    def partition_log(self) -> PartitionLog:
        """The log below, for descriptions; only this class appends."""
        return self._log

    # -- appending ------------------------------------------------------------------------------

    def append(self, batches: Buffer, *, timestamp_ms: int) -> None:
        """Append whole batches that this node made as a leader, all of them into one segment.

        A segment is flushed before the next one begins, so that damage in a closed segment is never
        a torn tail. The append does not wait for that: a full segment grows until it is flushed,
        see `must_flush`.

        Raises:
            KafkaStorageError: The disk failed; a part may be written.
        """
        self._append(batches, timestamp_ms)
        self.note.led(read_header(batches).partition_leader_epoch)

    def append_fetched(self, batches: Buffer, *, timestamp_ms: int) -> None:
        """Append a leader's batches unchanged; they must be whole and without a hole.

        Raises:
            UnexpectedAppendOffset: They do not begin at the log's end, or have a hole; nothing was
                written.
            CorruptMessage: A batch is damaged; the batches before it are written.
            KafkaStorageError: The disk failed; a part may be written.
        """
        expected = self.end_offset
        for _, header in iter_batches(batches):
            if header.base_offset != expected:
                raise UnexpectedAppendOffset(first_offset=header.base_offset, log_end=expected)
            expected = header.next_offset
        self._append(batches, timestamp_ms)

    def _append(self, batches: Buffer, timestamp_ms: int) -> None:
        if self._is_segment_full(len(batches)) and self.flushed_end >= self.end_offset:
            self._log.roll(timestamp_ms)
            self._segment_since_ms = self._clock.wall_ms()
        self._log.append_batches(batches, now_ms=timestamp_ms)

    def _is_segment_full(self, more_bytes: int) -> bool:
        active = self._log.segments.active
        if active.size_bytes == 0:
            return False
        age_ms = self._clock.wall_ms() - self._segment_since_ms
        return (
            active.size_bytes + more_bytes > self._config.segment_bytes
            or age_ms > self._config.segment_ms
        )

    @property
    def wants_flush(self) -> bool:
        """True if the next segment needs a flush before it begins."""
        return self._is_segment_full(1) and self.flushed_end < self.end_offset

    def must_flush(self, more_bytes: int) -> bool:
        """True if the next append, of this many bytes, must wait for a flush in progress.

        Under constant appends the log is never flushed to its end, and no segment could begin. The
        bound on the segment's size stops the appends. The loop does not wait; the caller asks
        again.
        """
        size_bytes = self._log.segments.active.size_bytes + more_bytes
        return self.wants_flush and size_bytes > _LARGE * self._config.segment_bytes

    def append_controls(
        self, entries: Sequence[ControlEntry], *, epoch: int, timestamp_ms: int
    ) -> None:
        """Append one batch of control records."""
        batch = control_batch(
            entries,
            base_offset=self.end_offset,
            leader_epoch=epoch,
            timestamp_ms=timestamp_ms,
        )
        note_flushed_end(batch, self.flushed_end)
        self.append(batch, timestamp_ms=timestamp_ms)

    def is_untouched(self, end_offset: int) -> bool:
        """True if a failed append has left the log usable and ending at `end_offset`."""
        return not self._log.is_offline and self._log.log_end_offset == end_offset

    # -- reading --------------------------------------------------------------------------------

    def find(self, offset: int, max_bytes: int, end_offset: int, *, may_wait: bool) -> LogRead:
        """Find batches from `offset` on: at least one, up to `end_offset` (exclusive).

        Raises:
            WouldWait: Index or batches are not in memory; only without `may_wait`.
            OffsetOutOfRange: `offset` is outside of the log.
            KafkaStorageError: The disk failed.
        """
        found = self._log.read(
            offset, max_bytes, end_offset=end_offset, min_one_batch=True, may_wait=may_wait
        )
        if not may_wait:
            self._log.segments.check_resident(found)
        return found

    def bytes_of(self, found: LogRead) -> bytes:
        """Read the batches of a `find`; only whole ones, BATCHES_MAX at most. On any thread.

        Raises:
            KafkaStorageError: The disk failed.
        """
        read_at, regions = self._log.disk.read_at, found.regions
        try:
            data = b"".join(read_at(one.file, one.position, one.size_bytes) for one in regions)
        except OSError as error:
            self._log.health.fail(error)
        size = 0
        for position, header in islice(iter_batches(data), BATCHES_MAX):
            size = position + header.size_bytes
        return data if size == len(data) else data[:size]

    def read(self, offset: int, max_bytes: int, *, end_offset: int | None = None) -> bytes:
        """Read whole batches by `find` and `bytes_of`; may wait for the disk."""
        end = self.end_offset if end_offset is None else end_offset
        return self.bytes_of(self.find(offset, max_bytes, end, may_wait=True))

    def read_resident(self, offset: int, max_bytes: int, end_offset: int) -> bytes | None:
        """Read as `read` does; None if it would wait for the disk."""
        try:
            return self.bytes_of(self.find(offset, max_bytes, end_offset, may_wait=False))
        except WouldWait:
            return None

    # -- how far it is durable ------------------------------------------------------------------

    def flush(self) -> int:
        """Make everything appended durable, and note it; on pool threads, also on two at once.

        Returns:
            End (exclusive) of the log when the flush began; later appends are not included.

        Raises:
            OSError, KafkaStorageError: The disk failed.
        """
        if self.flushed_end < self.end_offset:
            self._log.flush()
        self.note.note_flush()
        return self.flushed_end

    def note_flushed(self) -> None:
        """Note the flushed end on disk; may run on a pool thread.

        Raises:
            OSError: The disk failed.
        """
        self.note.write()

    def set_high_watermark(self, offset: int) -> None:
        """Take the high watermark: everything below `offset` (exclusive) is committed."""
        self._log.update_high_watermark(offset)

    # -- the ends move --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drop everything at and after `offset`; the note of the flushed end is lowered first.

        May run on a pool thread during which no append or read at or above `offset` runs. Durable
        when it returns.

        Raises:
            OtherLogError: A batch here has records on both sides of `offset`; nothing was cut. Logs
                that agree up to there have a batch boundary there.
            OSError, KafkaStorageError: The disk failed.
        """
        is_within = self.start_offset < offset < self.end_offset
        held = read_header(self.read(offset, 1), 0) if is_within else None
        if held is not None and held.base_offset < offset:
            raise OtherLogError(
                f"{self._log.directory}: the leader's log of epoch {held.partition_leader_epoch} "
                f"ends, or continues differently, at offset {offset}, inside of the batch that "
                "this "
                f"node has at offsets {held.base_offset} to {held.last_offset}: it is another log. "
                "Nothing was cut. Put the controllers' newest metadata directory back; a broker "
                "that is to follow this log fetches it again if that directory is moved away"
            )
        with self.note.cutting(offset):
            truncate_to(self._log, offset)

    def restart_at(self, snapshot_id: SnapshotId) -> None:
        """Drop everything: a snapshot replaces this log, which restarts at the snapshot's end.

        The intent is on disk before the first file is deleted, and until the new log exists. May
        run on a pool thread during which no append or read runs.

        Raises:
            OSError, KafkaStorageError: The disk failed.
        """
        with self.note.restarting(snapshot_id):
            truncate_fully_and_start_at(self._log, snapshot_id.end_offset)
            self._log.disk.fsync_path(self._log.directory)
        self._segment_since_ms = self._clock.wall_ms()

    # Records that a snapshot has are deleted in four steps: visible changes on the loop, work that
    # waits for the disk on a pool thread. No cut of the log runs meanwhile, see `gate`.

    def raise_start(self, offset: int) -> None:
        """Raise the log start to `offset`, the end of a snapshot; in memory.

        Raises:
            OffsetOutOfRange: It is above the high watermark.
        """
        self._log.raise_log_start(offset)

    def forget_epochs_before(self, offset: int) -> None:
        """Write the epoch file for a log that begins at `offset`; on a pool thread.

        Raises:
            KafkaStorageError: The disk failed.
        """
        self._log.epoch_file.write_clipped_ahead(self._log.chain_start(offset))

    def take_out_old_segments(self) -> None:
        """Remove segments wholly below the log start from the list of segments; in memory."""
        expiry = retention.expire(self._log, self._clock.wall_ms())
        if expiry is not None:
            retention.take_out(self._log, expiry)

    def delete_old_segments(self) -> None:
        """Delete the files of segments that were removed from the list; on a pool thread.

        The names of the later segments are made durable first: after a power cut one of them
        exists.

        Raises:
            OSError, KafkaStorageError: The disk failed.
        """
        self._log.disk.fsync_path(self._log.directory)
        self._log.delete_later(retention.rename_leaving(self._log))

    def close(self) -> None:
        """Flush, note it, and release the files."""
        self.flush()
        self.note.write()
        self.note.release()
        self._log.close()
