"""One partition's log on one disk: the face of this package.

A log is made of parts. Each has its state to itself: the others look at it, and change it by its
methods alone.

| part | file | its state |
|---|---|---|
| `LogHealth` | `log_health.py` | disk failed, log closed |
| `LogEnds` | `log_ends.py` | log start, log end, high watermark, end of the copy |
| `LogSegments` | `log_segments.py` | the segments, and those on their way out |
| `EpochFile` | `epoch_file.py` | the epoch chain and its file |
| `LogProducers` | `log_producers.py` | producers and their snapshots |
| `LogFlushing` | `log_flushing.py` | how far all is durable |
| `LogReader` | `log_reading.py` | whether damage was met; reads on the loop |
| `LogLookups` | `log_lookups.py` | none; reads on pool threads |
| `LogWriter` | `log_writing.py` | none; the order of an append |
| `LogRetention` | `log_retention.py` | none; the old end |
| `LogTruncation` | `log_truncation.py` | none; the order of a truncation |
| `LogCleaning` | `log_cleaning.py` | a pass of the cleaner, and a segment that takes its place |

Here stands what concerns several of them; the rest is asked of the part. All state is owned by one
thread, the event loop's; what may run on a pool thread says so. Offsets: `end` exclusive, `last`
inclusive. At all times log start <= local log start <= high watermark <= log end.
"""

from collections.abc import Sequence
from pathlib import Path

from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.config import LogConfig
from local_log.log import tier_segments
from local_log.log.lookups import LogLookups
from local_log.log.parts import parts_of
from local_log.log.reading import LogReader
from local_log.log.results import AppendInfo, Expiry, LogHooks, LogRead, RetentionResult
from local_log.log.retention import LogRetention
from local_log.log.tier_segments import ClosedSegment, ClosedTail, SegmentFiles
from local_log.log.truncation import LogTruncation
from local_log.log.writing import LogWriter
from local_log.producers.state import ProducerStates
from local_log.recovery.recovery import LogOpener, OpenedLog
from local_log.recovery.survey import OpenRequest
from local_log.segment.reading import CheckStop, go_on
from local_log.segment.segment import LogSegment
from local_log.segment.time_lookup import TimestampedOffset
from local_log.small_files import PlainFiles, SmallFiles
from runtime.disk import Buffer, Disk

__all__ = [
    "AppendInfo",
    "ClosedSegment",
    "Expiry",
    "LogHooks",
    "LogRead",
    "PartitionLog",
    "RetentionResult",
    "SegmentFiles",
    "TimestampedOffset",
]


