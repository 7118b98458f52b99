"""One partition's log on one disk: the face of this package.

All state is owned by one thread, the event loop's; `flush`, `open_segment` and the look-ups by time
run on pool threads, on a copy of the segments (see `log_reading`). Offsets: `end` exclusive, `last`
inclusive. At all times log start <= local log start <= high watermark <= log end.

Its layers: `log_state` (facts), `log_reading`, `log_writing`, and here opening, moving the start,
moving the end, and closing.
"""

import logging
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from kafka_protocol.types import EpochEntry, TopicPartition
from local_log import tier_segments
from local_log.config import LogConfig
from local_log.errors import OffsetOutOfRange
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.log_results import AppendInfo, Expiry, LogHooks, LogRead, RetentionResult
from local_log.log_writing import LogWriter
from local_log.recovery import LogOpener
from local_log.retention import LogFacts, SegmentFacts, decide
from local_log.segment import LogSegment
from local_log.segment_recovery import build_producers, last_batch
from local_log.small_files import PlainFiles, SmallFiles
from local_log.survey import OpenRequest
from local_log.tier_segments import ClosedSegment, SegmentFiles
from local_log.time_lookup import TimestampedOffset
from runtime.disk import Disk
from runtime.disk_errors import half_done

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

_log = logging.getLogger(__name__)


