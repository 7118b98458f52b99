"""Writing a log: append and roll."""

from kafka_protocol.records.batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    BatchHeader,
    patch_offset_and_epoch,
    read_header,
    set_log_append_time,
)
from local_log.config import LogConfig
from local_log.errors import CorruptMessage, UnexpectedAppendOffset
from local_log.log.append_check import check_client_batch, check_framing
from local_log.log.opened_batches import Opening, opened, opened_if_short
from local_log.log.parts import LogParts
from local_log.log.results import AppendInfo
from local_log.segment.segment import LogSegment
from runtime.disk import Buffer
from runtime.disk_errors import half_done


class LogWriter:
    """Writes one log; what comes of it is the state of the parts."""

    __slots__ = (
        "_chain",
        "_config",
        "_ends",
        "_epoch_file",
        "_flushing",
        "_health",
        "_producers",
        "_rolled",
        "_segments",
    )

    def __init__(self, parts: LogParts, config: LogConfig) -> None:
        self._config, self._rolled = config, parts.hooks.rolled
        self._health, self._ends = parts.health, parts.ends
        self._segments = parts.segments
        self._epoch_file, self._chain = parts.epoch_file, parts.epoch_file.chain
        self._producers, self._flushing = parts.producers, parts.flushing

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings."""
        self._config = config

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
        """Check one batch, give it its offsets and write it at the end.

        Args:
            batch: exactly one batch; base offset, leader epoch (and with LogAppendTime the
                timestamp) are patched in place, the rest is written as it came.
            leader_epoch: this leader's epoch.
            now_ms: wall clock.
            from_client: apply what only holds for producers (no control batches, sequences).
            opening: who opens it where the topic's settings ask for that.

        Raises:
            MustBeOpened: give it to `opening.opened` on a pool thread, and append what comes back.
            KafkaError: what is wrong with it; nothing was written.
            KafkaStorageError: the disk failed; the log takes nothing until a restart.
        """
        if self._health.failure is not None:
            self._health.refuse()
        config, ends = self._config, self._ends
        header = check_framing(batch)
        if from_client:
            check_client_batch(batch, header, config, now_ms)
            if header.producer_id >= 0:
                known = self._producers.states.check(header, ends.log_end_offset)
                if known is not None:
                    stamp = known.timestamp if config.stamps_append_time else -1
                    return AppendInfo(
                        known.first_offset, known.last_offset, stamp, ends.log_start_offset, True
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
        first = ends.log_end_offset
        last = first + header.last_offset_delta
        patch_offset_and_epoch(batch, 0, first, leader_epoch)
        self._write(batch, header, first, last, leader_epoch, now_ms)
        return AppendInfo(first, last, append_time, ends.log_start_offset)

    def append_batches(self, batches: Buffer, *, now_ms: int) -> AppendInfo:
        """Write whole batches that have their offsets and epochs already (replication, metadata).

        Offsets must ascend and start at the log end or later (compacted logs have holes).

        Raises:
            CorruptMessage: framing or checksum of a batch is wrong; nothing after the last good
                batch was written.
            UnexpectedAppendOffset: a batch does not continue the log.
            KafkaStorageError: the disk failed.
        """
        if self._health.failure is not None:
            self._health.refuse()
        ends, view = self._ends, memoryview(batches)
        first_offset, position = -1, 0
        while position < len(view):
            rest = view[position:]
            if len(rest) < HEADER_SIZE:
                raise CorruptMessage(f"{len(rest)} bytes are no record batch")
            size = read_header(rest).batch_length + LOG_OVERHEAD
            batch = rest[: max(size, HEADER_SIZE)]
            header = check_framing(batch)
            if header.base_offset < ends.log_end_offset:
                raise UnexpectedAppendOffset(
                    first_offset=header.base_offset, log_end=ends.log_end_offset
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
        return AppendInfo(first_offset, ends.log_end_offset - 1, -1, ends.log_start_offset)

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
        segments = self._segments
        size = header.batch_length + LOG_OVERHEAD
        max_timestamp = header.max_timestamp
        active = segments.active
        try:
            if active.must_roll(
                size, last, max_timestamp, now_ms, self._config.segment_bytes, segments.roll_ms
            ):
                self.roll_at(first, now_ms)
                active = segments.active
            if leader_epoch >= 0 and leader_epoch != self._chain.latest_epoch:
                self._epoch_file.assign(leader_epoch, first)
            position = active.size_bytes
            if not position:
                active.created_ms = now_ms  # an empty one does not age
            active.append(batch, size, last, max_timestamp)
            self._ends.appended(last + 1)
            segments.note_place(first, position, size)
            if header.producer_id >= 0:
                if header.attributes & CONTROL_FLAG:
                    self._end_transaction(active, batch, header._replace(base_offset=first))
                else:
                    self._producers.states.append_data(header, first)
            if self._flushing.unflushed_since_ms is None:
                self._flushing.appended(now_ms)
        except OSError as error:
            self._health.fail(error)

    def _end_transaction(self, active: LogSegment, batch: Buffer, header: BatchHeader) -> None:
        aborted = self._producers.end_transaction(header, batch)
        if aborted is not None:
            try:
                active.append_aborted(aborted)
                self._segments.aborted.noted(active)
            except OSError as error:  # the marker is in the log: recovery adds its entry
                raise half_done(error, "an aborted transaction cannot be noted") from error

    # -- roll -----------------------------------------------------------------------------------

    def roll(self, now_ms: int | None = None) -> None:
        """Close the active segment and begin a new one; nothing happens if it is empty."""
        active = self._segments.active
        try:
            if active.size_bytes:
                created_ms = active.created_ms if now_ms is None else now_ms
                self.roll_at(self._ends.log_end_offset, created_ms)
        except OSError as error:
            self._health.fail(error)

    def roll_if_due(self, now_ms: int) -> bool:
        """Close the active segment if its time is up although nothing is being appended.

        Counted from its first append, or from the last one before it was opened here, by the wall
        clock: records may carry times of long ago, and each pass would close the few that arrived
        since the last one.
        DIFFERS: Kafka rolls on append only, so the end of an idle topic is never copied.
        """
        active = self._segments.active
        if self._health.failure is not None or active.size_bytes == 0:
            return False
        if now_ms - active.created_ms <= self._segments.roll_ms:
            return False
        self.roll(now_ms)
        return True

    def roll_at(self, log_end: int, now_ms: int) -> None:
        """Close the active segment and begin a new one at the log end.

        Raises:
            OSError: the disk failed.
        """
        self._segments.roll(log_end, now_ms, self._producers.begin_segment)
        self._rolled()
