"""The plugin whose store is a directory: a disk of its own, or a network file system.

The shortest whole example of a plugin. A segment is three files in the layout of `object_layout`.
Each is written into `<base>.copying/`, fsynced and renamed to its place, the manifest last, and
the directories are fsynced: when a copy returns it survives a power cut, and a half copy is never
readable. Reading asks for the manifest first.

Must not know: what a record batch is; which segments should exist.
"""

import contextlib
import errno
import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from crc32c import crc32c

from rsm_plugins import object_layout
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.object_layout import Manifest, ObjectFacts, ObjectNames
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata

_CHUNK_BYTES = 1 << 20
_COPYING_SUFFIX = ".copying"
_FATAL = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP}


class LocalFsRemoteStorageManager(RemoteStorageManager):
    """Keeps remote segments under one directory.

    Settings: `dir` (Kafka's LocalTieredStorage has the same key), the root; made if it is missing.
    """

    def __init__(self) -> None:
        self._root: Path | None = None

    def configure(self, configs: Mapping[str, str]) -> None:
        """See RemoteStorageManager."""
        value = configs.get("dir", "").strip()
        if not value:
            raise ValueError("rsm.config.dir is missing: allowed is the path of a directory")
        root = Path(value).absolute()
        try:
            _make_dirs(root)
        except (FileExistsError, NotADirectoryError) as e:
            raise ValueError(f"rsm.config.dir={value}: allowed is the path of a directory") from e
        except OSError as e:
            raise RemoteStorageError(f"rsm.config.dir={value} cannot be used: {e}") from e
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            raise RemoteStorageError(f"rsm.config.dir={value} cannot be written")
        self._root = root

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        """See RemoteStorageManager."""
        names = self._names(metadata)
        with _as_storage_errors("copy"):
            self._copy(metadata, data, names)
        return None

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        """See RemoteStorageManager."""
        last_position = metadata.segment_size_bytes - 1 if end_position is None else end_position
        if not 0 <= start_position < metadata.segment_size_bytes or start_position > last_position:
            raise ValueError(
                f"start_position={start_position} end_position={end_position}: allowed is"
                f" 0 <= start <= end and start < {metadata.segment_size_bytes}"
            )
        names = self._names(metadata)
        with _as_storage_errors("fetch"):
            self._require_manifest(names)
            fd = os.open(self._path(names.log), os.O_RDONLY | os.O_CLOEXEC)
            try:
                end = min(last_position + 1, os.fstat(fd).st_size)
            except OSError:
                os.close(fd)
                raise
        return io.BufferedReader(_FileRange(fd, start_position, end), 1 << 16)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """See RemoteStorageManager."""
        names = self._names(metadata)
        with _as_storage_errors("fetch index"):
            self._require_manifest(names)
            with self._path(names.indexes).open("rb") as container:
                head = container.read(object_layout.INDEXES_HEADER_BYTES_MAX)
                try:
                    section = object_layout.read_indexes_header(head).get(index_type)
                    if section is None:
                        raise RemoteResourceNotFoundError(
                            f"{names.indexes} has no index of kind {index_type.value}"
                        )
                    container.seek(section.position)
                    return io.BytesIO(
                        object_layout.checked_section(section, container.read(section.length))
                    )
                except object_layout.DamagedObjectError as e:
                    raise RemoteObjectDamagedError(f"{names.indexes}: {e}") from e

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """See RemoteStorageManager."""
        names = self._names(metadata)
        folder = self._path(names.directory)
        with _as_storage_errors("delete"):
            if not folder.exists():
                return
            _unlink(self._path(names.manifest))
            _fsync_dir(folder)  # no reader may find a manifest again whose objects are gone
            _unlink(self._path(names.log))
            _unlink(self._path(names.indexes))
            _remove_flat_dir(self._path(names.base + _COPYING_SUFFIX))
            _fsync_dir(folder)
            self._remove_empty(folder)

    def close(self) -> None:
        """See RemoteStorageManager."""

    # ------------------------------------------------------------------ inside

    def _names(self, metadata: RemoteLogSegmentMetadata) -> ObjectNames:
        if metadata.custom_metadata is not None:
            # we never write any, so it was not written by us; it must not lead us anywhere
            raise RemoteStorageError(
                f"custom metadata is not ours: {metadata.custom_metadata[:100]!r}"
            )
        try:
            return object_layout.object_names(metadata)
        except object_layout.UnsafeNameError as e:
            raise RemoteStorageError(str(e)) from e

    def _path(self, key: str) -> Path:
        assert self._root is not None, "configure comes first"
        return self._root / key

    def _require_manifest(self, names: ObjectNames) -> None:
        if not self._path(names.manifest).exists():
            raise RemoteResourceNotFoundError(f"no such segment: {names.base}")

    def _copy(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, names: ObjectNames
    ) -> None:
        copying = self._path(names.base + _COPYING_SUFFIX)
        _make_dirs(copying)
        log = _write(copying, self._path(names.log), data.log)
        if log.size_bytes != metadata.segment_size_bytes:
            raise RemoteStorageError(
                f"log of {log.size_bytes} bytes where {metadata.segment_size_bytes} were"
                f" announced: {names.base}"
            )
        container = object_layout.pack_indexes(_read_indexes(data))
        indexes = _write(copying, self._path(names.indexes), io.BytesIO(container))
        _fsync_dir(
            copying.parent
        )  # the manifest must not outlive a power cut that its objects did not
        manifest = object_layout.dump_manifest(Manifest(metadata, log, indexes))
        _write(copying, self._path(names.manifest), io.BytesIO(manifest))
        _remove_flat_dir(copying)
        _fsync_dir(copying.parent)

    def _remove_empty(self, folder: Path) -> None:
        for directory in (folder, folder.parent):
            try:
                directory.rmdir()
            except OSError:  # not empty, or a copy has begun in it again
                return


