"""Objects in any store that fsspec supports: `s3://`, `gs://`, `az://`, `sftp://`, `file://` ...

An object is one file below the URL. If the store shows an object only when it is complete (object
stores), `put` writes it directly. If a file is visible while it grows (disks, SFTP, HDFS), `put`
writes it to a random name in `<key>.copying/`, and then moves it to its place. None of fsspec's
caches is used: not of instances, not of listings, not of blocks.

A request with an error that may pass is repeated. A request reads one piece, lists one directory or
deletes one key. A `put` is repeated as a whole, with a new temporary name. So no attempt builds on
the remains of another one. The remains of attempts that hung are removed after a later
one has succeeded. A move that hung is not repeated: it may be carried out later, after another
attempt.

Must not know: segments; any one library, except in a few lines for `s3` and `file`.
"""

import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, TypeVar

from crc32c import crc32c

from kafka_protocol.errors import TidemarkError
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    StoredObject,
)
from rsm_plugins.fsspec.calls import BoundedCalls, CallLimits
from rsm_plugins.fsspec.errors import Meaning, hidden, meaning_of, passes, s3_code, shown
from rsm_plugins.fsspec.listing import files_below, modified_ms
from rsm_plugins.fsspec.source import WRITE_BYTES, SourceError, chunks, read_head, write_all
from rsm_plugins.layout.objects import ObjectFacts, check_key, folder_of_prefix
from rsm_plugins.layout.piece_stream import PieceStream
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.retries import Retries
from runtime.override import override

log = logging.getLogger(__name__)

T = TypeVar("T")

COPYING_SUFFIX = ".copying"
_BYTES_PER_CALL_TIMEOUT = 8 << 20
_PART_BYTES = 8 << 20
_DIRECT_PIECE_BYTES = 8 << 20
_FILE_PIECE_BYTES = 4 << 20
_RACES_MAX = 3
LOCAL = frozenset({"file", "local"})
_S3 = frozenset({"s3", "s3a"})
_NO_UPLOAD_LISTINGS = frozenset(
    {"AccessDenied", "MethodNotAllowed", "NotImplemented", "501", "405"}
)
SHOWN_WHOLE = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "obs", "memory"}
)
"""Protocols whose stores show an object only when it is complete."""
_RMDIR_KEEPS_FILES = LOCAL | {"sftp", "ssh", "smb", "hdfs", "viewfs", "webhdfs"}
"""Protocols whose `rmdir` refuses a directory that is not empty; pyarrow's removes all in it."""


class _MoveHangsError(RetriableRemoteStorageError):
    """A file may get its name at any time from now on; no other call may write to that name."""


def _may_pass(error: BaseException) -> bool:
    """True if the same request is worth a repetition, and may be repeated."""
    if not isinstance(error, TidemarkError):
        return passes(error)
    is_retriable = isinstance(error, RetriableRemoteStorageError)
    return is_retriable and not isinstance(error, _MoveHangsError)


