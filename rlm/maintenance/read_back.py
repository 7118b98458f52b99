"""Reading a copy back: a segment counts as remote when the store gives it back.

A plugin that does not look at its store's answer says "copied" of what the store has refused, and
the broker would drop the local segment, which is the only one. So the last byte of the log and all
indexes are read, through the interface that every plugin has, and compared with the files that were
copied: a few small requests per segment. A plugin of our layout reads the manifest for that, too.
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
    """Compare what the store gives back with what was to be copied.

    Args:
        storage: the plugin that has copied.
        metadata: the segment with its custom metadata, as a reader will name it.
        data: the files that were copied; they are read again, their positions change.
        registered: put around each call of the plugin, with the operation's name.

    Raises:
        RemoteResourceNotFoundError: something is not there, or not yet.
        RemoteObjectDamagedError: something else is there.
        RemoteStorageError, RetriableRemoteStorageError: the store failed, or the plugin has closed
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
    """Make the error of a copy that is waited for no longer."""
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
