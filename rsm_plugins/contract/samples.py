"""Made-up segments to copy, and files whose disk breaks while they are read."""

import io
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import BinaryIO

from kafka_protocol.types import EpochEntry, TopicIdPartition
from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.segment import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
)

LOG_BYTES = bytes(range(256)) * 41 + b"end"
INDEX_BYTES: Mapping[IndexType, bytes] = MappingProxyType(
    {
        IndexType.OFFSET: b"offset index " * 9,
        IndexType.TIMESTAMP: b"time index " * 7,
        IndexType.PRODUCER_SNAPSHOT: b"producer snapshot",
        IndexType.TRANSACTION: b"transaction index",
        IndexType.LEADER_EPOCH: b"0\n2\n0 0\n3 40\n",
    }
)


def segment(
    number: int = 1,
    *,
    topic: str = "orders",
    topic_id: bytes = b"T" * 16,
    partition: int = 0,
    start_offset: int = 0,
    size_bytes: int = len(LOG_BYTES),
) -> RemoteLogSegmentMetadata:
    """Metadata of a made-up segment; its id is made from `number`."""
    owner = TopicIdPartition(topic_id, partition, topic)
    return RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(owner, number.to_bytes(16, "big")),
        start_offset=start_offset,
        end_offset=start_offset + 99,
        max_timestamp_ms=1_700_000_000_000,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_100,
        segment_size_bytes=size_bytes,
        leader_epochs=(EpochEntry(0, start_offset), EpochEntry(3, start_offset + 40)),
    )


def segment_data(log: bytes = LOG_BYTES, *, transactions: bool = True) -> LogSegmentData:
    """The parts of a made-up segment, as open files."""
    return LogSegmentData(
        log=io.BytesIO(log),
        offset_index=io.BytesIO(INDEX_BYTES[IndexType.OFFSET]),
        time_index=io.BytesIO(INDEX_BYTES[IndexType.TIMESTAMP]),
        transaction_index=io.BytesIO(INDEX_BYTES[IndexType.TRANSACTION]) if transactions else None,
        producer_snapshot=io.BytesIO(INDEX_BYTES[IndexType.PRODUCER_SNAPSHOT]),
        leader_epoch_index=INDEX_BYTES[IndexType.LEADER_EPOCH],
    )


@lru_cache(maxsize=2)
def large_log(size_bytes: int) -> bytes:
    """Random bytes: parts in the wrong order, or at the wrong place, are noticed."""
    return random.Random(7).randbytes(size_bytes)


def copy(
    manager: RemoteStorageManager,
    metadata: RemoteLogSegmentMetadata,
    data: LogSegmentData | None = None,
) -> RemoteLogSegmentMetadata:
    """Copy a segment; returns its metadata for later calls, custom metadata included."""
    custom = manager.copy_log_segment_data(metadata, data or segment_data())
    return replace(metadata, state=SegmentState.COPY_SEGMENT_FINISHED, custom_metadata=custom)


def read(stream: BinaryIO) -> bytes:
    """All bytes of a stream, which is closed afterwards."""
    with stream:
        return stream.read()


class BreakingFile(io.BytesIO):
    """A file whose disk breaks after some bytes: the byte at `after` cannot be read."""

    def __init__(self, data: bytes, *, after: int) -> None:
        super().__init__(data)
        self._after = after

    def read(self, size: int | None = -1) -> bytes:
        """Bytes before the break; a read that begins at it, or asks for all, fails."""
        wanted = len(self.getbuffer()) if size is None or size < 0 else size
        left = self._left()
        if (size is None or size < 0) and wanted > left:
            raise _disk_error()
        return super().read(min(wanted, left))

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: Buffer
        """Bytes before the break."""
        return super().readinto(memoryview(buffer)[: self._left()])

    def _left(self) -> int:
        left = self._after - self.tell()
        if left <= 0:
            raise _disk_error()
        return left


def _disk_error() -> OSError:
    return OSError(5, "the disk under this file broke")
