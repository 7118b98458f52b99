"""One partition's log on one disk: append, read and flush.

The log holds its start and end offsets. Each part owns its state: other modules read it, and change
it only through methods of the part.

| part | file | its state |
|---|---|---|
| `LogHealth` | `health.py` | disk failed, log closed |
| `LogSegments` | `segments.py` | the segments, also those that leave; where batches lie |
| `EpochFile` | `epoch_file.py` | the epoch chain and its file |
| `LogProducers` | `producers.py` | producers and their snapshots |
| `LogCleaning` | `cleaning.py` | a pass of the cleaner, and a segment that takes its place |
| `LocalHold` | `hold.py` | the local segments that are kept for followers |
| `LogLease` | `lease.py` | whether a pool thread changes the log, and the calls that wait |

Other modules have functions over a log. `truncation.py` cuts it, `retention.py` deletes its oldest
segments, `lookups.py` reads it on pool threads, and `tier_segments.py` opens closed segments for
the remote tier.

The event loop's thread owns all state. It may lease the log to a pool thread for an append or a
truncation (`lease.py`); other methods for pool threads say so. A batch becomes visible when it is
complete: records, places, producers, then `LogSegments.tail`, then `log_end_offset`.

Offsets: `end` exclusive, `last` inclusive. At all times log start <= local log start <= high
watermark <= log end.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kafka_protocol.records.batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    BatchHeader,
    patch_offset_and_epoch,
    read_header,
    set_log_append_time,
)
from kafka_protocol.types import EpochEntry
from local_log.config import INT_MAX, LogConfig
from local_log.errors import (
    FallingEpoch,
    OffsetIsRemote,
    OffsetOutOfRange,
    UnexpectedAppendOffset,
)
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.log.append_check import check_client_batch, check_framing, next_given
from local_log.log.cleaning import LogCleaning
from local_log.log.epoch_file import EpochFile
from local_log.log.health import LogHealth
from local_log.log.hold import LocalHold
from local_log.log.lease import LogLease
from local_log.log.opened_batches import Opening, opened, opened_if_short
from local_log.log.producers import LogProducers
from local_log.log.results import Appended, AppendInfo, Ended, LogHooks, LogRead
from local_log.log.segments import LogSegments, fsync_between
from local_log.producers.transactions import note_batch
from local_log.recovery.recovery import LogOpener, OpenedLog
from local_log.recovery.survey import OpenRequest
from local_log.segment.segment import LogSegment
from local_log.small_files import PlainFiles, SmallFiles
from runtime.disk import Buffer, Disk
from runtime.disk_errors import half_done
from runtime.executors import make_mutex


class PartitionLog:
    """The log of one partition; on the loop's thread unless a method says otherwise.

    Attributes:
        health, segments, epoch_file, producers, cleaning, hold, lease: Parts, see the module.
        epochs: The epoch chain; its changes are saved by `epoch_file`.
        adopted_epoch: See `Accepted`.
        truncated_bytes: Bytes removed from the log when it was opened.
        log_start_has_no_entry: The checkpoint is intact and never had an entry for this log; set by
            its reader.
        log_start_offset: The first offset that a consumer may read, local or remote.
        log_start_known: False if the start of a tiered log was in a lost checkpoint.
        log_end_offset: Exclusive.
        high_watermark: First offset that is not committed.
        copied_through: Last offset durably in the remote tier (inclusive); -1: none, or not
            reported by the tier yet.
        unvalidated_end: Log end when a leader took the log over whose tier has not validated it
            yet; -1: it is validated, or not led.
        recovery_point: Everything below (exclusive) survives a power cut.
        has_damage: A damaged batch was found below the recovery point: the next start must read and
            validate the whole log.
        changed: Called on the loop when retention or a truncation has moved an end, and when the
            log goes offline: waiting fetches must check again.
    """

    __slots__ = (
        "_hooks",
        "_is_flush_asked",
        "_is_truncating",
        "_marks",
        "_truncations",
        "_unflushed_since_ms",
        "adopted_epoch",
        "changed",
        "cleaning",
        "config",
        "copied_through",
        "damages",
        "directory",
        "disk",
        "epoch_file",
        "epochs",
        "has_damage",
        "health",
        "high_watermark",
        "hold",
        "lease",
        "log_end_offset",
        "log_start_has_no_entry",
        "log_start_known",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "topic",
        "topic_id",
        "topic_partition",
        "truncated_bytes",
        "unvalidated_end",
    )

    def __init__(
        self,
        topic_id: bytes,
        request: OpenRequest,
        found: OpenedLog,
        *,
        disk: Disk,
        files: SmallFiles,
        hooks: LogHooks,
    ) -> None:
        self.topic_id, self.topic_partition = topic_id, request.topic_partition
        self.topic, self.partition = request.topic_partition
        self.directory, self.disk, self.config = request.directory, disk, request.config
        self.adopted_epoch = found.adopted_epoch
        self.truncated_bytes, self.damages = found.truncated_bytes, found.damages
        self.log_start_has_no_entry = self.has_damage = False
        self._hooks, self.changed = hooks, _notify_none

        self.health = health = LogHealth(request, hooks.failed)
        self.segments = LogSegments(found.segments, request, disk, health, hooks.aborted)
        self.producers = LogProducers(found.producers, found.snapshots, disk)
        self.cleaning = LogCleaning(
            disk, self.directory, health=health, segments=self.segments, producers=self.producers
        )

        self.hold, self.lease = LocalHold(), LogLease()

        self.log_start_offset, self.log_start_known = found.log_start_offset, found.log_start_known
        self.log_end_offset = log_end = found.log_end_offset
        self.segments.end_at(log_end)
        committed = min(request.high_watermark, log_end)
        self.high_watermark = max(committed, self.local_log_start_offset)
        self.producers.states.raise_high_watermark(self.high_watermark)
        self.epoch_file = EpochFile(
            found, request, disk, files=files, health=health, newer=self.forget_copies
        )
        self.epochs = self.epoch_file.chain
        self.copied_through = self.unvalidated_end = -1

        flushed_end = log_end if request.is_clean else request.recovery_point or 0
        self.recovery_point = min(flushed_end, log_end)
        self._unflushed_since_ms: int | None = None  # time of the first append after the last flush
        self._is_flush_asked = False
        # Counted, under `_marks`, before a truncation changes anything: a concurrent flush then
        # discards its result.
        self._truncations, self._is_truncating, self._marks = 0, False, make_mutex()

    @classmethod
    def open(
        cls,
        request: OpenRequest,
        *,
        topic_id: bytes,
        disk: Disk,
        hooks: LogHooks | None = None,
        files: SmallFiles | None = None,
    ) -> "PartitionLog":
        """Open (or begin) the log in an existing directory, with repairs where needed.

        Args:
            request: The log, and the known facts about it.
            topic_id: 16 raw bytes.
            disk: File access.
            hooks: Calls to the manager.
            files: For the small files of the directory; None: without checks.

        Raises:
            LogRefused: The log contradicts the known facts; nothing on disk was changed.
            OSError: The disk failed.
        """
        files = files or PlainFiles(disk, request.directory)
        found = LogOpener(disk, request, files).open()
        return cls(topic_id, request, found, disk=disk, files=files, hooks=hooks or LogHooks())

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings; index sizes apply from the next segment on."""
        self.config = config
        self.segments.set_config(config)
        self.epoch_file.set_config(config)

    # -- ends -------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self.segments.size_bytes

    @property
    def local_log_start_offset(self) -> int:
        """First local offset: that of the first segment, or the log start inside it."""
        return max(self.log_start_offset, self.segments.bases[0])

    @property
    def last_stable_offset(self) -> int:
        """First offset that is not visible to read_committed consumers."""
        unstable = self.producers.states.first_unstable_offset()
        high_watermark = self.high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    def update_high_watermark(self, offset: int) -> None:
        """Set the high watermark."""
        assert offset <= self.log_end_offset, "the high watermark is at most the log end"
        self.high_watermark = offset
        self.producers.states.raise_high_watermark(offset)

    def raise_log_start(self, offset: int) -> None:
        """Raise the log start in memory, or set an unknown one.

        The caller makes it durable (`flush` up to it, then the checkpoint) and then calls
        `clip_chain`. An unknown start (its checkpoint was lost) may lie below the local one.

        Raises:
            OffsetOutOfRange: Above the high watermark.
            KafkaStorageError: The disk failed, so the start could not be made durable.
        """
        if self.health.failure is not None:
            self.health.refuse()
        if offset > self.high_watermark:
            start = self.log_start_offset
            raise OffsetOutOfRange(asked=offset, start=start, end=self.high_watermark)
        if offset > self.log_start_offset or not self.log_start_known:
            self.log_start_offset = offset
        self.log_start_known = True

    def expire_below(self, offset: int) -> None:
        """Raise the log start in memory: retention deletes everything below."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.changed()

    def set_copied_through(self, last_offset: int, its_epoch: int) -> bool:
        """Set the last offset of this log that is durably in the remote tier.

        Args:
            last_offset: Inclusive.
            its_epoch: Leader epoch of that offset in the remote copy.

        Returns:
            False if this log's chain has another epoch there: then the copy is of another lineage.
        """
        if last_offset >= self.log_end_offset or self.epochs.epoch_for(last_offset) != its_epoch:
            return False
        self.copied_through = last_offset
        return True

    def forget_copies(self) -> None:
        """Reset `copied_through` until the tier reports it again."""
        self.copied_through = -1

    # -- the epoch chain ------------------------------------------------------------------------

    @property
    def last_fetched_epoch(self) -> int:
        """Epoch of the last record, as in a follower's Fetch; -1 without records."""
        epoch = self.epochs.epoch_for(self.log_end_offset - 1)
        return -1 if epoch is None else epoch

    def restored_chain(self, chain: Sequence[EpochEntry]) -> list[EpochEntry]:
        """Return the chain with its epochs below the first segment taken from `chain`.

        `chain` must fit the batches. `EpochFile.write_ahead` writes the result, `EpochFile.restore`
        takes it.
        """
        first = self.segments.bases[0]
        below = [entry for entry in chain if entry.start_offset < first]
        here = self.epochs.between(first, self.log_end_offset + 1)
        return LeaderEpochCache([*below, *here]).entries()

    def begin_unvalidated(self) -> None:
        """Note the log end: a leader takes the log over, or its validation is withdrawn."""
        self.unvalidated_end = self.log_end_offset

    def end_unvalidated(self) -> None:
        """Note that the log is validated, or not led any more."""
        self.unvalidated_end = -1

    def chain_start(self, log_start: int) -> int:
        """Return where the chain begins in a log that begins at `log_start`.

        At `log_start`, but it keeps the epoch of the last committed record. From that epoch a
        follower without other epochs finds whether its leader's lineage is its own. A new leader's
        tier sees by it that this lineage had records. So until these are validated, the chain keeps
        the epoch of the last one present at the take-over. DIFFERS: Kafka's chain begins at the log
        start.
        """
        end = self.high_watermark
        if self.config.is_tiered and self.unvalidated_end >= 0:
            end = min(end, self.unvalidated_end)
        return min(log_start, end - 1)

    def clip_chain(self, log_start: int) -> None:
        """Remove the epochs below a durable log start, see `EpochFile.clip`."""
        self.epoch_file.clip(self.chain_start(log_start))
        if log_start >= self.segments.bases[0]:
            self.epoch_file.forget_loss()

    # -- append ---------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool = True,
        opening: Opening = Opening.AT_ONCE,
    ) -> AppendInfo:
        """Check one batch, assign its offsets and append it.

        Args:
            batch: Exactly one batch; base offset, leader epoch (and with LogAppendTime the
                timestamp) are patched in place, the rest is written unchanged.
            leader_epoch: This leader's epoch.
            now_ms: Wall clock.
            from_client: Apply the rules for producers (no control batches, sequences).
            opening: Where it is decoded, if the topic's settings require that.

        Raises:
            MustBeOpened: Call `opened_batches.opened` on a pool thread, and append the result.
            KafkaError: The batch breaks a rule; nothing was written.
            KafkaStorageError: The disk failed; the log takes no appends until a restart.
        """
        assert not self.lease.is_leased, "its leader was paused before"
        if self.health.failure is not None:
            self.health.refuse()
        config, first = self.config, self.log_end_offset
        header = check_framing(batch)
        if from_client:
            check_client_batch(batch, header, config, now_ms)
            if header.producer_id >= 0:
                known = self.producers.states.check(header, first)
                if known is not None:
                    stamp = known.timestamp if config.stamps_append_time else -1
                    return AppendInfo(
                        known.first_offset, known.last_offset, stamp, self.log_start_offset, True
                    )
            if config.opens_batches and opening is not Opening.DONE:
                open_it = opened_if_short if opening is Opening.IF_SHORT else opened
                batch = open_it(batch, header, config, now_ms)
                header = read_header(batch)
        append_time = -1
        if config.stamps_append_time and not header.attributes & CONTROL_FLAG:
            append_time = now_ms
            set_log_append_time(batch, 0, header, now_ms)
            header = header._replace(
                max_timestamp=now_ms, attributes=header.attributes | LOG_APPEND_TIME_FLAG
            )
        last = first + header.last_offset_delta
        patch_offset_and_epoch(batch, 0, first, leader_epoch)
        self._write(batch, header, first, last, leader_epoch, now_ms)
        return AppendInfo(first, last, append_time, self.log_start_offset)

    def append_batches(
        self,
        batches: Buffer,
        *,
        now_ms: int,
        leader_epoch: int = INT_MAX,
        asked_offset: int | None = None,
    ) -> Appended:
        """Append batches that have offsets and epochs (replication, metadata).

        Each batch is checked before it is written; those before a wrong one stay. Offsets ascend
        and start at the log end or later (compacted logs have holes). Epochs never fall, and the
        chain has no entry without a record (`truncate_to` the log end removes it). So no epoch in
        the chain begins at another offset afterwards.

        Args:
            batches: The last one may be cut.
            now_ms: Wall clock.
            leader_epoch: Under which they were fetched; a batch of a later one ends the append.
            asked_offset: Log end in the Fetch.

        Raises:
            CorruptMessage: Framing or checksum of a batch is wrong.
            UnexpectedAppendOffset: A batch does not continue the log.
            FallingEpoch: A batch has an older epoch than the log's last one.
            KafkaStorageError: The disk failed.
        """
        if self.health.failure is not None:
            self.health.refuse()
        end = self.log_end_offset
        assert end == self.log_start_offset or not self.epochs.reaches(end), "the chain is not cut"
        if asked_offset not in (None, end):
            raise UnexpectedAppendOffset(first_offset=asked_offset, log_end=end)
        view, first_offset, position = memoryview(batches), -1, 0
        while not isinstance(found := next_given(view, position, leader_epoch), Ended):
            batch, header = found
            first, epoch = header.base_offset, header.partition_leader_epoch
            if first < self.log_end_offset:
                raise UnexpectedAppendOffset(first_offset=first, log_end=self.log_end_offset)
            latest = self.epochs.latest_epoch
            if latest is not None and 0 <= epoch < latest:  # a filler has none
                raise FallingEpoch(first_offset=first, epoch=epoch, latest=latest)
            self.segments.note_gap(self.log_end_offset, first)
            self._write(batch, header, first, header.last_offset, epoch, now_ms)
            first_offset = first_offset if position else first
            position += len(batch)
        return Appended(first_offset, self.log_end_offset - 1 if position else -1, position, found)

    def _write(
        self,
        batch: Buffer,
        header: BatchHeader,
        first: int,
        last: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Write one batch, and update all that depends on it."""
        segments = self.segments
        size = header.batch_length + LOG_OVERHEAD
        max_timestamp = header.max_timestamp
        active = segments.active
        try:
            if active.must_roll(
                size, last, max_timestamp, now_ms, self.config.segment_bytes, segments.roll_ms
            ):
                self._roll_at(first, now_ms)
                active = segments.active
            if leader_epoch >= 0 and leader_epoch != self.epochs.latest_epoch:
                self.epoch_file.assign(leader_epoch, first)
            position = active.size_bytes
            if not position:
                active.created_ms = now_ms  # an empty segment does not age
            active.append(batch, size, last, max_timestamp)
            segments.note_place(first, position, size)
            if header.producer_id >= 0:
                if header.attributes & CONTROL_FLAG:
                    self._end_transaction(active, batch, header._replace(base_offset=first))
                else:
                    self.producers.states.append_data(header, first)
            segments.end_at(last + 1)
            self.log_end_offset = last + 1
            if self._unflushed_since_ms is None:
                self._unflushed_since_ms = now_ms
        except OSError as error:
            self.health.fail(error)

    def _end_transaction(self, active: LogSegment, batch: Buffer, header: BatchHeader) -> None:
        aborted = note_batch(self.producers.states, header, lambda: bytes(batch))
        if aborted is not None:
            try:
                active.append_aborted(aborted)
                self.segments.aborted.noted(active)
            except OSError as error:  # the marker is in the log: recovery adds its entry
                raise half_done(error, "an aborted transaction cannot be noted") from error

    def roll(self, now_ms: int | None = None) -> None:
        """Close the active segment and begin a new one, unless it is empty."""
        active = self.segments.active
        try:
            if active.size_bytes:
                created_ms = active.created_ms if now_ms is None else now_ms
                self._roll_at(self.log_end_offset, created_ms)
        except OSError as error:
            self.health.fail(error)

    def roll_if_due(self, now_ms: int) -> bool:
        """Close the active segment if its time is over, also without an append.

        Counted by the wall clock from its first append, or from the last one before it was opened
        here. Record timestamps may be old; by them each pass would close the few records since the
        last one. DIFFERS: Kafka rolls on append only, so the end of an idle topic is never copied.
        """
        active = self.segments.active
        if self.health.failure is not None or self.lease.is_leased or active.size_bytes == 0:
            return False
        if now_ms - active.created_ms <= self.segments.roll_ms:
            return False
        self.roll(now_ms)
        return True

    def _roll_at(self, log_end: int, now_ms: int) -> None:
        self.segments.roll(log_end, now_ms, self.producers.begin_segment)
        self._hooks.rolled()

    # -- read -----------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        min_one_batch: bool = False,
        may_wait: bool = True,
    ) -> LogRead:
        """Find the regions of the batches from `offset` on, to be sent; reads no data.

        Args:
            offset: First record wanted; the region starts with its batch.
            max_bytes: Limit of the regions' size.
            end_offset: Batches at or after it are excluded (high watermark, last stable offset);
                default: the log end.
            min_one_batch: Include the first batch even if it exceeds `max_bytes`.
            may_wait: False on the event loop, which must not wait for the disk.

        Raises:
            WouldWait: Call `lookups.make_ready` on a pool thread first.
            OffsetOutOfRange: Outside [log start, log end].
            OffsetIsRemote: At or above the log start, but below the local one.
            LogIsTruncated: A pool thread is cutting it.
            KafkaStorageError: The disk failed.
        """
        self.lease.refuse_read()
        log_end, start = self.log_end_offset, self.log_start_offset
        end = log_end if end_offset is None else end_offset
        if offset > log_end or offset < start:
            raise OffsetOutOfRange(asked=offset, start=start, end=log_end)
        local_start = self.segments.bases[0]
        if offset < local_start:
            raise OffsetIsRemote(asked=offset, log_start=start, local_start=local_start)
        if self.health.failure is not None:
            self.health.refuse()
        if offset >= end or max_bytes < 0:
            return LogRead([], 0, -1, offset)
        try:
            return self.segments.find(
                offset, max_bytes, end, min_one_batch=min_one_batch, may_wait=may_wait
            )
        except OSError as error:
            self.health.fail(error)

    def note_damage(self) -> None:
        """Make the next start read this log whole."""
        self.has_damage = True

    def aborted_transactions(
        self, start: int, end: int, *, may_wait: bool = True
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that overlap [start, end).

        Raises:
            WouldWait: The answer needs the disk, without `may_wait`.
            CorruptFileError: A transaction index was changed since the log was opened.
            LogIsTruncated: A pool thread is cutting the log.
            KafkaStorageError: The disk failed.
        """
        self.lease.refuse_read()
        aborted = self.segments.aborted
        if not aborted:
            return []
        first = self.segments.bases[self.segments.index_of(start)]
        segments = aborted.from_segment(first)
        if not segments:
            return []
        try:
            return aborted.overlapping(segments, start, end, may_wait=may_wait)
        except OSError as error:
            self.health.fail(error)

    # -- flush ----------------------------------------------------------------------------------

    @property
    def is_flush_due(self) -> bool:
        """True if `flush.messages` records are not fsynced (the caller flushes)."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def flush_if_due(self, now_ms: int) -> bool:
        """True if `flush.ms` has passed since the first unflushed append (the caller flushes).

        True only once: until that flush has ended, no other is wanted.
        """
        since = self._unflushed_since_ms
        if since is None or self._is_flush_asked or now_ms - since < self.config.flush_ms:
            return False
        self._is_flush_asked = True
        return True

    def flush(self, up_to: int | None = None) -> None:
        """Fsync everything below `up_to` (default: log end), and raise the recovery point to it.

        May run on a pool thread, several at a time, while the loop appends, rolls and truncates. On
        return everything below `up_to` that is still in the log survives a power cut.

        Raises:
            LogClosed: The log was closed meanwhile.
            KafkaStorageError: The disk failed.
        """
        if self.health.failure is not None:
            self.health.refuse()
        self.producers.write_due()
        try:
            self._flush(up_to)
        finally:
            self._is_flush_asked = False
        if self.recovery_point >= self.log_end_offset:
            self._unflushed_since_ms = None

    def _flush(self, up_to: int | None) -> None:
        while True:
            truncations = self._truncations
            # Before the segments are listed: later appends may be in a new one.
            end = self.log_end_offset
            target = end if up_to is None else min(up_to, end)
            self.segments.on_a_copy(partial(self._fsync, target=target))
            with self._marks:
                if self._is_truncating:
                    break  # the end that was read is about to go; a later flush raises it
                if truncations == self._truncations:
                    self.recovery_point = max(self.recovery_point, target)
                    break

    def _fsync(self, segments: list[LogSegment], target: int) -> None:
        """Fsync everything not yet safe below `target` (exclusive)."""
        start, version = self.recovery_point, self.epoch_file.version
        names_are_new = fsync_between(segments, start, target)
        if version != self.epoch_file.durable_version:
            version = self.epoch_file.write_due()
            self.epoch_file.fsync()
            names_are_new = True
        if names_are_new:
            self.disk.fsync_path(self.directory)
        self.epoch_file.fsynced(version)

    # -- what a truncation changes ----------------------------------------------------------------

    def lower_marks(self, end: int) -> None:
        """Lower all marks before files change.

        Nothing above `end` (exclusive) is safe or committed.

        Raises:
            OSError: The disk failed.
        """
        with self._marks:
            self._truncations += 1
            self._is_truncating = True
            self.recovery_point = min(self.recovery_point, end)
        self.high_watermark = min(self.high_watermark, end)
        self._hooks.before_truncation(end)

    def move_log_start(self, offset: int) -> None:
        """Move the log start, up or down, and have it made durable."""
        self.log_start_offset = offset
        self._hooks.log_start_moved()

    def end_at(self, end: int) -> None:
        """Set the log end (exclusive) after files have changed."""
        self.log_end_offset = end
        with self._marks:
            self._truncations += 1  # a flush that began before has read the former end
            self._is_truncating = False
        self.copied_through = min(self.copied_through, end - 1)
        self.segments.truncated()
        self.segments.end_at(end)

    def delete_later(self, paths: list[Path]) -> None:
        """Have renamed files unlinked after `file.delete.delay.ms`."""
        if not self.health.is_closed:
            self.delete(paths, self.config.file_delete_delay_ms)

    def delete(self, paths: list[Path], delay_ms: int = 0) -> None:
        """Have renamed files unlinked after this delay."""
        if self._hooks.delete_later is not None:
            self._hooks.delete_later(paths, delay_ms)
            return
        for path in paths:
            self.disk.unlink(path)

    # -- its end --------------------------------------------------------------------------------

    @property
    def is_offline(self) -> bool:
        """True if its disk failed."""
        return self.health.failure is not None

    def set_offline(self, error: OSError) -> None:
        """Go offline because another partition's disk access on the same directory failed."""
        self.health.set_offline(error)
        self.changed()

    def continue_from(self, old: "PartitionLog") -> None:
        """Take over the state that `old`, the log that this one copies, has in memory only."""
        self.copied_through, self.unvalidated_end = old.copied_through, old.unvalidated_end
        self.hold = old.hold

    def close(self, clean: bool = True, *, by_leaseholder: bool = False) -> None:
        """Release all files; `clean` also writes what saves the next start a recovery.

        Args:
            clean: See above.
            by_leaseholder: The caller holds the lease, and its pool thread has ended.

        Raises:
            KafkaStorageError: The disk failed: the next start must recover.
        """
        is_leased = self.lease.is_leased and not by_leaseholder
        assert not is_leased, "its thread would continue in another log's files"
        if clean and self.health.failure is None:
            try:
                self.producers.write_last(self.log_end_offset)
                self.segments.active.become_inactive()
                self.flush()
                self.producers.fsync_last()
            except OSError as error:
                self.health.fail(error)
        self.health.close()
        # From here on another log may have this name: this one must change nothing.
        self.changed = _notify_none  # a waiting partition holds the log: a cycle
        self.epoch_file.close()
        self.producers.close()
        self.cleaning.close()
        self.segments.close()


def _notify_none() -> None:
    pass
