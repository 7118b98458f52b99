"""The one place that touches files.

Files are held by `OpenFile`, which closes when nobody refers to it any more: a region handed to the
network stays readable although its segment was deleted in the meantime. Every write either happened
as a whole or raises `OSError`; what an error leaves behind is for recovery to validate.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import struct
from collections.abc import Callable
from pathlib import Path

from kafka_protocol.errors import TidemarkError

Buffer = bytes | bytearray | memoryview

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PAGE_BYTES = mmap.PAGESIZE
_SYS_CACHESTAT = 451  # the same number on every architecture (Linux 6.5 and later)
_PROBE_BYTES = 1 << 20


def raise_file_limit() -> int:
    """Let this process hold as many files open as it may; returns how many.

    The limit that a shell gives (often 1,024) is meant for programs that use `select`; every open
    segment and every connection counts. A JVM does the same by itself.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class LockHeldError(TidemarkError):
    """Another process holds the lock file.

    Attributes:
        holder: that process, "another process" where the system does not show its pid.
    """

    def __init__(self, path: Path, pid: int = 0) -> None:
        self.holder = f"another process, pid {pid}" if pid > 0 else "another process"
        super().__init__(f"{path} is locked by {self.holder}")
        self.path = path


class OpenFile:
    """An open descriptor that closes itself at the end of its life."""

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: Path | str) -> None:
        self.fd = fd
        self.path = path

    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self.fd).st_size

    def fileno(self) -> int:
        """The descriptor, for whoever takes anything with one."""
        return self.fd

    def close(self) -> None:
        """Close now; only for files nobody else can still hold."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __repr__(self) -> str:
        return f"OpenFile({self.path}, fd={self.fd})"


class FileRegion:
    """A stretch of a file that will be sent as it is; never copied into the heap."""

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: OpenFile, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    def __repr__(self) -> str:
        return f"FileRegion({self.file.path}, {self.position}, {self.size_bytes})"


class Lock:
    """An exclusive lock on a file, held until released or the process ends."""

    __slots__ = ("_file",)

    def __init__(self, file: OpenFile) -> None:
        self._file = file

    def release(self) -> None:
        """Give the lock up; the file stays."""
        self._file.close()


class _CacheStatRange(ctypes.Structure):
    _fields_ = (("off", ctypes.c_uint64), ("len", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cache", "dirty", "wb", "ev", "rev"))


class Disk:
    """Real files."""

    def __init__(self) -> None:
        self._syscall: ctypes._NamedFuncPointer | None = None
        self._probe: bytearray | None = None

    # -- open -----------------------------------------------------------------------------------

    def open_read(self, path: Path) -> OpenFile:
        """Open an existing file for reading.

        Raises:
            FileNotFoundError: it is not there.
        """
        return OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)

    def open_append(self, path: Path) -> OpenFile:
        """Open or create a file for reading and for appending at its end."""
        return OpenFile(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644), path
        )

    def open_write(self, path: Path) -> OpenFile:
        """Open or create a file for reading and for writing at given positions."""
        return OpenFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), path)

    def open_empty(self, path: Path) -> OpenFile:
        """Open a file for writing at given positions, created or emptied."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return OpenFile(os.open(path, flags, 0o644), path)

    def memfd(self, name: str) -> OpenFile:
        """Make a file that lives in memory only and can be passed to another process."""
        return OpenFile(os.memfd_create(name, os.MFD_CLOEXEC), name)

    def lock(self, path: Path) -> Lock:
        """Take the lock file at `path`, creating it if needed.

        Raises:
            LockHeldError: somebody else holds it (it is not waited for).
        """
        file = self.open_write(path)
        try:
            fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # lockf does not exclude a second lock of the same process; flock does.
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise LockHeldError(path, _holder(file)) from None
            raise
        return Lock(file)

    # -- read -----------------------------------------------------------------------------------

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        """Read up to `size` bytes from `position`; fewer only at the file's end."""
        try:
            data = os.pread(file.fd, size, position)
        except OSError as error:  # the kernel does not say which file
            raise OSError(error.errno, error.strerror, str(file.path)) from error
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(file.fd, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_resident(self, file: OpenFile, position: int, size: int) -> bytes | None:
        """As `read_at`, but None where it would wait for the disk.

        Files of which the kernel cannot tell (tmpfs, memfd) are read.
        """
        data = bytearray(size)
        try:
            got = os.preadv(file.fd, [data], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return self.read_at(file, position, size)
            raise OSError(error.errno, error.strerror, str(file.path)) from error
        if got < size and position + got < file.size():
            return None
        return bytes(data[:got])

    def read_into(self, file: OpenFile, position: int, buffer: bytearray | memoryview) -> int:
        """Fill `buffer` from `position`; say how many bytes came, fewer only at the file's end."""
        view = memoryview(buffer)
        got = 0
        while got < len(view):
            count = os.preadv(file.fd, [view[got:]], position + got)
            if count == 0:
                break
            got += count
        return got

    def read_file(self, path: Path) -> bytes:
        """Read a whole small file.

        Raises:
            FileNotFoundError: it is not there.
        """
        file = self.open_read(path)
        return self.read_at(file, 0, file.size())

    def boot_id(self) -> str:
        """Of this start of the machine; "" where the operating system tells none."""
        try:
            file = self.open_read(_BOOT_ID)
            return os.pread(file.fd, 64, 0).decode().strip()  # it has no size
        except OSError:
            return ""

    def is_resident(self, file: OpenFile, position: int, size: int) -> bool:
        """Say whether reading this region will not wait for the disk.

        Files that are memory anyway (memfd, tmpfs) count as resident.
        """
        if size <= 0:
            return True
        answer = self._cachestat(file, position, size)
        return self._probe_pages(file, position, size) if answer is None else answer

    def _cachestat(self, file: OpenFile, position: int, size: int) -> bool | None:
        """Ask the kernel in one call; None where it does not know this call."""
        if self._syscall is None:
            self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        first = position // _PAGE_BYTES
        pages = (position + size - 1) // _PAGE_BYTES - first + 1
        asked = _CacheStatRange(first * _PAGE_BYTES, pages * _PAGE_BYTES)
        seen = _CacheStat()
        result = self._syscall(
            _SYS_CACHESTAT, file.fd, ctypes.byref(asked), ctypes.byref(seen), ctypes.c_uint(0)
        )
        if result != 0:
            return True if ctypes.get_errno() == errno.EOPNOTSUPP else None
        return int(seen.cache) >= pages

    def _probe_pages(self, file: OpenFile, position: int, size: int) -> bool:
        """Read without waiting; a short answer means that a page is missing."""
        if self._probe is None:
            self._probe = bytearray(_PROBE_BYTES)
        end = position + size
        while position < end:
            view = memoryview(self._probe)[: min(_PROBE_BYTES, end - position)]
            try:
                got = os.preadv(file.fd, [view], position, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                    return True
                raise
            if got == 0:
                return True  # beyond the end: nothing to wait for
            position += got
        return True

    def send_file(self, socket_fd: int, file: OpenFile, position: int, size: int) -> int:
        """Send part of a file over a socket; say how many bytes went out, 0 at the file's end."""
        return os.sendfile(socket_fd, file.fd, position, size)

    # -- write ----------------------------------------------------------------------------------

    def append(self, file: OpenFile, data: Buffer) -> None:
        """Write all of `data` at the end of a file opened with `open_append`, without copying it.

        Raises:
            OSError: it could not be written as a whole; a part of it may be in the file.
        """
        written = os.write(file.fd, data)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                written += os.write(file.fd, view[written:])

    def write_at(self, file: OpenFile, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`."""
        written = os.pwrite(file.fd, data, position)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(file.fd, view[written:], position + written)

    def fsync(self, file: OpenFile) -> None:
        """Return when everything written so far survives a power cut."""
        os.fsync(file.fd)

    def fsync_path(self, path: Path) -> None:
        """Fsync a file or a directory by its name."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, file: OpenFile, size: int) -> None:
        """Cut or extend (with a hole of zeros) a file to `size` bytes."""
        os.ftruncate(file.fd, size)

    def atomic_write(self, path: Path, data: Buffer, *, durable: bool = True) -> None:
        """Replace a whole file so that a reader sees the old or the new content, never a part.

        Written to `<name>.tmp`, renamed over the old one; with `durable` file and directory are
        fsynced.
        """
        temporary = path.with_name(path.name + ".tmp")
        file = self.open_empty(temporary)
        self.write_at(file, 0, data)
        if durable:
            self.fsync(file)
        file.close()
        self.rename(temporary, path, durable=durable)

    def create_private(self, path: Path, data: Buffer) -> None:
        """Make a file that only its owner can read, durably.

        Raises:
            FileExistsError: it is there; it is left as it is.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = OpenFile(os.open(path, flags, 0o600), path)
        self.write_at(file, 0, data)
        self.fsync(file)
        file.close()
        self.fsync_path(path.parent)

    def permissions(self, path: Path) -> int:
        """Who may do what with a file: the low nine bits of its mode."""
        return path.stat().st_mode & 0o777

    # -- names ----------------------------------------------------------------------------------

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        """Rename, replacing `target`; with `durable` the directory is fsynced."""
        os.replace(source, target)
        if durable:
            self.fsync_path(target.parent)

    def unlink(self, path: Path, *, missing_ok: bool = True) -> None:
        """Remove a file's name; who holds it open can read on."""
        path.unlink(missing_ok=missing_ok)

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(path))

    def is_dir(self, path: Path) -> bool:
        """Whether it is a directory."""
        return path.is_dir()

    def make_dirs(self, path: Path) -> None:
        """Make a directory and its parents; fine if it is there."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it; fine if it is gone."""
        if not path.is_dir():
            return
        for name in os.listdir(path):
            child = path / name
            if child.is_dir() and not child.is_symlink():
                self.remove_tree(child)
            else:
                self.unlink(child)
        self.remove_dir(path)

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def free_bytes(self, path: Path) -> int:
        """Bytes that may still be written to the disk of a path."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: Path) -> int:
        """Bytes that the disk of a path has, free or not."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def exists(self, path: Path) -> bool:
        """Whether something has this name."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Bytes of a file by its name."""
        return path.stat().st_size

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Say when a file was last written."""
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)

    def modified_ms(self, path: Path) -> int:
        """When the file was last written, wall clock."""
        return path.stat().st_mtime_ns // 1_000_000


def _holder(file: OpenFile) -> int:
    """The pid of the process that holds the lock of `file`; 0 or below where nobody shows it."""
    layout = "hhqqi"  # struct flock: type, whence, start, length, pid
    asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return int(struct.unpack(layout, fcntl.fcntl(file.fd, fcntl.F_GETLK, asked))[-1])


def _nothing() -> None:
    """Nobody is to be told."""


class Mapping(mmap.mmap):
    """The first bytes of a file, read-only; says when the last slice of it is gone.

    A socket copies from it while it sends; `sendfile` would leave the file's own pages in the
    socket's queue, where whoever writes the file next would change what the peer receives.
    """

    _ended: Callable[[], None] = staticmethod(_nothing)

    @classmethod
    def of(cls, file: OpenFile, size_bytes: int, ended: Callable[[], None]) -> memoryview:
        """Map `size_bytes` of `file` and close it.

        Args:
            file: not used by anybody else.
            size_bytes: more than 0, at most the size of the file.
            ended: called once when neither the view nor any slice of it exists any more.
        """
        mapping = cls(file.fd, size_bytes, access=mmap.ACCESS_READ)
        mapping._ended = ended
        file.close()
        return memoryview(mapping)

    def __del__(self) -> None:
        # In a cycle of garbage slices may still exist here, but nobody can reach them any more.
        self._ended()