class PartitionLog:
    """See the module.

    Attributes:
        health, ends, epoch_file, reader, writer, retention, cleaning: parts, see the module.
        epochs: the epoch chain; what changes it is kept in its file.
        append_as_leader: `LogWriter.append_as_leader`.
        read: `LogReader.read`.
        adopted_epoch: see `Accepted`.
        truncated_bytes: what left the log when it was opened.
        log_start_has_no_entry: the checkpoint is sound and never had an entry for this log; said by
            who has read it.
    """

    __slots__ = (
        "_flushing",
        "_parts",
        "_producers",
        "adopted_epoch",
        "append_as_leader",
        "cleaning",
        "config",
        "damages",
        "directory",
        "disk",
        "ends",
        "epoch_file",
        "epochs",
        "health",
        "log_start_has_no_entry",
        "partition",
        "read",
        "reader",
        "retention",
        "topic",
        "topic_id",
        "truncated_bytes",
        "writer",
    )

    def __init__(
        self,
        topic_id: bytes,
        request: OpenRequest,
        opened: OpenedLog,
        *,
        disk: Disk,
        files: SmallFiles,
        hooks: LogHooks,
    ) -> None:
        self.topic, self.partition = request.topic_partition
        self.topic_id, self.directory, self.disk = topic_id, request.directory, disk
        self.config = config = request.config
        self.adopted_epoch = opened.adopted_epoch
        self.truncated_bytes, self.damages = opened.truncated_bytes, opened.damages
        self.log_start_has_no_entry = False
        self._parts = parts = parts_of(opened, request, disk, files, hooks)
        self.health, self.ends = parts.health, parts.ends
        self.epoch_file, self.epochs = parts.epoch_file, parts.epoch_file.chain
        self._producers, self._flushing = parts.producers, parts.flushing
        self.cleaning = parts.cleaning
        self.reader = LogReader(parts)
        self.writer = LogWriter(parts, config)
        self.retention = LogRetention(parts, config, roll_at=self.writer.roll_at)
        self.append_as_leader = self.writer.append_as_leader
        self.read = self.reader.read

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        disk: Disk,
        now_ms: int,
        recovery_point: int | None = 0,
        log_start: int | None = None,
        high_watermark: int = 0,
        is_clean: bool = False,
        was_compacted: bool = False,
        hooks: LogHooks | None = None,
        files: SmallFiles | None = None,
        check_stop: CheckStop = go_on,
        salvages: bool = False,
    ) -> "PartitionLog":
        """Open (or begin) the log in `directory`, which exists, repairing what needs it.

        Args are those of `OpenRequest`, and:
            topic_id: 16 raw bytes.
            hooks: what the log asks of its manager.
            files: for the small files of the directory; None: read and written as they are.

        Raises:
            LogRefused: the log contradicts what is known of it; nothing on disk was changed.
            OSError: the disk failed.
        """
        hooks, files = hooks or LogHooks(), files or PlainFiles(disk, directory)
        request = OpenRequest(
            topic_partition,
            directory,
            config,
            recovery_point,
            log_start,
            high_watermark,
            is_clean,
            now_ms,
            was_compacted,
            check_stop,
            salvages,
        )
        opened = LogOpener(disk, request, files).open()
        return cls(topic_id, request, opened, disk=disk, files=files, hooks=hooks)

    # -- what it is and how far it reaches ------------------------------------------------------

    @property
    def topic_partition(self) -> TopicPartition:
        """Name and number."""
        return TopicPartition(self.topic, self.partition)

    @property
    def segments(self) -> Sequence[LogSegment]:
        """All segments, oldest first, the last one active."""
        return self._parts.segments.all

    @property
    def segment_count(self) -> int:
        """How many segments are local."""
        return len(self._parts.segments.all)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._parts.segments.size_bytes

    @property
    def closed_bytes(self) -> int:
        """Bytes of all segments but the active one."""
        return self.size_bytes - self._parts.segments.active.size_bytes

    @property
    def log_start_offset(self) -> int:
        """See `LogEnds`."""
        return self.ends.log_start_offset

    @property
    def log_start_known(self) -> bool:
        """See `LogEnds`."""
        return self.ends.log_start_known

    @property
    def local_log_start_offset(self) -> int:
        """First offset that is readable here: the first segment's, or the log start inside it."""
        return max(self.ends.log_start_offset, self._parts.segments.bases[0])

    @property
    def first_base_offset(self) -> int:
        """Where the first local segment begins, perhaps below the log start."""
        return self._parts.segments.bases[0]

    @property
    def log_end_offset(self) -> int:
        """First offset that is not written yet."""
        return self.ends.log_end_offset

    @property
    def high_watermark(self) -> int:
        """First offset that is not committed."""
        return self.ends.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self.ends.commit(offset)
        self._producers.states.raise_high_watermark(offset)

    @property
    def last_stable_offset(self) -> int:
        """First offset that a read_committed consumer may not see yet."""
        unstable = self._producers.states.first_unstable_offset()
        high_watermark = self.ends.high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    @property
    def recovery_point(self) -> int:
        """Everything below (exclusive) survives a power cut."""
        return self._flushing.recovery_point

    @property
    def copied_through(self) -> int:
        """See `LogEnds`."""
        return self.ends.copied_through

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch of the chain."""
        return self.epochs.latest_epoch

    @property
    def producers(self) -> ProducerStates:
        """What is known of producers up to the log end."""
        return self._producers.states

    @property
    def is_offline(self) -> bool:
        """Whether its disk failed."""
        return self.health.failure is not None

    def set_offline(self, error: OSError) -> None:
        """Go offline because another partition's disk access on the same directory failed."""
        self.health.set_offline(error)
        self.ends.changed()

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings; index sizes hold from the next segment on."""
        self.config = config
        for part in (self._parts.segments, self.epoch_file, self.writer, self.retention):
            part.set_config(config)

    # -- appending, flushing --------------------------------------------------------------------

    def append_batches(self, batches: Buffer, *, now_ms: int) -> AppendInfo:
        """See `LogWriter.append_batches`."""
        return self.writer.append_batches(batches, now_ms=now_ms)

    def roll(self, now_ms: int | None = None) -> None:
        """See `LogWriter.roll`."""
        self.writer.roll(now_ms)

    def roll_if_due(self, now_ms: int) -> bool:
        """See `LogWriter.roll_if_due`."""
        return self.writer.roll_if_due(now_ms)

    def flush(self, up_to: int | None = None) -> None:
        """Fsync everything below `up_to` (default: the log end) and move the recovery point there.

        May run on a pool thread, several at a time. When it returns, everything below `up_to` that
        is still in the log survives a power cut.

        Raises:
            LogClosed: the log was closed meanwhile.
            KafkaStorageError: the disk failed.
        """
        if self.health.failure is not None:
            self.health.refuse()
        self._producers.write_due()
        self._flushing.flush(up_to)

    @property
    def is_flush_due(self) -> bool:
        """Whether `flush.messages` records wait for fsync (the caller flushes)."""
        unflushed = self.ends.log_end_offset - self._flushing.recovery_point
        return unflushed >= self.config.flush_messages

    def flush_if_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` has passed since the first unflushed append (the caller flushes)."""
        return self._flushing.is_due(now_ms, self.config.flush_ms)

    # -- reading --------------------------------------------------------------------------------

    def read_bytes(self, offset: int, max_bytes: int, *, end_offset: int | None = None) -> bytes:
        """See `LogReader.read_bytes`."""
        return self.reader.read_bytes(offset, max_bytes, end_offset=end_offset)

    @property
    def lookups(self) -> LogLookups:
        """What is asked on pool threads."""
        return LogLookups(self._parts)

    # -- for the remote tier --------------------------------------------------------------------

    def closed_segments(self) -> list[ClosedSegment]:
        """Segments that will not change any more, ascending.

        Raises:
            KafkaStorageError: the disk failed: it may be asked for their ages.
        """
        try:
            return tier_segments.closed_segments(self.segments)
        except OSError as error:
            self.health.fail(error)

    def closed_tail(self, offset: int, count_max: int) -> ClosedTail:
        """Closed segments from the one that holds `offset` on, and what lies on both sides.

        Raises:
            KafkaStorageError: as `closed_segments`.
        """
        every, bases, size = self.segments, self._parts.segments.bases, self.size_bytes
        try:
            return tier_segments.closed_tail(
                every, bases, offset, size_bytes=size, count_max=count_max
            )
        except OSError as error:
            self.health.fail(error)

    def set_copied_through(self, last_offset: int, its_epoch: int) -> bool:
        """Take note of how far the remote tier durably holds this log.

        Args:
            last_offset: inclusive.
            its_epoch: leader epoch of that offset in the remote copy.

        Returns:
            False if this log's own chain has another epoch there: then it is about other data.
        """
        if last_offset >= self.log_end_offset or self.epochs.epoch_for(last_offset) != its_epoch:
            return False
        self.ends.copied(last_offset)
        return True

    # -- the epoch chain ------------------------------------------------------------------------

    def write_epoch(self, epoch: int) -> None:
        """Have `epoch` in the chain's file, at the log end, before the loop assigns it.

        Runs on a pool thread; nobody may append meanwhile.

        Raises:
            LogClosed, KafkaStorageError: as `LogHealth.fail`.
        """
        self.epoch_file.write_epoch_ahead(epoch, self.ends.log_end_offset)

    def restored_chain(self, chain: Sequence[EpochEntry]) -> list[EpochEntry]:
        """The chain, its epochs below the first segment taken from one that fits the batches."""
        return self.epoch_file.restored(
            chain, first=self.first_base_offset, end=self.ends.log_end_offset
        )

    def restore_chain(self, chain: Sequence[EpochEntry]) -> None:
        """Take the epochs below the first segment from `chain`, which fits the batches; durably.

        Who has had `restored_chain` written by `write_chain` before does not wait for the disk.

        Raises:
            KafkaStorageError: the disk failed.
        """
        self.epoch_file.restore(self.restored_chain(chain))

    # -- the start moves ------------------------------------------------------------------------

    def raise_log_start(self, offset: int) -> None:
        """Move the log start up in memory.

        The caller makes it durable (`flush` up to it, then the checkpoint) and calls `clip_chain`
        only after that. Where the start is unknown (its checkpoint was lost), this says what it is,
        also below the local start.

        Raises:
            OffsetOutOfRange: above the high watermark.
            KafkaStorageError: the disk failed: it could not be made durable.
        """
        if self.health.failure is not None:
            self.health.refuse()
        self.ends.raise_start(offset)

    def clip_chain(self, log_start: int) -> None:
        """See `EpochFile.clip`."""
        self.epoch_file.clip(log_start, local_start=self.first_base_offset)

    def retain(self, now_ms: int) -> RetentionResult:
        """See `LogRetention.retain`."""
        return self.retention.retain(now_ms)

    # -- the end moves --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """See `LogTruncation.to`."""
        LogTruncation(self._parts, self.retention).to(offset)

    def truncate_fully_and_start_at(self, offset: int, *, keep_log_start: bool = False) -> None:
        """See `LogTruncation.fully`."""
        LogTruncation(self._parts, self.retention).fully(offset, keep_log_start=keep_log_start)

    # -- the end --------------------------------------------------------------------------------

    def close(self, clean: bool = True) -> None:
        """Let go of all files; `clean` also writes what saves the next start its recovery.

        Raises:
            KafkaStorageError: the disk failed: the next start must recover.
        """
        parts = self._parts
        if clean and parts.health.failure is None:
            try:
                parts.producers.write_last(self.ends.log_end_offset)
                parts.segments.active.become_inactive()
                self.flush()
                parts.producers.fsync_last()
            except OSError as error:
                parts.health.fail(error)
        parts.health.close()
        # From here on another log may have this name: nothing may be done by it any more.
        parts.ends.close()
        parts.epoch_file.close()
        parts.producers.close()
        parts.cleaning.close()
        parts.segments.close()