class PartitionLog(LogWriter):
    """See the module."""

    __slots__ = ()

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
    ) -> "PartitionLog":
        """Open (or begin) the log in `directory`, which exists, repairing what needs it.

        Args:
            directory: of this partition.
            topic_partition: its name.
            topic_id: 16 raw bytes.
            config: the topic's settings.
            disk: where it is.
            now_ms: wall clock.
            recovery_point: below this (exclusive) everything was flushed; 0 for a log that no sound
                checkpoint lists, None if that is unknown.
            log_start: from the checkpoint, None if it has none.
            high_watermark: from the checkpoint, 0 if it has none.
            is_clean: the last stop of this log directory was clean.
            was_compacted: a cleaner has worked here, so offsets may be missing rightly.
            hooks: what the log asks of its manager.
            files: for the small files of the directory; None: read and written as they are.

        Raises:
            LogRefused: the log contradicts what is known of it; nothing on disk was changed.
            OSError: the disk failed.
        """
        hooks, files = hooks or LogHooks(), files or PlainFiles(disk, directory)
        request = OpenRequest(
            directory,
            config,
            recovery_point,
            log_start,
            high_watermark,
            is_clean,
            now_ms,
            was_compacted,
        )
        opened = LogOpener(disk, request, files, topic_partition).open()
        return cls(
            topic_partition=topic_partition,
            topic_id=topic_id,
            directory=directory,
            config=config,
            disk=disk,
            files=files,
            opened=opened,
            recovery_point=opened.log_end_offset if is_clean else recovery_point or 0,
            high_watermark=high_watermark,
            hooks=hooks,
        )

    # -- the start moves
    # -----------------------------------------------------------------------------

    def raise_log_start(self, offset: int) -> None:
        """Move the log start up in memory.

        The caller makes it durable (`flush` up to it, then the checkpoint) and calls `clip_chain`
        only after that. Where the start is unknown (its checkpoint was lost), this says what it is,
        also below the local start.

        Raises:
            OffsetOutOfRange: above the high watermark.
            KafkaStorageError: the disk failed: it could not be made durable.
        """
        if self._failure is not None:
            self._refuse()
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                asked=offset, start=self.log_start_offset, end=self._high_watermark
            )
        if offset > self.log_start_offset or not self.log_start_known:
            self.log_start_offset = offset
        self.log_start_known = True

    def clip_chain(self, log_start: int) -> None:
        """Forget the epochs below a log start that is durable.

        Before that a new leader epoch would write the shorter chain, and a kill then would leave
        offsets of which nobody knows the epoch. On disk the chain is clipped when segments go or it
        changes anyway, and whenever the log is opened.
        """
        if self.epochs.truncate_from_start(log_start, keeps=False):
            self._chain_is_clipped = True
        if log_start >= self._bases[0]:
            self.chain_lost = ""  # what it does not say is not asked for any more

    def fits_batches(self, chain: Sequence[EpochEntry]) -> bool:
        """Whether each local batch is of the epoch that `chain` says; on a pool thread.

        Raises:
            LogClosed, KafkaStorageError: as `_beside_the_loop`.
        """
        cache = LeaderEpochCache(chain)
        return self._beside_the_loop(
            lambda segments: all(
                header.partition_leader_epoch in (-1, cache.epoch_for(header.base_offset))
                for segment in segments
                for _, header in segment.batches(0)
            )
        )

    def restore_chain(self, chain: Sequence[EpochEntry]) -> None:
        """Take the epochs below the first segment from `chain`, which fits the batches; durably.

        Raises:
            KafkaStorageError: the disk failed.
        """
        first = self._bases[0]
        below = [entry for entry in chain if entry.start_offset < first]
        local = self.epochs.between(first, self.log_end_offset + 1)
        self.epochs.replace([*below, *local])
        self.chain_lost = ""

    def retain(self, now_ms: int) -> RetentionResult:
        """Drop what has expired, where nobody keeps a checkpoint of log starts.

        Raises:
            KafkaStorageError: the disk failed.
        """
        expiry = self.expire(now_ms)
        return self.drop(expiry or Expiry((), self.log_start_offset, rolled=False))

    def expire(self, now_ms: int) -> Expiry | None:
        """Decide what has expired, see `retention`, and raise the log start over it in memory.

        The caller makes the new log start durable (`flush` up to it, then its checkpoint) before it
        calls `drop`.

        Returns:
            What is to go; None if nothing is, and nothing was done.

        Raises:
            KafkaStorageError: the disk failed.
        """
        if self._failure is not None:
            return None
        try:
            decision = decide(self._segment_facts(), self._log_facts(now_ms), self.config)
            if decision.roll_active:
                self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            self.fail(error)
        count = len(decision.drop)
        if not count:
            return Expiry((), self.log_start_offset, rolled=True) if decision.roll_active else None
        new_start = self._bases[count]
        if decision.raises_log_start and new_start > self.log_start_offset:
            self.log_start_offset = new_start
        dropped = tuple(zip(self._bases[:count], decision.drop, strict=True))
        return Expiry(dropped, self.log_start_offset, decision.roll_active)

    def _segment_facts(self) -> list[SegmentFacts]:
        return [
            SegmentFacts(
                segment.base_offset,
                self._segment_end(segment),
                segment.size_bytes,
                segment.retention_timestamp(),
            )
            for segment in self._segments
        ]

    def _log_facts(self, now_ms: int) -> LogFacts:
        return LogFacts(self.log_start_offset, self._high_watermark, self.copied_through, now_ms)

    def drop(self, expiry: Expiry) -> RetentionResult:
        """Take expired segments out; files are renamed now and unlinked later.

        Segments that went meanwhile for another reason (a truncation) are passed over.

        Raises:
            KafkaStorageError: the disk failed.
        """
        count = 0
        for (base_offset, _), found in zip(expiry.dropped, self._bases[:-1], strict=False):
            if base_offset != found:
                break
            count += 1
        if self._failure is not None or not count:
            return RetentionResult((), 0, self.log_start_offset, expiry.rolled)
        self.clip_chain(expiry.log_start_offset)
        try:
            if self._chain_is_clipped:
                self._save_epochs(self.epochs.entries())
            size = self._drop_oldest(count)
        except OSError as error:
            self.fail(error)
        dropped = expiry.dropped[:count]
        _log.info(
            "dropped segments: partition=%s count=%d size_bytes=%d local_start=%d reason=%s",
            self.topic_partition,
            count,
            size,
            self.local_log_start_offset,
            dropped[0][1].value,
        )
        return RetentionResult(dropped, size, self.log_start_offset, expiry.rolled)

    def _drop_oldest(self, count: int) -> int:
        gone = self._segments[:count]
        # Readers must not find them any more before their files change names.
        del self._segments[:count]
        del self._bases[:count]
        self._changes += 1
        size = sum(segment.size_bytes for segment in gone)
        self.size_bytes -= size
        for segment in gone:
            paths = segment.rename_deleted()
            paths += self.snapshots.rename_deleted(segment.base_offset)
            segment.release()
            self._delete_later(paths, self.config.file_delete_delay_ms)
        return size

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
        self.copied_through = last_offset
        return True

    # -- the end moves
    # -------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drop everything at and after `offset`; a batch that holds it goes as a whole.

        Raises:
            KafkaStorageError: the disk failed.
        """
        if offset >= self.log_end_offset:
            return
        if offset <= self._bases[0]:
            self.truncate_fully_and_start_at(
                max(offset, self.log_start_offset), keep_log_start=True
            )
            return
        try:
            end = self._end_if_cut(offset)
            if end >= self.log_start_offset:
                self._lower_marks(end)
                self._cut_to(end)
                return
        except OSError as error:
            self.fail(half_done(error, "a truncation ended before its end"))

        # The batch with the log start in it went: what was before the start must not come back.
        self.truncate_fully_and_start_at(self.log_start_offset, keep_log_start=True)

    def _end_if_cut(self, offset: int) -> int:
        """Where the log ends once the batch that holds `offset` has gone."""
        segment = self._segments[bisect_left(self._bases, offset) - 1]
        found = segment.find_batch(offset)
        if found is not None:
            return min(offset, found[1].base_offset)
        return offset if segment is self._active else last_batch(segment).offset

    def _lower_marks(self, end: int) -> None:
        """Say first, in memory and on disk, that the log reaches no further than `end`.

        A start in the middle of a truncation must not take it for a loss.
        """
        with self._marks:
            self._truncations += 1
            self.recovery_point = min(self.recovery_point, end)
        self._high_watermark = min(self._high_watermark, end)
        self._hooks.before_truncation(end)

    def _cut_to(self, end: int) -> None:
        self._changes += 1
        while self._bases[-1] >= end and len(self._bases) > 1:
            self._bases.pop()
            self._discard(self._segments.pop())
        self._active = self._segments[-1]
        self._active.activate(
            index_bytes=self.config.segment_index_bytes, now_ms=self._active.created_ms
        )
        self._active.truncate_to(end)
        # Names and sizes from before must not come back behind what is appended now.
        self._disk.fsync(self._active.file)
        self._disk.fsync_path(self.directory)
        self._after_truncation(end)

    def _discard(self, segment: LogSegment) -> None:
        """Rename away and unlink a segment that has left the list."""
        self._changes += 1
        paths = segment.rename_deleted()
        segment.release()
        self._delete_later(paths, 0)

    def truncate_fully_and_start_at(self, offset: int, *, keep_log_start: bool = False) -> None:
        """Drop everything and begin again, empty, at `offset`.

        Args:
            offset: the new local start and log end.
            keep_log_start: the range from the log start on is still there, but remote.
        """
        try:
            self._lower_marks(0)  # until the new segment is there, a start finds nothing at all
            moves_start = not (keep_log_start and self.log_start_offset <= offset)
            if moves_start and offset > self.log_start_offset:
                self.log_start_offset = offset
                self._hooks.log_start_moved()  # or the old first segment would count as lost
            self._changes += 1
            gone, self._segments, self._bases = self._segments, [], [offset]
            for segment in reversed(gone):
                self._discard(segment)
            self._active = LogSegment.create(
                self._disk,
                self.directory,
                offset,
                index_bytes=self.config.segment_index_bytes,
                now_ms=0,
            )
            self._active.index_interval_bytes = self.config.index_interval_bytes
            self._segments.append(self._active)
            self._disk.fsync_path(self.directory)
            if moves_start:
                is_lower = offset < self.log_start_offset
                self.log_start_offset = offset
                self.epochs.clear()
                if is_lower:
                    self._hooks.log_start_moved()
            self._after_truncation(offset)
        except OSError as error:
            self.fail(half_done(error, "a truncation ended before its end"))

    def _after_truncation(self, end: int) -> None:
        self._forget_recent()
        self.log_end_offset = end
        self._changes += 1
        self.size_bytes = sum(segment.size_bytes for segment in self._segments)
        self.copied_through = min(self.copied_through, end - 1)
        self.epochs.truncate_from_end(end)
        self.snapshots.remove([o for o in self.snapshots.offsets if o > end])
        self.producers = build_producers(
            self._segments, self.snapshots, start=self.log_start_offset, end=end
        )
        self._high_watermark = max(self._high_watermark, self.local_log_start_offset)
        self.producers.raise_high_watermark(self._high_watermark)
        self._set_jitter()

    # -- for the remote tier ---------------------------------------------------------------------

    def closed_segments(self) -> list[ClosedSegment]:
        """Segments that will not change any more, ascending."""
        return tier_segments.closed_segments(self._segments)

    def open_segment(self, base_offset: int) -> SegmentFiles:
        """Open a closed segment for copying; on a pool thread, it reads and fsyncs.

        Raises:
            OffsetOutOfRange: no closed segment begins there (any more).
            LogClosed, KafkaStorageError: as `_beside_the_loop`.
        """
        return self._beside_the_loop(lambda segments: self._open_segment(segments, base_offset))

    def _open_segment(self, segments: list[LogSegment], base_offset: int) -> SegmentFiles:
        bases = [segment.base_offset for segment in segments[:-1]]
        if base_offset not in bases:
            raise OffsetOutOfRange(asked=base_offset, start=self._bases[0], end=self._bases[-1])
        return tier_segments.open_segment(
            self._disk,
            segments,
            bases.index(base_offset),
            epochs=self.epochs.entries(),
            snapshots=self.snapshots.copy(),
            log_start=self.log_start_offset,
        )

    # -- the end
    # -------------------------------------------------------------------------------------

    def close(self, clean: bool = True) -> None:
        """Let go of all files; `clean` also writes what saves the next start its recovery.

        Raises:
            KafkaStorageError: the disk failed: the next start must recover.
        """
        if clean and self._failure is None:
            try:
                if self.log_end_offset not in self.snapshots.offsets:
                    self.snapshots.write(self.log_end_offset, self.producers.dump())
                self._active.become_inactive()
                self.flush()
                for offset in self.snapshots.offsets[-1:]:
                    self._disk.fsync_path(self.snapshots.path(offset))
            except OSError as error:
                self.fail(error)
        self._closed = True
        for segment in self._segments:
            segment.release()
