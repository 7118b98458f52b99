"""Reads a segment back from the store and says what is wrong with its bytes.

Two depths. Without `deep` the plugin opens one small index, for which our layout reads the manifest
and the indexes (a small container whole, with its CRC32C) and checks both. With it everything is
read: the whole log (its CRC32C against the manifest where the plugin does that, each batch's own
CRC, its offsets inside the segment's) and every index.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from kafka_protocol.files import epoch_checkpoint, offset_index, producer_snapshot, time_index
from kafka_protocol.files.txn_index import iter_entries as aborted_transactions
from kafka_protocol.records import batch
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import INDEXES_SUFFIX, LOG_SUFFIX
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from tidemark.remote.audit import Kind

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of reading a segment.

    Attributes:
        kind: what is wrong, None where nothing is known to be.
        reason: of that; without a kind: why it could not be read.
        read_bytes: of a good segment.
    """

    kind: Kind | None = None
    reason: str = ""
    read_bytes: int = 0


class _DamagedError(Exception):
    """The bytes contradict themselves or the metadata."""


class _WrongSizeError(Exception):
    """An object's size is not what the manifest says."""


def check(
    storage: RemoteStorageManager,
    metadata: RemoteLogSegmentMetadata,
    sizes: Mapping[str, int] | None,
    *,
    deep: bool,
) -> Checked:
    """Read a FINISHED segment back; a store that fails for now is tried again.

    Args:
        storage: the plugin.
        metadata: the segment.
        sizes: of its objects, by suffix, as listed; None: not listed.
        deep: read everything.
    """
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            return Checked(read_bytes=_read(storage, metadata, sizes, deep))
        except _WrongSizeError as error:
            return Checked(Kind.SHORT, str(error))
        except (RemoteObjectDamagedError, _DamagedError) as error:
            return Checked(Kind.CORRUPT, str(error))
        except RemoteResourceNotFoundError as error:
            return Checked(Kind.MISSING, f"it could not be found when it was read: {error}")
        except RetriableRemoteStorageError as error:
            reason = str(error)
        except RemoteStorageError as error:
            return Checked(reason=str(error))
    return Checked(reason=reason)


def _read(
    storage: RemoteStorageManager,
    metadata: RemoteLogSegmentMetadata,
    sizes: Mapping[str, int] | None,
    deep: bool,
) -> int:
    epochs = _index(storage, metadata, IndexType.LEADER_EPOCH)
    _parsed("epoch checkpoint", lambda: epoch_checkpoint.parse(epochs))
    if sizes is not None and isinstance(storage, LayoutStorageManager):
        wanted = storage.manifest_sizes(metadata)[INDEXES_SUFFIX]
        if sizes[INDEXES_SUFFIX] != wanted:
            raise _WrongSizeError(
                f"{INDEXES_SUFFIX} has {sizes[INDEXES_SUFFIX]} bytes, its manifest says {wanted}"
            )
    if not deep:
        return len(epochs)
    read = len(epochs) + _read_indexes(storage, metadata)
    # a log that was listed with a wrong size is a finding already
    whole = sizes is None or sizes[LOG_SUFFIX] == metadata.segment_size_bytes
    if whole and metadata.segment_size_bytes:
        with storage.fetch_log_segment(metadata, 0) as stream:
            read += _check_log(stream, metadata)
    return read


def _read_indexes(storage: RemoteStorageManager, metadata: RemoteLogSegmentMetadata) -> int:
    offsets = _index(storage, metadata, IndexType.OFFSET)
    times = _index(storage, metadata, IndexType.TIMESTAMP)
    producers = _index(storage, metadata, IndexType.PRODUCER_SNAPSHOT)
    for name, data, size in (
        ("offset index", offsets, offset_index.ENTRY_SIZE),
        ("time index", times, time_index.ENTRY_SIZE),
    ):
        if len(data) % size:
            raise _DamagedError(f"{name}: {len(data)} bytes are no whole number of entries")
    base = metadata.start_offset
    places = list(offset_index.iter_entries(offsets, base))
    if any(one.offset > metadata.end_offset for one in places):
        raise _DamagedError("offset index: an offset beyond the segment's end")
    if any(one.position >= metadata.segment_size_bytes for one in places):
        raise _DamagedError("offset index: a position beyond the log's end")
    if producers:
        _parsed("producer snapshot", lambda: producer_snapshot.check(producers))
    try:
        aborted = _index(storage, metadata, IndexType.TRANSACTION)
    except RemoteResourceNotFoundError:
        aborted = b""
    _parsed("transaction index", lambda: list(aborted_transactions(aborted)))
    return len(offsets) + len(times) + len(producers) + len(aborted)


def _check_log(stream: BinaryIO, metadata: RemoteLogSegmentMetadata) -> int:
    """Check every batch of a log.

    Raises:
        _DamagedError: says where.
    """
    position, previous = 0, metadata.start_offset - 1
    for data in _batches(stream, metadata.segment_size_bytes):
        header = batch.read_header(data)
        where = f"batch at position {position}"
        if header.magic != batch.MAGIC or not batch.has_valid_crc(data, 0, header):
            raise _DamagedError(f"{where}: its checksum is wrong")
        if header.base_offset <= previous:
            raise _DamagedError(
                f"{where}: it begins with offset {header.base_offset}, {previous + 1} is due"
            )
        if header.last_offset > metadata.end_offset:
            raise _DamagedError(
                f"{where}: it ends with offset {header.last_offset}, the segment with"
                f" {metadata.end_offset}"
            )
        previous = header.last_offset
        position += len(data)
    if position != metadata.segment_size_bytes:
        raise _DamagedError(f"{position} bytes, the metadata says {metadata.segment_size_bytes}")
    return position


def _batches(stream: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    """The batches of a log one by one, each whole.

    Raises:
        _DamagedError: the last one is cut, or a length cannot be.
    """
    while True:
        head = _exactly(stream, batch.LOG_OVERHEAD)
        if not head:
            return
        length = int.from_bytes(head[8:12], "big") if len(head) == batch.LOG_OVERHEAD else 0
        if not batch.HEADER_SIZE - batch.LOG_OVERHEAD <= length <= size_bytes:
            raise _DamagedError(f"a batch of {length} bytes cannot be")
        body = _exactly(stream, length)
        if len(body) != length:
            raise _DamagedError("its last batch is cut")
        yield head + body


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    while data and len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            break
        data += more
    return data


def _index(
    storage: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, kind: IndexType
) -> bytes:
    with storage.fetch_index(metadata, kind) as stream:
        return stream.read()


def _parsed(name: str, parse: Callable[[], object]) -> None:
    try:
        parse()
    except ValueError as error:
        raise _DamagedError(f"{name}: {error}") from error
