"""One replica's log, written by the log of the broker: what a leader appends, rolls and copies."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from kafka_protocol.records.batch import HEADER_SIZE, pack_header, read_header, write_crc
from kafka_protocol.records.control import ControlType, end_transaction_batch
from kafka_protocol.records.records import NewRecord, Record, build_batch
from kafka_protocol.types import EpochEntry, TopicIdPartition
from local_log.config import LogConfig
from local_log.file_names import LOG
from local_log.log import tier_segments
from local_log.log.partition_log import PartitionLog
from local_log.log.tier_segments import ClosedSegment
from local_log.log.truncation import truncate_fully_and_start_at
from local_log.recovery.survey import OpenRequest
from rsm_plugins.segment import LogSegmentData
from runtime.disk import Disk, OpenFile

NOW_MS = 1_700_000_000_000
_YEARS_MS = 100 * 365 * 24 * 3600 * 1000
CONFIG = LogConfig(
    segment_bytes=1 << 30,
    segment_ms=_YEARS_MS,
    segment_index_bytes=1 << 20,
    index_interval_bytes=512,
    message_timestamp_after_max_ms=_YEARS_MS,
    max_message_bytes=64 << 20,
)
"""Segments are rolled by hand; indexes are dense, so that small segments can be cut."""


class Replica:
    """A log of the broker in a directory of its own.

    Attributes:
        directory: where its files are.
        first: its first offset ever, whatever was deleted since.
    """

    def __init__(self, directory: Path, partition: TopicIdPartition, *, start: int = 0) -> None:
        directory.mkdir(parents=True)
        self.directory, self.first = directory, start
        self._log = PartitionLog.open(
            OpenRequest(partition.topic_partition, directory, CONFIG, NOW_MS, is_clean=True),
            topic_id=partition.topic_id,
            disk=Disk(),
        )
        if start:
            truncate_fully_and_start_at(self._log, start)
        self._sequences: dict[int, int] = {}

    @property
    def end(self) -> int:
        """The log end (exclusive)."""
        return self._log.log_end_offset

    @property
    def chain(self) -> tuple[EpochEntry, ...]:
        """The leader epochs, from the log start on."""
        return tuple(self._log.epochs.entries())

    def append(
        self,
        records: Sequence[NewRecord],
        *,
        epoch: int,
        codec: int = 0,
        producer_id: int = -1,
        transactional: bool = False,
        append_time_ms: int | None = None,
    ) -> int:
        """Append one batch as a leader does; returns the offset of its first record."""
        stamps = "CreateTime" if append_time_ms is None else "LogAppendTime"
        self._log.set_config(replace(CONFIG, message_timestamp_type=stamps))
        sequence = -1
        if producer_id >= 0:
            sequence = self._sequences.get(producer_id, 0)
            self._sequences[producer_id] = sequence + len(records)
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        now_ms = NOW_MS if append_time_ms is None else append_time_ms
        return self._log.append_as_leader(batch, leader_epoch=epoch, now_ms=now_ms).first_offset

    def end_transaction(self, producer_id: int, kind: ControlType, *, epoch: int) -> int:
        """Append the marker that commits or aborts; returns its offset."""
        marker = end_transaction_batch(
            kind,
            base_offset=0,
            leader_epoch=epoch,
            timestamp_ms=NOW_MS,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        appended = self._log.append_as_leader(
            marker, leader_epoch=epoch, now_ms=NOW_MS, from_client=False
        )
        return appended.first_offset

    def append_compacted(
        self, records: Sequence[Record], *, epoch: int, last_offset: int, codec: int = 0
    ) -> None:
        """Append a batch that compaction has thinned out, or emptied.

        Args:
            records: those left, with their offsets; may be none.
            epoch: of the leader that wrote it.
            last_offset: inclusive; the batch keeps it, whatever was removed.
            codec: of the records.
        """
        batch = build_batch(records, base_offset=self.end, leader_epoch=epoch, codec=codec)
        header = read_header(batch)._replace(last_offset_delta=last_offset - self.end)
        batch[:HEADER_SIZE] = pack_header(header)
        write_crc(batch, 0, len(batch))
        self._log.append_batches(batch, now_ms=NOW_MS)

    def append_behind_gap(self, records: Sequence[NewRecord], *, epoch: int, first: int) -> None:
        """Append a batch at `first`, above the log end: whole batches before it are gone."""
        batch = build_batch(records, base_offset=first, leader_epoch=epoch)
        self._log.append_batches(batch, now_ms=NOW_MS)

    def take(self, batch: bytes) -> None:
        """Append a batch of another replica, as a follower does."""
        header = read_header(batch)
        if header.producer_id >= 0 and not header.is_control:
            self._sequences[header.producer_id] = header.base_sequence + header.record_count
        self._log.append_batches(batch, now_ms=NOW_MS)

    def roll(self) -> None:
        """Close the active segment."""
        self._log.roll(NOW_MS)

    def raise_start(self, offset: int) -> None:
        """Move the log start up, as DeleteRecords does; the chain is clipped."""
        self._log.update_high_watermark(self.end)
        self._log.raise_log_start(offset)
        self._log.clip_chain(offset)

    def batches(self) -> Iterator[bytes]:
        """Every batch of the log, ascending; each call begins again."""
        for segment in self._log.segments.all:
            data = segment.path(LOG).read_bytes()
            for position, header in segment.batches(0):
                yield data[position : position + header.size_bytes]

    def closed(self) -> list[ClosedSegment]:
        """Segments that may be copied, ascending."""
        return tier_segments.closed_tail(self._log, 0, len(self._log.segments.all)).segments

    def open_segment(self, base_offset: int) -> tuple[LogSegmentData, bool]:
        """The files of a closed segment as a plugin wants them, and whether it aborts nothing."""
        files = tier_segments.open_segment(self._log, base_offset)
        transactions = files.transaction_index
        data = LogSegmentData(
            log=_stream(files.log),
            offset_index=_stream(files.offset_index),
            time_index=_stream(files.time_index),
            transaction_index=None if transactions is None else _stream(transactions),
            producer_snapshot=_stream(files.producer_snapshot),
            leader_epoch_index=files.leader_epoch_index,
        )
        return data, files.txn_index_empty

    def close(self) -> None:
        """Let go of the files."""
        self._log.close()


def _stream(file: OpenFile) -> BinaryIO:
    fd, file.fd = file.fd, -1
    return io.BufferedReader(io.FileIO(fd, "rb"))