class _FileRange(io.RawIOBase):
    """Bytes `[position, end)` of an open file, which it closes."""

    def __init__(self, fd: int, position: int, end: int) -> None:
        self._fd = fd
        self._position = position
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: Buffer
        view = memoryview(buffer)[: max(0, self._end - self._position)]
        if not view:
            return 0
        try:
            count = os.preadv(self._fd, [view], self._position)
        except OSError as e:
            raise RetriableRemoteStorageError(f"read failed: {e}") from e
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def _read_indexes(data: LogSegmentData) -> dict[IndexType, bytes]:
    indexes = {
        IndexType.OFFSET: _whole(data.offset_index),
        IndexType.TIMESTAMP: _whole(data.time_index),
        IndexType.PRODUCER_SNAPSHOT: _whole(data.producer_snapshot),
        IndexType.LEADER_EPOCH: bytes(data.leader_epoch_index),
    }
    if data.transaction_index is not None:
        indexes[IndexType.TRANSACTION] = _whole(data.transaction_index)
    return indexes


def _whole(source: BinaryIO) -> bytes:
    source.seek(0)
    return source.read()


def _write(copying: Path, target: Path, source: BinaryIO) -> ObjectFacts:
    """Write `source` durably to a temporary name and rename it to `target`.

    The caller fsyncs the directory.
    """
    fd, name = tempfile.mkstemp(dir=copying)
    try:
        with open(fd, "wb", buffering=0) as out:
            facts = _pump(source, out)
            os.fsync(out.fileno())
        os.rename(name, target)
    except BaseException:
        _unlink(Path(name))
        raise
    return facts


def _pump(source: BinaryIO, out: io.FileIO) -> ObjectFacts:
    source.seek(0)
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    size = crc = 0
    readinto = getattr(source, "readinto", None)
    while True:
        if readinto is not None:
            chunk = buffer[: readinto(buffer)]
        else:
            chunk = memoryview(source.read(_CHUNK_BYTES))
        if not chunk:
            return ObjectFacts(size, crc)
        crc = crc32c(chunk, crc)
        size += len(chunk)
        while chunk:
            chunk = chunk[out.write(chunk) :]


def _make_dirs(path: Path) -> None:
    """Make a directory and its parents, each made durable in the one above."""
    if path.is_dir():
        return
    _make_dirs(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    _fsync_dir(path.parent)


def _fsync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def _remove_flat_dir(path: Path) -> None:
    """Remove a directory of files.

    Another copy of the same id may be writing into it: then it stays.
    """
    try:
        for name in os.listdir(path):
            _unlink(path / name)
        path.rmdir()
    except FileNotFoundError:
        return
    except OSError as e:
        if e.errno != errno.ENOTEMPTY:
            raise


@contextlib.contextmanager
def _as_storage_errors(doing: str) -> Iterator[None]:
    """Tell an error that will pass (no space, broken disk, stale mount) from one that will not."""
    try:
        yield
    except FileNotFoundError as e:
        if doing.startswith("fetch"):
            raise RemoteResourceNotFoundError(f"{doing}: {e}") from e
        raise RetriableRemoteStorageError(f"{doing} failed: {e}") from e
    except OSError as e:
        error = RemoteStorageError if e.errno in _FATAL else RetriableRemoteStorageError
        raise error(f"{doing} failed: {e}") from e
