"""One partition's log on one disk: append, read, roll, truncate, expire.

All state is owned by one thread, the event loop's; `flush` and `tier_segments.open_segment` may run
on a pool thread because they only read what never changes or copy it first. Offsets: `end`
exclusive, `last` inclusive. At all times log start <= local log start <= high watermark <= log end.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn
from zlib import crc32

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    patch_offset_and_epoch,
    read_header,
    set_log_append_time,
)
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.append_check import check_client_batch, check_framing
from local_log.config import LogConfig
from local_log.errors import (
    CorruptMessage,
    KafkaStorageError,
    OffsetIsRemote,
    OffsetOutOfRange,
    UnexpectedAppendOffset,
)
from local_log.recompression import recompressed, wanted_codec
from local_log.recovery import LogOpener, OpenedLog, OpenRequest, build_producers
from local_log.retention import LogFacts, Reason, SegmentFacts, decide
from local_log.segment import LogSegment
from local_log.segment_files import EPOCH_CHECKPOINT
from local_log.transactions import note_batch
from runtime.disk import Buffer, Disk, FileRegion

_log = logging.getLogger(__name__)

_RECENT_BATCHES = 512
_LENGTH_OVERHEAD = 12
_CONTROL, _LOG_APPEND_TIME = 0x20, 0x08


class AppendInfo(NamedTuple):
    """What became of an append.

    Attributes:
        first_offset, last_offset: inclusive; of the earlier append if it was a repeat.
        log_append_time_ms: the stamp given, -1 if the producer's timestamps stay.
        is_duplicate: nothing was written.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


class LogRead(NamedTuple):
    """Bytes to send: whole batches, but the last may be cut at the byte limit (clients skip it).

    Attributes:
        first_batch_offset: base offset of the first batch, -1 if there are no bytes.
        upper_bound_offset: no record in the regions is at or above it.
    """

    regions: list[FileRegion]
    size_bytes: int
    first_batch_offset: int
    upper_bound_offset: int


class RetentionResult(NamedTuple):
    """What one retention pass dropped."""

    dropped: tuple[tuple[int, Reason], ...]
    size_bytes: int
    log_start_offset: int
    rolled: bool


def _delete_now(disk: Disk) -> Callable[[list[Path], int], None]:
    def delete(paths: list[Path], _delay_ms: int) -> None:
        for path in paths:
            disk.unlink(path)

    return delete


@dataclass(slots=True)
class LogHooks:
    """What a log asks of its manager.

    Attributes:
        delete_later: unlink these renamed files after so many milliseconds; None: at once.
        rolled: a segment was closed and wants flushing.
        failed: the disk failed; the directory is to go offline.
        log_start_raised: must be durable before local data goes (tiered topics only).
    """

    delete_later: Callable[[list[Path], int], None] | None = None
    rolled: Callable[["PartitionLog"], None] = field(default=lambda _log: None)
    failed: Callable[[OSError], None] = field(default=lambda _error: None)
    log_start_raised: Callable[["PartitionLog"], None] = field(default=lambda _log: None)


_EMPTY: list[FileRegion] = []


