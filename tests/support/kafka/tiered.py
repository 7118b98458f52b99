"""A storage plugin with the layout of Kafka's LocalTieredStorage: what Kafka copied is read here.

`<dir>/kafka-tiered-storage/<topic>-<partition>-<topic id>/<base offset>-<segment id>.<suffix>`, one
file for each part of a segment. Nothing tells a half copy from a whole one, as in Kafka's own
class, so this is for tests alone.
"""

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from kafka_protocol.wire.primitives import uuid_to_text
from rsm_plugins.api import RemoteResourceNotFoundError, RemoteStorageManager
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata

NAME = "tests.support.kafka.tiered:KafkaTieredStorage"
LOG_SUFFIX = ".log"
INDEX_SUFFIXES: Mapping[IndexType, str] = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
}


class KafkaTieredStorage(RemoteStorageManager):
    """Reads, writes and deletes segments where LocalTieredStorage does."""

    def configure(self, configs: Mapping[str, str]) -> None:
        self._root = Path(configs["dir"]) / "kafka-tiered-storage"

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        parts: dict[str, BinaryIO | None] = {
            LOG_SUFFIX: data.log,
            ".index": data.offset_index,
            ".timeindex": data.time_index,
            ".txnindex": data.transaction_index,
            ".snapshot": data.producer_snapshot,
            ".leader_epoch_checkpoint": io.BytesIO(data.leader_epoch_index),
        }
        for suffix, source in parts.items():
            if source is not None:
                path = self._path(metadata, suffix)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as target:
                    shutil.copyfileobj(source, target)
        return None

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        data = self._read(metadata, LOG_SUFFIX)
        past_end = len(data) if end_position is None else min(end_position + 1, len(data))
        if not 0 <= start_position < past_end:
            raise ValueError(f"positions {start_position}..{end_position} of {len(data)}")
        return io.BytesIO(data[start_position:past_end])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        return io.BytesIO(self._read(metadata, INDEX_SUFFIXES[index_type]))

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES.values()):
            self._path(metadata, suffix).unlink(missing_ok=True)

    def close(self) -> None:
        """Holds nothing open."""

    def _read(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> bytes:
        try:
            return self._path(metadata, suffix).read_bytes()
        except FileNotFoundError as e:
            raise RemoteResourceNotFoundError(str(e)) from e

    def _path(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> Path:
        owner = metadata.topic_id_partition
        folder = f"{owner.topic}-{owner.partition}-{uuid_to_text(owner.topic_id)}"
        name = f"{metadata.start_offset:020d}-{uuid_to_text(metadata.id.id)}{suffix}"
        return self._root / folder / name
