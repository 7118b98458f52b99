"""Offsets by time in remote segments: by metadata, by indexes, by one interval of the log."""

from collections.abc import Iterable

from kafka_protocol.errors import CorruptFileError, InvalidRecordError
from kafka_protocol.files import offset_index, time_index
from kafka_protocol.records.batch import has_valid_crc, iter_batches
from kafka_protocol.records.records import iter_records
from pipeline.errors import DamagedDataError, DataLossError
from pipeline.plan.live import LiveRun
from pipeline.store import from_store
from pipeline.truth.indexes import describe, read_index
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageManager,
)
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata

_READ_BYTES = 1 << 20


def first_at(
    store: RemoteStorageManager, runs: Iterable[LiveRun], start: int, time_ms: int
) -> int | None:
    """The first offset, at or above `start`, of a record that is not earlier than `time_ms`.

    Args:
        store: the plugin.
        runs: ascending.
        start: first offset that may be read.
        time_ms: ms since 1970.

    Raises:
        DataLossError, DamagedDataError, StoreUnreachableError: a segment cannot be read.
    """
    for run in runs:
        if run.last < start or run.segment.max_timestamp_ms < time_ms:
            continue
        clipped = run._replace(first=max(run.first, start))
        found = _first_in(store, clipped, time_ms)
        if found is not None:
            return found
    return None


def _first_in(store: RemoteStorageManager, run: LiveRun, time_ms: int) -> int | None:
    segment = run.segment
    times = read_index(store, segment, IndexType.TIMESTAMP)
    offsets = read_index(store, segment, IndexType.OFFSET)
    # Up to this entry's offset every record is earlier.
    before = time_index.lookup(times, segment.start_offset, time_ms - 1)
    target = max(before.offset, run.first)
    position = offset_index.lookup(offsets, segment.start_offset, target).position
    if not 0 <= position < segment.segment_size_bytes:
        raise DamagedDataError(f"{describe(segment)}: its offset index points to byte {position}")
    size = _READ_BYTES
    while position < segment.segment_size_bytes:
        data = _read(store, segment, position, size)
        end = 0
        for at, header in iter_batches(data):
            end = at + header.size_bytes
            if header.base_offset > run.last:
                return None
            if header.max_timestamp < time_ms or header.is_control:
                continue
            if not has_valid_crc(data, at, header):
                raise _damaged(segment, position + at, "wrong checksum")
            found = _first_of(segment, data, at, position + at, run, time_ms)
            if found is not None:
                return found
        if not end and position + len(data) >= segment.segment_size_bytes:
            raise _damaged(segment, position, "the last batch is cut")
        size = _READ_BYTES if end else size * 2
        position += end
    return None


def _first_of(
    segment: RemoteLogSegmentMetadata,
    data: bytes,
    at: int,
    position: int,
    run: LiveRun,
    time_ms: int,
) -> int | None:
    try:
        for record in iter_records(data, at):
            if run.first <= record.offset <= run.last and record.timestamp >= time_ms:
                return record.offset
    except (InvalidRecordError, CorruptFileError) as error:
        raise _damaged(segment, position, str(error)) from error
    return None


def _read(
    store: RemoteStorageManager, segment: RemoteLogSegmentMetadata, position: int, size: int
) -> bytes:
    def read() -> bytes:
        with store.fetch_log_segment(segment, position, position + size - 1) as stream:
            return stream.read()

    try:
        return from_store(read)
    except RemoteResourceNotFoundError as error:
        raise DataLossError(f"{describe(segment)} is not in the store: {error}") from error
    except RemoteObjectDamagedError as error:
        raise DamagedDataError(f"{describe(segment)}: {error}") from error


def _damaged(segment: RemoteLogSegmentMetadata, position: int, reason: str) -> DamagedDataError:
    return DamagedDataError(
        f"{describe(segment)}: the batch at byte {position} is damaged: {reason}"
    )
