"""Read-back of a copy: a segment counts as remote only after the store has returned it.

A plugin that ignores its store's answer reports success for a refused copy, and the broker would
then drop the only copy, the local segment. So the last byte of the log and all indexes are read
through the interface that every plugin has, and compared with the copied files. The cost is a few
small requests per segment. A plugin of our layout also reads the manifest for it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import BinaryIO

from rsm_plugins.api import RemoteObjectDamagedError, RemoteStorageError, RemoteStorageManager
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata

Registered = Callable[[str], AbstractContextManager[None]]


def read_back(
    storage: RemoteStorageManager,
    metadata: RemoteLogSegmentMetadata,
    data: LogSegmentData,
    registered: Registered,
) -> None:
    """Compare the bytes that the store returns with the copied files.

    Args:
        storage: The plugin that made the copy.
        metadata: The segment with its custom metadata, as in a reader's call.
        data: The copied files; they are read again, their positions change.
        registered: Context manager around each plugin call, with the operation's name.

    Raises:
        RemoteResourceNotFoundError: A part is not there, or not yet.
        RemoteObjectDamagedError: A part has other bytes.
        RemoteStorageError, RetriableRemoteStorageError: The store failed, or the plugin has closed
            the files.
    """
    if any(file.closed for file in data.files()):
        raise RemoteStorageError(
            "the storage plugin has closed a file of the segment that it was given, so the copy"
            " cannot be compared with it: copy_log_segment_data must leave the files of"
            " LogSegmentData open (tidemark rsm check finds that out)"
        )
    last = metadata.segment_size_bytes - 1
    data.log.seek(last)
    with registered("fetch"), storage.fetch_log_segment(metadata, last, last) as stream:
        _compare(stream.read(), data.log.read(), "the end of its log")
    for kind, source in _indexes(data).items():
        with registered("fetch_index"), storage.fetch_index(metadata, kind) as stream:
            _compare(stream.read(), source, f"its index {kind.value}")


def not_given_back(missing: str) -> RemoteStorageError:
    """The error of a copy that did not appear in time."""
    return RemoteStorageError(f"the store does not give back what was copied: {missing}")


def _indexes(data: LogSegmentData) -> dict[IndexType, bytes]:
    files = {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot,
    }
    if data.transaction_index is not None:
        files[IndexType.TRANSACTION] = data.transaction_index
    return {kind: _all_of(file) for kind, file in files.items()} | {
        IndexType.LEADER_EPOCH: bytes(data.leader_epoch_index)
    }


def _all_of(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


def _compare(found: bytes, copied: bytes, what: str) -> None:
    if found != copied:
        raise RemoteObjectDamagedError(
            f"the store gives back other bytes than were copied ({what}: {len(found)} bytes of"
            f" {len(copied)}): the plugin must fail a copy that its store has not taken whole"
        )