class FsspecStore(ObjectStore):
    """Objects as files of one fsspec file system, below a root."""

    def __init__(
        self,
        fs: Any,
        root: str,
        *,
        rename: bool,
        limits: CallLimits,
        secret_values: Sequence[str] = (),
        file_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Make it.

        Args:
            fs: The file system.
            root: Path of the root in it.
            rename: Write under a temporary name and move.
            limits: Of calls and requests.
            secret_values: Never shown in a message.
            file_options: Arguments of `open` for each new file.
        """
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        self.fs = fs
        self._root = root.rstrip("/")
        self._rename = rename
        self._secrets = secret_values
        self.file_options = dict(file_options or {})
        self._is_local = bool(protocols & LOCAL)
        self._has_upload_listings = bool(protocols & _S3)
        self._in_memory = "memory" in protocols
        self._removes_empty = rename and bool(protocols & _RMDIR_KEEPS_FILES)
        self._request_timeout_s = limits.request_timeout_s
        self._retries = Retries(
            _may_pass,
            timeout_s=limits.request_timeout_s,
            attempts=limits.attempts,
            shown=lambda e: shown(e, secret_values),
        )
        self.calls = BoundedCalls(
            fs, limits.timeout_s, threads=not (self._is_local or self._in_memory)
        )

    def check(self) -> None:
        """Find the root, or make it.

        A store that does not answer now may answer later: that is a warning.

        Raises:
            RemoteStorageError: The store cannot be used with these settings.
        """
        try:
            if self._rename:
                self.calls.method("makedirs", self._root, exist_ok=True)
                self._settle(self._root, top="/")
            elif not self._in_memory:
                bucket = self._root.strip("/").partition("/")[0]
                self.calls.method("info", bucket)
        except Exception as e:  # noqa: BLE001 - libraries behind fsspec have no common error
            error = self._storage_error(e, "open", self._root, RemoteStorageError)
            if not isinstance(error, RetriableRemoteStorageError):
                self.close()
                raise error from None
            log.warning("the store does not answer yet: %s", error)

    @override
    def put(self, key: str, source: BinaryIO) -> ObjectFacts:
        target = self._path(key)
        self._check_local_root()
        size = source.seek(0, os.SEEK_END)
        left_behind: list[str] = []

        def attempt() -> ObjectFacts:
            head = read_head(source, self._part_bytes())
            if self._rename:
                facts = self._put_by_rename(target, head, source, left_behind)
            else:
                facts = self._put_directly(target, head, source)
            held = int(self.calls.method("info", target)["size"])
            if held != facts.size_bytes:
                raise RetriableRemoteStorageError(
                    f"copy of {key}: the store holds {held} bytes of {facts.size_bytes}"
                )
            return facts

        seconds = self._request_timeout_s * (1 + size // _BYTES_PER_CALL_TIMEOUT)
        facts = self._asked("copy", key, attempt, RetriableRemoteStorageError, seconds)
        for temporary in left_behind:
            self._try_remove_temporary(temporary, target + COPYING_SUFFIX)
        return facts

    @override
    def get(self, key: str, first: int = 0, last: int | None = None) -> PieceStream:
        path = self._path(key)
        if last is None:
            last = self._size(key, path) - 1
            if first > max(last, 0):
                raise RemoteObjectDamagedError(f"{key} has {last + 1} bytes, none at {first}")
        piece_bytes = _FILE_PIECE_BYTES if self._rename else _DIRECT_PIECE_BYTES

        def fetch(begin: int, end: int) -> bytes:
            return self._piece(key, path, begin, end)

        stream = PieceStream(key, fetch, first, last + 1, piece_bytes)
        error: RemoteStorageError | None = None
        try:
            stream.fill()
            if not stream.cut:
                return stream
        except RemoteResourceNotFoundError:
            raise
        except RemoteStorageError as e:
            error = e
        # Stores differ in their errors for a range that touches the end: these errors do not count.
        size = self._size(key, path)
        if first >= size:
            raise RemoteObjectDamagedError(f"{key} has {size} bytes, none at {first}")
        if error is not None:
            raise error
        if size > last:
            raise RetriableRemoteStorageError(f"fetch of {key} ended early at {stream.position}")
        return PieceStream(key, fetch, first, size, piece_bytes)

    @override
    def delete(self, keys: Sequence[str]) -> None:
        self._check_local_root()
        for key in keys:
            request = partial(self._delete_one, self._path(key))
            self._asked("delete", key, request, RetriableRemoteStorageError)
        if self._removes_empty:
            for folder in dict.fromkeys(_parent(self._path(key)) for key in keys):
                self._settle(folder)
                self._remove_empty(folder)

    @override
    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        self._check_local_root()
        start = folder_of_prefix(prefix)
        if start is None:
            return
        folder = f"{self._root}/{start}" if start else self._root
        try:
            for path, info in files_below(self._listed, folder, COPYING_SUFFIX):
                key = path[len(self._root) + 1 :]
                if key.startswith(prefix):
                    yield StoredObject(key, int(info["size"]), modified_ms(info))
        except Exception as e:  # noqa: BLE001 - as above
            raise self._storage_error(e, "list", folder, RetriableRemoteStorageError) from None

    @override
    def close(self) -> None:
        self._retries.close()
        self.calls.close()

    # ------------------------------------------------------------------ for subclasses

    def write(self, path: str, head: bytes, source: BinaryIO) -> ObjectFacts:
        """Write `head` and the rest of `source` to a new file, durably.

        Raises:
            SourceError: `source` failed.
        """
        options = {"block_size": _PART_BYTES} if self.fs.async_impl else self.file_options
        file = self.calls.call(self.fs.open, path, "wb", **options)
        size = crc = 0
        try:
            for chunk in chunks(head, source):
                crc = crc32c(chunk, crc)
                size += len(chunk)
                self.calls.call(write_all, file, chunk)
            if self._is_local:
                file.flush()
                os.fsync(file.fileno())
            self.calls.call(file.close)
        except BaseException as e:
            self._abandon(file, hangs=isinstance(e, TimeoutError))
            raise
        return ObjectFacts(size, crc)

    def move(self, temporary: str, target: str) -> None:
        """Rename a file, in place of any other."""
        self.calls.method("mv", temporary, target)

    def release(self, temporary: str) -> None:
        """Take the lease of a temporary file, before its deletion, from a perhaps dead writer."""

    def remove(self, path: str) -> None:
        """Remove a file; succeeds if it is not there."""
        try:
            self.calls.method("rm_file", path)
        except Exception as e:
            if meaning_of(e) is not Meaning.NOT_FOUND:
                raise

    def remove_folder(self, folder: str) -> bool:
        """Remove a directory if it is empty; one that another caller uses stays."""
        if not self._removes_empty:
            return False
        try:
            self.calls.method("rmdir", folder)
        except Exception:  # noqa: BLE001 - not empty, gone already, or the store is down: all fine
            return False
        return True

    # ------------------------------------------------------------------ inside: put

    def _part_bytes(self) -> int:
        if self._in_memory:
            return sys.maxsize
        return WRITE_BYTES if self._rename else _PART_BYTES

    def _put_directly(self, target: str, head: bytes, source: BinaryIO) -> ObjectFacts:
        if len(head) < self._part_bytes():
            self.calls.method("pipe_file", target, head)
            return ObjectFacts(len(head), crc32c(head))
        return self.write(target, head, source)

    def _put_by_rename(
        self, target: str, head: bytes, source: BinaryIO, left_behind: list[str]
    ) -> ObjectFacts:
        copying = target + COPYING_SUFFIX
        temporary = f"{copying}/{secrets.token_hex(8)}"
        try:
            facts = self._write_temporary(copying, temporary, head, source)
            self._move_once(temporary, target)
        except BaseException as e:
            # A store that hangs would hang here, too.
            if isinstance(e, (TimeoutError, _MoveHangsError)):
                left_behind.append(temporary)
            else:
                self._try_remove_temporary(temporary, copying)
            raise
        self.remove_folder(copying)
        self._settle(_parent(target))
        return facts

    def _move_once(self, temporary: str, target: str) -> None:
        """Move; if that hangs, no later attempt may follow.

        Some stores move in several steps: they remove the file at the target name, or write to it.
        Such a step, carried out late, would destroy the file of a later attempt that was reported
        as written.
        """
        try:
            self.move(temporary, target)
        except TimeoutError as e:
            shown_target = hidden(target, self._secrets)
            raise _MoveHangsError(f"move to {shown_target}: {shown(e, self._secrets)}") from e

    def _write_temporary(
        self, copying: str, temporary: str, head: bytes, source: BinaryIO
    ) -> ObjectFacts:
        for _ in range(_RACES_MAX):
            # The deletion of a partition's last segment removes its empty directory.
            with contextlib.suppress(FileNotFoundError):
                self.calls.method("makedirs", copying, exist_ok=True)
                return self.write(temporary, head, source)
            source.seek(len(head))
        raise RetriableRemoteStorageError(f"the directory of {temporary} went again and again")

    def _try_remove_temporary(self, temporary: str, copying: str) -> None:
        with contextlib.suppress(Exception):  # the error that led here is reported
            self.release(temporary)
            self.remove(temporary)
        self.remove_folder(copying)

    def _abandon(self, file: Any, *, hangs: bool) -> None:
        """Close a partly written file so that none of it becomes visible."""
        # An AbstractBufferedFile publishes its content when it is closed, also by its finalizer.
        publishes = hasattr(file, "_upload_chunk")
        if not hangs:  # else this would hang, too
            with contextlib.suppress(Exception):  # the error that led here is reported
                self.calls.call(file.discard if publishes else file.close)
        if publishes:
            file.closed = True

    # ------------------------------------------------------------------ inside: get

    def _piece(self, key: str, path: str, begin: int, end: int) -> bytes:
        # The files of some file systems read ahead.
        uncached = {} if self.fs.async_impl or self._in_memory else {"cache_type": "none"}
        request = partial(self.calls.method, "cat_file", path, start=begin, end=end, **uncached)
        piece = bytes(self._asked("fetch", key, request, RemoteResourceNotFoundError) or b"")
        if begin and len(piece) > end - begin:
            # All of the object, it seems: these are not the requested bytes.
            raise RemoteStorageError(
                f"fetch of {key}: {len(piece)} bytes came where [{begin}, {end}) were asked for:"
                " the store does not serve ranges"
            )
        return piece[: end - begin]

    def _size(self, key: str, path: str) -> int:
        request = partial(self.calls.method, "info", path)
        info = self._asked("fetch", key, request, RemoteResourceNotFoundError)
        if info.get("type") == "directory":
            raise RemoteResourceNotFoundError(f"fetch of {key}: it is a directory")
        return int(info["size"])

    # ------------------------------------------------------------------ inside: delete

    def _delete_one(self, path: str) -> None:
        if self._rename:
            self._remove_copying(path)
        elif self._has_upload_listings:
            self._abort_uploads(path)
        self.remove(path)

    def _remove_copying(self, target: str) -> None:
        copying = target + COPYING_SUFFIX
        try:
            left = self.calls.method("ls", copying, detail=True)
        except Exception as e:
            if meaning_of(e) is Meaning.NOT_FOUND:
                return
            raise
        for info in left:
            self.release(info["name"])
            self.remove(info["name"])
        self.remove_folder(copying)

    def _remove_empty(self, folder: str) -> None:
        while folder != self._root and self.remove_folder(folder):
            folder = _parent(folder)

    def _settle(self, folder: str, top: str = "") -> None:
        """Fsync changed local directories, up to `top` or the root."""
        top = top or self._root
        while self._is_local and len(folder) >= len(top):
            # Others may have removed it; directories above the root may be closed to us.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            folder = _parent(folder)

    def _abort_uploads(self, path: str) -> None:
        """Abort the open multipart uploads of a key, whose writers are dead."""
        bucket, key, _ = self.fs.split_path(path)
        try:
            answer = self.calls.method(
                "call_s3", "list_multipart_uploads", Bucket=bucket, Prefix=key
            )
        except Exception as e:
            if s3_code(e) not in _NO_UPLOAD_LISTINGS:
                raise
            log.warning(
                "unfinished uploads cannot be listed: give the bucket a lifecycle rule that aborts"
                " them: %s",
                shown(e, self._secrets),
            )
            self._has_upload_listings = False
            return
        for upload in answer.get("Uploads", ()):
            if upload["Key"] == key:
                self.calls.method("abort_mpu", bucket, key, upload["UploadId"])

    # ------------------------------------------------------------------ inside: list, names

    def _listed(self, folder: str) -> Sequence[Mapping[str, Any]]:
        request = partial(self.calls.method, "ls", folder, detail=True)
        infos: Sequence[Mapping[str, Any]] = self._repeated(f"list of {folder}", request)
        return infos

    # ------------------------------------------------------------------ inside: requests

    def _asked(
        self,
        doing: str,
        key: str,
        request: Callable[[], T],
        if_not_found: type[RemoteStorageError],
        seconds: float | None = None,
    ) -> T:
        """Make a request, repeat it where that may help, and convert its error."""
        try:
            return self._repeated(f"{doing} of {key}", request, seconds)
        except SourceError as e:
            raise e.error from None
        except Exception as e:  # noqa: BLE001 - as above
            raise self._storage_error(e, doing, key, if_not_found) from None

    def _repeated(self, what: str, request: Callable[[], T], seconds: float | None = None) -> T:
        seconds = seconds or self._request_timeout_s
        with self.calls.together_within(seconds):
            return self._retries.call(what, request, timeout_s=seconds)

    def _check_local_root(self) -> None:
        # `check` made it: if it is missing now, a disk is not mounted, and no object is absent.
        if self._is_local and not os.path.isdir(self._root):
            raise RetriableRemoteStorageError(f"the root of the store is not there: {self._root}")

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _storage_error(
        self, error: Exception, doing: str, what: str, if_not_found: type[RemoteStorageError]
    ) -> RemoteStorageError:
        if isinstance(error, RemoteStorageError):
            return error
        kinds: Mapping[Meaning, type[RemoteStorageError]] = {
            Meaning.NOT_FOUND: if_not_found,
            Meaning.FATAL: RemoteStorageError,
            Meaning.RETRIABLE: RetriableRemoteStorageError,
        }
        meaning = meaning_of(error)
        if meaning is Meaning.NOT_FOUND and doing == "fetch":
            self._check_local_root()
        message = f"{doing} of {hidden(what, self._secrets)}: {shown(error, self._secrets)}"
        kind = kinds[meaning]
        return kind(message)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
