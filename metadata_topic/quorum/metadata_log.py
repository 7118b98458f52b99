"""The log `__cluster_metadata-0`: a partition log whose batches are metadata or control records.

It has no retention of its own: what a snapshot contains may go, nothing else. Everything appended
is flushed before the next segment begins and before anybody is answered, and the file
`tidemark-flushed-end` notes from time to time how far that is. Whether the end of the log is sound
was decided before it is opened, see `log_verdict`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kafka_protocol.files.meta_properties import PARTITION_METADATA, dump_partition_metadata
from kafka_protocol.records.control import ControlEntry, control_batch
from kafka_protocol.topics import CLUSTER_METADATA_TOPIC
from kafka_protocol.types import TopicPartition
from local_log.partition_log import PartitionLog
from metadata_topic.quorum.batches import note_flushed_end
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.flushed_end_file import FlushedEnd, FlushedEndFile
from runtime.clock import Clock
from runtime.disk import Buffer, Disk

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
METADATA_PARTITION: Final = TopicPartition(CLUSTER_METADATA_TOPIC, 0)


class MetadataLog:
    """Appends and reads batches; who leads and what is committed is decided elsewhere."""

    def __init__(
        self, log: PartitionLog, config: MetadataLogConfig, clock: Clock, noted: FlushedEndFile
    ) -> None:
        self._log = log
        self._config = config
        self._clock = clock
        self._file = noted
        found = noted.read()
        self._noted = 0 if found is None else found.offset
        self._noted_segment = self._newest_segment

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
        return cls(log, config, clock, FlushedEndFile(directory, disk))

    @property
    def start_offset(self) -> int:
        """First offset still here."""
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
    def partition_log(self) -> PartitionLog:
        """The log itself, for describing it; nobody else appends."""
        return self._log

    @property
    def _newest_segment(self) -> int:
        return self._log.segments[-1].base_offset

    def append(self, batches: Buffer, *, timestamp_ms: int) -> None:
        """Append whole batches, all of them into one segment.

        A segment is flushed before the next one begins, so that damage in a closed segment is never
        a torn tail; between two batches of one decision nothing is flushed, so none begins there.

        Raises:
            KafkaStorageError: the disk failed; a part may be written.
        """
        used = self._log.segments[-1].size_bytes
        if used and used + len(batches) > self._config.segment_bytes:
            self.flush()
            self._log.roll(timestamp_ms)
        self._log.append_batches(batches, now_ms=timestamp_ms)

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
        """Whether the log works and still ends at `end_offset`: a failed append left nothing."""
        return not self._log.is_offline and self._log.log_end_offset == end_offset

    def flush(self) -> int:
        """Make everything appended durable; may run on a pool thread, one at a time.

        Returns:
            The end (exclusive) of what was there when the flush began; later appends are not in it.

        Raises:
            OSError, KafkaStorageError: the disk failed.
        """
        if self.flushed_end < self.end_offset:
            self._log.flush()
        if self._newest_segment != self._noted_segment:
            self.note_flushed()
        return self.flushed_end

    def note_flushed(self) -> None:
        """Note on disk up to where the log is flushed; one at a time.

        Raises:
            OSError: the disk failed.
        """
        segment, end = self._newest_segment, self.flushed_end
        if end > self._noted:
            self._file.write(FlushedEnd(end))
            self._noted = end
        self._noted_segment = segment

    def set_high_watermark(self, offset: int) -> None:
        """Take note that everything below `offset` (exclusive) is committed."""
        self._log.high_watermark = offset

    def truncate_to(self, offset: int) -> None:
        """Drop everything at and after `offset`, the note of what was flushed first.

        Raises:
            OSError, KafkaStorageError: the disk failed.
        """
        if self._noted > offset:
            self._file.write(FlushedEnd(offset))
            self._noted = offset
        self._log.truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        """Drop everything: a snapshot that ends at `offset` replaces this log.

        The intent is on disk before the first file goes, and until the new log is there.

        Raises:
            OSError, KafkaStorageError: the disk failed.
        """
        self._file.write(FlushedEnd(min(self._noted, offset), restart_at=offset))
        self._log.truncate_fully_and_start_at(offset)
        self._log.disk.fsync_path(self._log.directory)
        self._file.write(FlushedEnd(offset))
        self._noted = offset

    def delete_before(self, offset: int) -> None:
        """Drop segments that lie wholly below `offset`, which a snapshot contains."""
        self._log.raise_log_start(min(offset, self._log.high_watermark))
        self._log.retain(self._clock.wall_ms())

    def close(self) -> None:
        """Flush, note it, and release the files."""
        self.flush()
        self.note_flushed()
        self._log.close()
