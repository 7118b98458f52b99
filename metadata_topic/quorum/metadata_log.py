"""The log `__cluster_metadata-0`: a partition log whose batches are metadata or control records.

It has no retention of its own: what a snapshot contains may go, nothing else. Its recovery point is
the newest snapshot, because only flushed records get into one; everything after it is checked batch
by batch when the log is opened, and cut at the first torn one.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kafka_protocol.files.meta_properties import PARTITION_METADATA, dump_partition_metadata
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.control import ControlEntry, control_batch
from kafka_protocol.types import TopicPartition
from local_log.partition_log import PartitionLog
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.quorum.batches import Batch, data_batch, read_batches
from metadata_topic.quorum.config import MetadataLogConfig
from runtime.clock import Clock
from runtime.disk import Disk

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
_logger = logging.getLogger(__name__)
_READ_BYTES: Final = 1 << 20


class BatchTooLargeError(Exception):
    """Records that do not fit in one batch."""


class MetadataLog:
    """Appends and reads batches; who leads and what is committed is decided elsewhere."""

    def __init__(self, log: PartitionLog, config: MetadataLogConfig, clock: Clock) -> None:
        self._log = log
        self._config = config
        self._clock = clock

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        config: MetadataLogConfig,
        disk: Disk,
        clock: Clock,
        recovery_point: int,
    ) -> "MetadataLog":
        """Open or begin the log in `directory`, which exists.

        Everything below `recovery_point` (exclusive end) was flushed before.

        Raises:
            OSError: the disk failed.
        """
        identity = directory / PARTITION_METADATA
        if not disk.exists(identity):
            disk.atomic_write(identity, dump_partition_metadata(METADATA_TOPIC_ID))
        log = PartitionLog.open(
            directory,
            topic_partition=METADATA_PARTITION,
            topic_id=METADATA_TOPIC_ID,
            config=config.log_config(),
            disk=disk,
            now_ms=clock.wall_ms(),
            recovery_point=recovery_point,
        )
        return cls(log, config, clock)

    @property
    def start_offset(self) -> int:
        """First offset still here."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """First offset not written yet (exclusive end)."""
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last batch; 0 for an empty log."""
        return self._log.latest_epoch or 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._log.size_bytes

    @property
    def partition_log(self) -> PartitionLog:
        """The log itself, for describing it; nobody else appends."""
        return self._log

    def append_records(
        self, records: Sequence[MetadataRecord], *, epoch: int, timestamp_ms: int
    ) -> int:
        """Append one batch of records.

        Returns:
            Its size in bytes.

        Raises:
            BatchTooLargeError: nothing was written.
            KafkaStorageError: the disk failed.
        """
        batch = data_batch(
            records, base_offset=self.end_offset, epoch=epoch, timestamp_ms=timestamp_ms
        )
        if len(batch) > self._config.max_batch_bytes:
            raise BatchTooLargeError(f"{len(records)} records make {len(batch)} bytes")
        self._log.append_batches(batch, now_ms=timestamp_ms)
        return len(batch)

    def append_decision(
        self, records: Sequence[MetadataRecord], *, epoch: int, timestamp_ms: int
    ) -> int:
        """Append records that count together or not at all.

        One batch, which is written whole or cut on the next start; what does not fit in one becomes
        a metadata transaction over several.

        Returns:
            Bytes appended.

        Raises:
            KafkaStorageError: the disk failed.
        """
        try:
            return self.append_records(records, epoch=epoch, timestamp_ms=timestamp_ms)
        except BatchTooLargeError:
            pass
        begin = [make("BeginTransactionRecord", name="large change")]
        size = self.append_records(begin, epoch=epoch, timestamp_ms=timestamp_ms)
        waiting = [list(records)]
        while waiting:
            some = waiting.pop()
            try:
                size += self.append_records(some, epoch=epoch, timestamp_ms=timestamp_ms)
            except BatchTooLargeError:
                half = len(some) // 2
                assert half > 0, "a single record is larger than a batch may be"
                waiting += [some[half:], some[:half]]
        end = [make("EndTransactionRecord")]
        return size + self.append_records(end, epoch=epoch, timestamp_ms=timestamp_ms)

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
        self._log.append_batches(batch, now_ms=timestamp_ms)

    def flush(self) -> None:
        """Make everything appended durable; may run on a pool thread."""
        self._log.flush()

    def set_high_watermark(self, offset: int) -> None:
        """Take note that everything below `offset` (exclusive) is committed."""
        self._log.high_watermark = offset

    def recover_from(self, start_offset: int) -> Iterator[Batch]:
        """Decode all batches from `start_offset` to the end; cut the log where one is missing.

        A power cut can take the end of a segment whose successor is already there: two files were
        written and neither was flushed. Opening the log cannot tell that from a compacted log's
        hole; here every offset must be present. What follows a hole was never flushed either, so
        nobody was told of it.

        Args:
            start_offset: end of the snapshot that was loaded; batches wholly below are skipped.

        Raises:
            UnknownMetadataRecordError: a record that this version cannot read.
        """
        offset = start_offset
        while offset < self.end_offset:
            data = self._log.read_bytes(offset, _READ_BYTES)
            whole = 0
            expected = offset
            for position, header in iter_batches(data):
                if header.base_offset > expected:
                    break
                whole = position + header.size_bytes
                expected = header.next_offset
            if whole == 0:
                _logger.warning("log has a hole and is cut there: offset=%d", offset)
                self._log.truncate_to(offset)
                return
            yield from read_batches(memoryview(data)[:whole])
            offset = expected

    def restart_at(self, offset: int) -> None:
        """Drop everything: a snapshot contains more than this log ever had."""
        self._log.truncate_fully_and_start_at(offset)

    def delete_before(self, offset: int) -> None:
        """Drop segments that lie wholly below `offset`, which a snapshot contains."""
        self._log.raise_log_start(min(offset, self._log.high_watermark))
        self._log.retain(self._clock.wall_ms())

    def close(self) -> None:
        """Flush and let go of the files."""
        self._log.close()
