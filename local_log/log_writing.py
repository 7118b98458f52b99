"""Writing a log: append, roll, flush."""

from errno import ENOMEM
from functools import partial

from kafka_protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    patch_offset_and_epoch,
    read_header,
    set_log_append_time,
)
from local_log.append_check import check_client_batch, check_framing
from local_log.errors import CorruptMessage, UnexpectedAppendOffset
from local_log.log_reading import LogReader
from local_log.log_results import AppendInfo
from local_log.recompression import recompressed, wanted_codec
from local_log.segment import LogSegment
from local_log.segment_files import EPOCH_CHECKPOINT, SEGMENT_SUFFIXES, path_of
from local_log.transactions import note_batch
from runtime.disk import Buffer
from runtime.disk_errors import half_done

_RECENT_BATCHES = 512
_LENGTH_OVERHEAD = 12
_CONTROL, _LOG_APPEND_TIME = 0x20, 0x08


class LogWriter(LogReader):
    """A log that can be written."""

    __slots__ = ()

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
                    stamp = known.timestamp if config.stamps_append_time else -1
                    return AppendInfo(
                        known.first_offset, known.last_offset, stamp, self.log_start_offset, True
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
                self._less_recent = recent
                recent = self._recent = {}
            recent[first] = (position, size)
            if header.producer_id >= 0:
                if header.attributes & _CONTROL:
                    self._end_transaction(active, batch, header._replace(base_offset=first))
                else:
                    self.producers.append_data(header, first)
            if self._unflushed_since_ms is None:
                self._unflushed_since_ms = now_ms
            if last + 1 - self.recovery_point >= config.flush_messages:
                self.flush()
        except OSError as error:
            self.fail(error)

    def _end_transaction(self, active: LogSegment, batch: Buffer, header: BatchHeader) -> None:
        aborted = note_batch(self.producers, header, lambda: bytes(batch))
        if aborted is not None:
            try:
                active.append_aborted(aborted)
            except OSError as error:  # the marker is in the log: recovery adds its entry
                raise half_done(error, "an aborted transaction cannot be noted") from error

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        latest = self.epochs.latest_epoch
        if latest is None or epoch > latest:
            self.epochs.assign(epoch, start_offset)

    def roll(self, now_ms: int | None = None) -> None:
        """Close the active segment and begin a new one; nothing happens if it is empty."""
        try:
            if self._active.size_bytes:
                created_ms = self._active.created_ms if now_ms is None else now_ms
                self._roll(self.log_end_offset, created_ms)
        except OSError as error:
            self.fail(error)

    def roll_if_due(self, now_ms: int) -> bool:
        """Close the active segment if its time is up although nothing is being appended.

        Counted from when the segment was begun or opened here, by the wall clock: records may carry
        times of long ago, and each pass would close the few that arrived since the last one.
        DIFFERS: Kafka rolls on append only, so the end of an idle topic is never copied.
        """
        active = self._active
        if self._failure is not None or active.size_bytes == 0:
            return False
        due_ms = self.config.segment_ms - self._jitter_ms
        if now_ms - active.created_ms <= due_ms:
            return False
        self.roll(now_ms)
        return True

    def _roll(self, base_offset: int, now_ms: int) -> None:
        self._active.prepare_inactive()
        try:
            segment = LogSegment.create(
                self._disk,
                self.directory,
                base_offset,
                index_bytes=self.config.segment_index_bytes,
                now_ms=now_ms,
            )
            self.producers.end_offset = base_offset
            self.snapshots.write(base_offset, self.producers.dump())
        except OSError:
            # The old segment goes on, perhaps past this offset: no file may begin there.
            for suffix in SEGMENT_SUFFIXES:
                self._disk.unlink(path_of(self.directory, base_offset, suffix))
            raise
        try:
            self._active.become_inactive()
        except OSError as error:
            raise half_done(error, "a segment cannot be closed") from error
        segment.index_interval_bytes = self.config.index_interval_bytes
        self._segments.append(segment)
        self._bases.append(base_offset)
        self._active = segment
        self._forget_recent()
        self._set_jitter()
        self._hooks.rolled()

    def flush(self, up_to: int | None = None) -> None:
        """Fsync everything below `up_to` (default: the log end) and move the recovery point there.

        May run on a pool thread, several at a time. When it returns, everything below `up_to` that
        is still in the log survives a power cut.

        Raises:
            LogClosed: the log was closed meanwhile.
            KafkaStorageError: the disk failed.
        """
        if self._failure is not None:
            self._refuse()
        while True:
            truncations = self._truncations
            # Before the segments are looked at: what is appended meanwhile may lie in a new one.
            end = self.log_end_offset
            target = end if up_to is None else min(up_to, end)
            self._beside_the_loop(partial(self._fsync, target=target))
            with self._marks:
                if truncations == self._truncations:
                    self.recovery_point = max(self.recovery_point, target)
                    break
        if self.recovery_point >= self.log_end_offset:
            self._unflushed_since_ms = None

    def _fsync(self, segments: list[LogSegment], target: int) -> None:
        """Fsync what is not known to be safe below `target` (exclusive)."""
        start, version = self.recovery_point, self._epochs_version
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
        if version != self._epochs_flushed:
            # Its file is as new as the chain; this thread must not write it again, the loop does.
            self._disk.fsync_path(self.directory / EPOCH_CHECKPOINT)
            names_are_new = True
        if names_are_new:
            self._disk.fsync_path(self.directory)
        self._epochs_flushed = version

    def flush_if_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` has passed since the first unflushed append (the caller flushes)."""
        since = self._unflushed_since_ms
        return since is not None and now_ms - since >= self.config.flush_ms
