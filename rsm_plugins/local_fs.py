"""The plugin whose store is a directory: on a disk of its own, or on a network file system.

The shortest complete backend. An object is a file: written into `<key>.copying/`, fsynced, renamed
to its place, the directory fsynced. So it survives a power failure once `put` returns, and is never
visible partly written.

The first `put` makes the root, and nothing makes it again. If it is missing later, its disk or
network file system is not mounted. The same holds if the claim that was read or written last is no
longer below the root. Then no object is "not found" or "deleted already", and no copy to the bare
mount point succeeds. A tier reads its claim before its first write, and writes nothing if a claim
was there before (docs/decisions/the-claim.md). So it does not make the root of a store that is not
mounted.

Must not know: segments.
"""

import contextlib
import errno
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from crc32c import crc32c

from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    StoredObject,
)
from rsm_plugins.layout.claim_object import is_claim
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import ObjectFacts, check_key, folder_of_prefix
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.settings import Setting, boolean, text
from runtime.override import override

_CHUNK_BYTES = 1 << 20
_COPYING_SUFFIX = ".copying"
_FATAL = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
}


class LocalFsRemoteStorageManager(LayoutStorageManager):
    """Keeps remote segments under one directory."""

    SETTINGS: ClassVar[Sequence[Setting]] = (
        text(
            "dir",
            "The root of the store, made by the first write if it is missing (Kafka's"
            " LocalTieredStorage has the same key).",
            allowed="the path of a directory",
            required=True,
        ),
        boolean(
            "check.writable",
            "Refuse a directory that cannot be written; for readers alone, false.",
            default=True,
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._place = ""

    def store_place(self) -> str:
        """The resolved path; brokers on several machines must mount one file system there."""
        return self._place

    @override
    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        value = values["dir"]
        root = Path(value).absolute()
        there = next(each for each in (root, *root.parents) if os.path.lexists(each))
        if not there.is_dir():
            raise ValueError(f"rsm.config.dir={value}: allowed is the path of a directory")
        if not os.access(there, os.R_OK | os.X_OK):
            raise RemoteStorageError(f"rsm.config.dir={value} cannot be read")
        if values["check.writable"] and not os.access(there, os.W_OK):
            raise RemoteStorageError(f"rsm.config.dir={value} cannot be written")
        self._place = str(root.resolve())
        return DirectoryStore(root)


class DirectoryStore(ObjectStore):
    """Objects as files under a root."""

    def __init__(self, root: Path) -> None:
        """Open it; makes nothing."""
        self._root = root
        self._was_there = root.is_dir()
        self._claim: Path | None = None  # last seen below the root

    @override
    def put(self, key: str, source: BinaryIO) -> ObjectFacts:
        target = self._path(key)
        copying = _copying(target)
        with _as_storage_errors("copy"):
            if not self._was_there:
                _make_dirs(self._root)
                self._was_there = True
            self._check_mounted()
            _make_dirs(copying, self._root)
            facts = _write(copying, target, source)
            _remove_flat_dir(copying)
            _fsync_dir(target.parent)
        self._check_mounted()  # else it was written below the mount point
        if is_claim(key):
            self._claim = target
        return facts

    @override
    def get(self, key: str, first: int = 0, last: int | None = None) -> io.RawIOBase:
        try:
            with _as_storage_errors("fetch"):
                fd = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
        except RemoteResourceNotFoundError:
            # The claim's reader needs to get "not found".
            self._check_root() if is_claim(key) else self._check_mounted()
            raise
        if is_claim(key):
            self._claim = self._path(key)
        size = os.fstat(fd).st_size
        if first >= max(size, 1):
            os.close(fd)
            raise RemoteObjectDamagedError(f"{key} has {size} bytes, none at {first}")
        return _FileRange(fd, first, size if last is None else min(last + 1, size))

    @override
    def delete(self, keys: Sequence[str]) -> None:
        folders = dict.fromkeys(self._path(key).parent for key in keys)
        self._check_mounted()
        with _as_storage_errors("delete"):
            for key in keys:
                _remove_flat_dir(_copying(self._path(key)))
                _unlink(self._path(key))
            for folder in folders:
                with contextlib.suppress(FileNotFoundError):  # others may have emptied it, too
                    _fsync_dir(folder)
                    self._remove_empty(folder)
        if self._claim is not None and self._claim.relative_to(self._root).as_posix() in keys:
            self._claim = None
        self._check_mounted()  # else the deletion happened below the mount point

    @override
    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        self._check_mounted()
        start = folder_of_prefix(prefix)
        if start is None:
            return
        for path in _files(self._root / start):
            key = path.relative_to(self._root).as_posix()
            if not key.startswith(prefix):
                continue
            with contextlib.suppress(FileNotFoundError):  # deleted while listing
                status = path.stat()
                yield StoredObject(key, status.st_size, status.st_mtime_ns // 1_000_000)

    @override
    def close(self) -> None:
        pass

    def _check_root(self) -> None:
        self._was_there = self._was_there or self._root.is_dir()
        if self._was_there and not self._root.is_dir():
            raise RetriableRemoteStorageError(f"the root of the store is not there: {self._root}")

    def _check_mounted(self) -> None:
        self._check_root()
        if self._claim is not None and not self._claim.exists():
            raise RetriableRemoteStorageError(
                f"the claim of this broker is no longer in {self._root}: is the store mounted?"
            )

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:  # not empty, or a copy has begun in it again
                return
            folder = folder.parent


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder in the order of their keys, unfinished ones left out."""
    with _as_storage_errors("list"):
        try:
            # A folder sorts as its children's keys do: with a slash at its end.
            names = sorted(e.name + "/" * e.is_dir() for e in os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
    for name in names:
        if name.endswith(_COPYING_SUFFIX + "/"):
            continue
        if name.endswith("/"):
            yield from _files(folder / name)
        else:
            yield folder / name


def _copying(target: Path) -> Path:
    return target.with_name(target.name + _COPYING_SUFFIX)


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


def _make_dirs(path: Path, root: Path | None = None) -> None:
    """Make a directory and its parents, each fsynced in the one above; never `root`."""
    while not path.is_dir():
        if path == root:
            raise FileNotFoundError(errno.ENOENT, "the root of the store is not there", str(root))
        _make_dirs(path.parent, root)
        try:
            path.mkdir()
            _fsync_dir(path.parent)
        except FileNotFoundError:
            continue  # a deletion removed the parent: it was empty again
        except FileExistsError:
            if os.path.lexists(path) and not path.is_dir():
                error = errno.ENOTDIR
                raise NotADirectoryError(error, os.strerror(error), str(path)) from None


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

    It stays if another copy of the same id is writing into it.
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
    """Convert errors: those that may pass (no space, broken disk, stale mount) are retriable."""
    try:
        yield
    except FileNotFoundError as e:
        if doing.startswith("fetch"):
            raise RemoteResourceNotFoundError(f"{doing}: {e}") from e
        raise RetriableRemoteStorageError(f"{doing} failed: {e}") from e
    except OSError as e:
        error = RemoteStorageError if e.errno in _FATAL else RetriableRemoteStorageError
        raise error(f"{doing} failed: {e}") from e