class PartitionLog:
    """See the module."""

    __slots__ = (
        "_active",
        "_bases",
        "_delete_later",
        "_disk",
        "_epoch_seen",
        "_epochs_dirty",
        "_failure",
        "_high_watermark",
        "_hooks",
        "_jitter_ms",
        "_recent",
        "_segments",
        "_truncations",
        "_unflushed_since_ms",
        "config",
        "copied_through",
        "directory",
        "epochs",
        "log_end_offset",
        "log_start_known",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "size_bytes",
        "snapshots",
        "topic",
        "topic_id",
        "truncated_bytes",
    )

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: bytes,
        directory: Path,
        config: LogConfig,
        disk: Disk,
        opened: OpenedLog,
        recovery_point: int,
        high_watermark: int,
        hooks: LogHooks,
    ) -> None:
        self.topic, self.partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.config = config
        self._disk = disk
        self._hooks = hooks
        self._delete_later = hooks.delete_later or _delete_now(disk)
        self._segments = opened.segments
        self._bases = [segment.base_offset for segment in opened.segments]
        self._active = opened.segments[-1]
        self.size_bytes = sum(segment.size_bytes for segment in opened.segments)
        self.producers = opened.producers
        self.snapshots = opened.snapshots
        self.epochs = opened.epochs
        self.epochs.on_change = self._save_epochs
        self._epochs_dirty = False
        self._epoch_seen = opened.epochs.latest_epoch
        self.log_start_offset = opened.log_start_offset
        self.log_start_known = opened.log_start_known
        self.log_end_offset = opened.log_end_offset
        self.truncated_bytes = opened.truncated_bytes
        self.recovery_point = min(recovery_point, opened.log_end_offset)
        self._high_watermark = min(high_watermark, opened.log_end_offset)
        self.copied_through = -1
        self._failure: OSError | None = None
        self._recent: dict[int, tuple[int, int]] = {}
        self._truncations = 0
        self._unflushed_since_ms: int | None = None
        self._jitter_ms = 0
        self._set_jitter()
        self._high_watermark = max(self._high_watermark, self.local_log_start_offset)

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
        recovery_point: int = 0,
        log_start: int | None = None,
        high_watermark: int = 0,
        is_clean: bool = False,
        hooks: LogHooks | None = None,
    ) -> "PartitionLog":
        """Open (or begin) the log in `directory`, which exists; see `recovery` for what is
        repaired.

        Raises:
            OSError: the disk failed.
        """
        request = OpenRequest(directory, config, recovery_point, log_start, is_clean, now_ms)
        opened = LogOpener(disk, request).open()
        return cls(
            topic_partition=topic_partition,
            topic_id=topic_id,
            directory=directory,
            config=config,
            disk=disk,
            opened=opened,
            recovery_point=opened.log_end_offset if is_clean else recovery_point,
            high_watermark=high_watermark,
            hooks=hooks or LogHooks(),
        )

    # -- facts ----------------------------------------------------------------------------------

    @property
    def topic_partition(self) -> TopicPartition:
        """Name and number."""
        return TopicPartition(self.topic, self.partition)

    @property
    def disk(self) -> Disk:
        """The port its files are reached by."""
        return self._disk

    @property
    def segments(self) -> Sequence[LogSegment]:
        """All segments, oldest first, the last one active."""
        return self._segments

    @property
    def segment_count(self) -> int:
        """How many segments are local."""
        return len(self._segments)

    @property
    def local_log_start_offset(self) -> int:
        """First offset that is readable here: the first segment's, or the log start inside it."""
        base = self._bases[0]
        return max(self.log_start_offset, base)

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch of the chain."""
        return self.epochs.latest_epoch

    @property
    def high_watermark(self) -> int:
        """First offset that is not committed."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        assert offset <= self.log_end_offset, "the high watermark is at most the log end"
        self._high_watermark = offset
        self.producers.raise_high_watermark(offset)

    @property
    def last_stable_offset(self) -> int:
        """First offset that a read_committed consumer may not see yet."""
        unstable = self.producers.first_unstable_offset()
        high_watermark = self._high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    @property
    def is_offline(self) -> bool:
        """Whether its disk failed."""
        return self._failure is not None

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings; index sizes hold from the next segment on."""
        self.config = config
        for segment in self._segments:
            segment.index_interval_bytes = config.index_interval_bytes
        self._set_jitter()

    def _set_jitter(self) -> None:
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        seed = f"{self.topic}-{self.partition}-{self._active.base_offset}".encode()
        self._jitter_ms = crc32(seed) % limit if limit > 0 else 0

    # -- append ---------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool = True,
    ) -> AppendInfo:
        """Check one batch, give it its offsets and write it at the end.

        Args:
            batch: exactly one batch; base offset, leader epoch (and with LogAppendTime the
                timestamp) are patched in place, the rest is written as it came.
            leader_epoch: this leader's epoch.
            now_ms: wall clock.
            from_client: apply what only holds for producers (no control batches, sequences).

        Raises:
            KafkaError: what is wrong with it; nothing was written.
            KafkaStorageError: the disk failed; the log takes nothing until a restart.
        """
        if self._failure is not None:
            self._refuse()
        config = self.config
        header = check_framing(batch)
        if from_client:
            check_client_batch(batch, header, config, now_ms)
            if header.producer_id >= 0:
                known = self.producers.check(header)
                if known is not None:
                    return AppendInfo(
                        known.first_offset, known.last_offset, -1, self.log_start_offset, True
                    )
            if config.compression_type != "producer":
                codec = wanted_codec(config.compression_type)
                if codec != header.codec:
                    batch = recompressed(batch, header, codec, config)
                    header = read_header(batch)
        append_time = -1
        if config.stamps_append_time and not header.attributes & _CONTROL:
            append_time = now_ms
            set_log_append_time(batch, 0, header, now_ms)
            header = header._replace(
                max_timestamp=now_ms, attributes=header.attributes | _LOG_APPEND_TIME
            )
        first = self.log_end_offset
        last = first + header.last_offset_delta
        patch_offset_and_epoch(batch, 0, first, leader_epoch)
        self._write(batch, header, first, last, leader_epoch, now_ms)
        return AppendInfo(first, last, append_time, self.log_start_offset)

    def append_batches(self, batches: Buffer, *, now_ms: int) -> AppendInfo:
        """Write whole batches that have their offsets and epochs already (replication, metadata).

        Offsets must ascend and start at the log end or later (compacted logs have holes).

        Raises:
            CorruptMessage: framing or checksum of a batch is wrong; nothing after the last good
                batch was written.
            UnexpectedAppendOffset: a batch does not continue the log.
            KafkaStorageError: the disk failed.
        """
        if self._failure is not None:
            self._refuse()
        view = memoryview(batches)
        first_offset, position = -1, 0
        while position < len(view):
            rest = view[position:]
            if len(rest) < HEADER_SIZE:
                raise CorruptMessage(f"{len(rest)} bytes are no record batch")
            size = read_header(rest).batch_length + _LENGTH_OVERHEAD
            batch = rest[: max(size, HEADER_SIZE)]
            header = check_framing(batch)
            if header.base_offset < self.log_end_offset:
                raise UnexpectedAppendOffset(
                    first_offset=header.base_offset, log_end=self.log_end_offset
                )
            if first_offset < 0:
                first_offset = header.base_offset
            self._write(
                batch,
                header,
                header.base_offset,
                header.last_offset,
                header.partition_leader_epoch,
                now_ms,
            )
            position += size
        return AppendInfo(first_offset, self.log_end_offset - 1, -1, self.log_start_offset)

    def _write(
        self,
        batch: Buffer,
        header: BatchHeader,
        first: int,
        last: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """The durable part of an append, and everything that must follow from it."""
        config = self.config
        size = header.batch_length + _LENGTH_OVERHEAD
        max_timestamp = header.max_timestamp
        active = self._active
        try:
            if active.must_roll(
                size=size,
                last_offset=last,
                max_timestamp=max_timestamp,
                segment_bytes=config.segment_bytes,
                segment_ms=config.segment_ms - self._jitter_ms,
                now_ms=now_ms,
            ):
                self._roll(first, now_ms)
                active = self._active
            if leader_epoch >= 0 and leader_epoch != self.epochs.latest_epoch:
                self._assign_epoch(leader_epoch, first)
            position = active.size_bytes
            active.append(batch)
            active.note_batch(size, last, max_timestamp)
            self.log_end_offset = last + 1
            self.size_bytes += size
            recent = self._recent
            if len(recent) >= _RECENT_BATCHES:
                recent.clear()
            recent[first] = (position, size)
            if header.producer_id >= 0:
                aborted = note_batch(
                    self.producers, header._replace(base_offset=first), lambda: bytes(batch)
                )
                if aborted is not None:
                    active.append_aborted(aborted)
            if self._unflushed_since_ms is None:
                self._unflushed_since_ms = now_ms
            if last + 1 - self.recovery_point >= config.flush_messages:
                self.flush()
        except OSError as error:
            self.fail(error)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        latest = self.epochs.latest_epoch
        if latest is None or epoch > latest:
            self.epochs.assign(epoch, start_offset)

    def fail(self, error: OSError) -> NoReturn:
        """Take no more appends: what the disk holds is unknown until a restart has recovered it.

        Raises:
            KafkaStorageError: always.
        """
        if self._failure is None:
            self._failure = error
            _log.error("disk failed, partition is offline: path=%s error=%s", self.directory, error)
            self._hooks.failed(error)
        self._refuse()

    def set_offline(self, error: OSError) -> None:
        """Go offline because another partition's disk access on the same directory failed."""
        self._failure = self._failure or error

    def _refuse(self) -> NoReturn:
        raise KafkaStorageError(f"{self.directory} is offline: {self._failure}") from self._failure

    # -- read -----------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        min_one_batch: bool = False,
    ) -> LogRead:
        """Find the bytes of the batches from `offset` on, as regions to send; nothing is read.

        Args:
            offset: first record wanted; the region starts with the batch that holds it.
            max_bytes: limit of the regions' size.
            end_offset: batches at or after it are left out (high watermark, last stable offset);
                default: the log end.
            min_one_batch: give the first batch whole although it is larger than `max_bytes`.

        Raises:
            OffsetOutOfRange: outside [log start, log end].
            OffsetIsRemote: at or above the log start, but below the local one.
            KafkaStorageError: the disk failed.
        """
        log_end = self.log_end_offset
        end = log_end if end_offset is None else end_offset
        if offset > log_end or offset < self.log_start_offset:
            raise OffsetOutOfRange(asked=offset, start=self.log_start_offset, end=log_end)
        if offset < self._bases[0]:
            raise OffsetIsRemote(
                asked=offset, log_start=self.log_start_offset, local_start=self._bases[0]
            )
        if self._failure is not None:
            self._refuse()
        if offset >= end or max_bytes < 0:
            return LogRead(_EMPTY, 0, -1, offset)
        try:
            return self._read(offset, max_bytes, end, min_one_batch)
        except OSError as error:
            self.fail(error)

    def _read(self, offset: int, max_bytes: int, end: int, min_one_batch: bool) -> LogRead:
        active = self._active
        recent = self._recent.get(offset) if offset >= active.base_offset else None
        if recent is not None:
            segment, base = active, offset
            position, first_size = recent
        else:
            found = self._locate(offset)
            if found is None:
                return LogRead(_EMPTY, 0, -1, offset)
            segment, position, header = found
            base, first_size = header.base_offset, header.size_bytes
        if base >= end:
            return LogRead(_EMPTY, 0, -1, offset)
        stop = segment.size_bytes if end >= self.log_end_offset else self._position_of(segment, end)
        if max_bytes < first_size:
            if not min_one_batch:
                return LogRead(_EMPTY, 0, -1, offset)
            max_bytes = first_size
        size = min(stop - position, max_bytes)
        if size <= 0:
            return LogRead(_EMPTY, 0, -1, offset)
        return LogRead(
            [FileRegion(segment.file, position, size)],
            size,
            base,
            min(end, self._segment_end(segment)),
        )

    def _locate(self, offset: int) -> tuple[LogSegment, int, BatchHeader] | None:
        """The batch that holds `offset`, or the next one after a hole."""
        index = bisect_right(self._bases, offset) - 1
        for segment in self._segments[max(index, 0) :]:
            found = segment.find_batch(offset)
            if found is not None:
                return segment, found[0], found[1]
        return None

    def _position_of(self, segment: LogSegment, end: int) -> int:
        """First byte in `segment` of the batch that reaches to `end` or beyond."""
        if end >= self._segment_end(segment):
            return segment.size_bytes
        recent = self._recent.get(end) if segment is self._active else None
        if recent is not None:
            return recent[0]
        found = segment.find_batch(end)
        return segment.size_bytes if found is None else found[0]

    def _segment_end(self, segment: LogSegment) -> int:
        """The next segment's base offset, or the log end (exclusive)."""
        if segment is self._active:
            return self.log_end_offset
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    def read_bytes(self, offset: int, max_bytes: int, *, end_offset: int | None = None) -> bytes:
        """Read batches from `offset` on into the heap, at least one: for internal readers.

        Raises:
            The errors of `read`.
        """
        result = self.read(offset, max_bytes, end_offset=end_offset, min_one_batch=True)
        return b"".join(
            self._disk.read_at(region.file, region.position, region.size_bytes)
            for region in result.regions
        )

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that touch [start, end)."""
        found: list[tuple[int, int]] = []
        index = max(bisect_right(self._bases, start) - 1, 0)
        for segment in self._segments[index:]:
            for entry in segment.aborted():
                if entry.last_offset >= start and entry.first_offset < end:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= end:
                    return found
        return found

    # -- roll and flush -------------------------------------------------------------------------

    def roll(self, now_ms: int | None = None) -> None:
        """Close the active segment and begin a new one; nothing happens if it is empty."""
        try:
            if self._active.size_bytes:
                created_ms = self._active.created_ms if now_ms is None else now_ms
                self._roll(self.log_end_offset, created_ms)
        except OSError as error:
            self.fail(error)

    def roll_if_due(self, now_ms: int) -> bool:
        """Close the active segment if its time is up although nothing is being appended."""
        active = self._active
        if self._failure is not None or active.size_bytes == 0:
            return False
        due_ms = self.config.segment_ms - self._jitter_ms
        if active.waited_ms(now_ms, now_ms) <= due_ms:
            return False
        self.roll(now_ms)
        return True

    def _roll(self, base_offset: int, now_ms: int) -> None:
        self._active.become_inactive()
        segment = LogSegment.create(
            self._disk,
            self.directory,
            base_offset,
            index_bytes=self.config.segment_index_bytes,
            now_ms=now_ms,
        )
        segment.index_interval_bytes = self.config.index_interval_bytes
        self.producers.end_offset = base_offset
        self.snapshots.write(base_offset, self.producers.dump())
        self._segments.append(segment)
        self._bases.append(base_offset)
        self._active = segment
        self._recent.clear()
        self._set_jitter()
        self._hooks.rolled(self)

    def flush(self, up_to: int | None = None) -> None:
        """Fsync everything below `up_to` (default: the log end) and move the recovery point there.

        May run on a pool thread: works on copies, and moves the recovery point only if no
        truncation came between.

        Raises:
            KafkaStorageError: the disk failed.
        """
        target = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        truncations = self._truncations
        if target <= self.recovery_point and not self._epochs_dirty:
            return
        start = self.recovery_point
        segments = list(self._segments)
        chosen = [
            segment
            for index, segment in enumerate(segments)
            if segment.base_offset < target
            and (index + 1 == len(segments) or segments[index + 1].base_offset > start)
        ]
        try:
            for segment in chosen:
                segment.fsync()
            if self._epochs_dirty:
                self._epochs_dirty = False
                self._write_epochs(self.epochs.entries(), durable=True)
            if len(chosen) > 1 or (chosen and chosen[0].base_offset >= start):
                self._disk.fsync_path(self.directory)
        except FileNotFoundError:
            return  # a segment was dropped meanwhile; the next flush sees what is left
        except OSError as error:
            self.fail(error)
        if truncations == self._truncations and target > self.recovery_point:
            self.recovery_point = target
        if self.recovery_point >= self.log_end_offset:
            self._unflushed_since_ms = None

    def flush_if_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` has passed since the first unflushed append (the caller flushes)."""
        since = self._unflushed_since_ms
        return since is not None and now_ms - since >= self.config.flush_ms

    def _save_epochs(self, entries: list[EpochEntry]) -> None:
        """Keep the chain after a change.

        Where remote data hangs on it, at once and durably; else the log itself can tell it again
        for every offset above the recovery point, so fsync waits for the next flush.
        """
        newest = entries[-1].epoch if entries else None
        if newest != self._epoch_seen:
            if newest is not None and (self._epoch_seen is None or newest > self._epoch_seen):
                self.copied_through = -1  # known under an older epoch: the tier says it anew
            self._epoch_seen = newest
        durable = self.config.remote_storage_enable
        try:
            self._write_epochs(entries, durable=durable)
        except OSError as error:
            self.fail(error)
        self._epochs_dirty = not durable

    def _write_epochs(self, entries: list[EpochEntry], *, durable: bool) -> None:
        self._disk.atomic_write(
            self.directory / EPOCH_CHECKPOINT, epoch_checkpoint.dump(entries), durable=durable
        )

    # -- the start moves ------------------------------------------------------------------------

    def raise_log_start(self, offset: int) -> None:
        """Move the log start up (in memory; the manager's checkpoint makes it durable).

        Raises:
            OffsetOutOfRange: above the high watermark.
        """
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                asked=offset, start=self.log_start_offset, end=self._high_watermark
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
        self.log_start_known = True

    def retain(self, now_ms: int) -> RetentionResult:
        """Drop what has expired, see `retention`; files are renamed now and unlinked later."""
        nothing = RetentionResult((), 0, self.log_start_offset, False)
        if self._failure is not None:
            return nothing
        segments = self._segments
        facts = [
            SegmentFacts(
                segment.base_offset,
                self._segment_end(segment),
                segment.size_bytes,
                segment.retention_timestamp(),
            )
            for segment in segments
        ]
        log = LogFacts(self.log_start_offset, self._high_watermark, self.copied_through, now_ms)
        decision = decide(facts, log, self.config)
        if not decision.drop and not decision.roll_active:
            return nothing
        try:
            if decision.roll_active:
                self._roll(self.log_end_offset, now_ms)
            if not decision.drop:
                return nothing._replace(rolled=True)
            count = len(decision.drop)
            new_start = self._bases[count]
            if decision.raises_log_start and new_start > self.log_start_offset:
                self.log_start_offset = new_start
                self.epochs.truncate_from_start(new_start)
                if self.config.remote_storage_enable:
                    self._hooks.log_start_raised(self)
            dropped = tuple(zip(self._bases[:count], decision.drop, strict=True))
            size = self._drop_oldest(count)
        except OSError as error:
            self.fail(error)
        _log.info(
            "dropped segments: partition=%s count=%d size_bytes=%d local_start=%d reason=%s",
            self.topic_partition,
            count,
            size,
            self.local_log_start_offset,
            decision.drop[0].value,
        )
        return RetentionResult(dropped, size, self.log_start_offset, decision.roll_active)

    def _drop_oldest(self, count: int) -> int:
        gone = self._segments[:count]
        # Readers must not find them any more before their files change names.
        del self._segments[:count]
        del self._bases[:count]
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

    # -- the end moves --------------------------------------------------------------------------

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
        self._truncations += 1
        try:
            while self._bases[-1] >= offset:
                self._discard_last()
            self._active = self._segments[-1]
            self._active.activate(
                index_bytes=self.config.segment_index_bytes, now_ms=self._active.created_ms
            )
            self._active.truncate_to(offset)
            self._after_truncation(self._end_of_active())
        except OSError as error:
            self.fail(error)

    def _discard_last(self) -> None:
        segment = self._segments.pop()
        self._bases.pop()
        paths = segment.rename_deleted()
        segment.release()
        self._delete_later(paths, 0)

    def _end_of_active(self) -> int:
        end = self._active.base_offset
        for _, header in self._active.batches(
            self._active.offset_index.lookup(self.log_end_offset).position
        ):
            end = header.next_offset
        return end

    def truncate_fully_and_start_at(self, offset: int, *, keep_log_start: bool = False) -> None:
        """Drop everything and begin again, empty, at `offset`.

        Args:
            keep_log_start: the range from the log start on is still there, but remote.
        """
        self._truncations += 1
        try:
            while self._segments:
                self._discard_last()
            self._active = LogSegment.create(
                self._disk,
                self.directory,
                offset,
                index_bytes=self.config.segment_index_bytes,
                now_ms=0,
            )
            self._active.index_interval_bytes = self.config.index_interval_bytes
            self._segments.append(self._active)
            self._bases.append(offset)
            if not (keep_log_start and self.log_start_offset <= offset):
                self.log_start_offset = offset
                self.epochs.clear()
            self._after_truncation(offset)
        except OSError as error:
            self.fail(error)

    def _after_truncation(self, end: int) -> None:
        self._recent.clear()
        self.log_end_offset = end
        self.size_bytes = sum(segment.size_bytes for segment in self._segments)
        self.recovery_point = min(self.recovery_point, end)
        self.copied_through = min(self.copied_through, end - 1)
        self.epochs.truncate_from_end(end)
        self.snapshots.remove([o for o in self.snapshots.offsets if o > end])
        self.producers = build_producers(
            self._segments, self.snapshots, start=self.log_start_offset, end=end
        )
        self._high_watermark = min(self._high_watermark, end)
        self._set_jitter()

    # -- the end --------------------------------------------------------------------------------

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
        for segment in self._segments:
            segment.release()
