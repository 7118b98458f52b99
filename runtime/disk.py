"""The only module that accesses files.

An `OpenFile` closes its descriptor when no reference to it is left: a region in the network's send
queue stays readable although its segment was deleted meanwhile. Every write either happens as a
whole or raises `OSError`; recovery validates the remains of an error.
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
    """Raise this process's limit of open files to the hard limit; returns the limit.

    The limit of a shell (often 1,024) is meant for programs that use `select`; every open segment
    and every connection counts. A JVM does the same by itself.
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
    """An open descriptor that is closed with its last reference."""

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: Path | str) -> None:
        self.fd = fd
        self.path = path

    def size(self) -> int:
        """Present size of the file in bytes."""
        return os.fstat(self.fd).st_size

    def fileno(self) -> int:
        """The descriptor, for functions that accept an object with a `fileno`."""
        return self.fd

    def close(self) -> None:
        """Close now; only for files without any other user."""
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
    """A part of a file that is sent as it is; never copied into the heap."""

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
        """Release the lock; the file stays."""
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
        """Make a file in memory, which can be passed to another process."""
        return OpenFile(os.memfd_create(name, os.MFD_CLOEXEC), name)

    def lock(self, path: Path) -> Lock:
        """Take the lock file at `path`, creating it if needed; never waits for it.

        Raises:
            LockHeldError: Another process holds it.
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
        """Read as `read_at` does, but None where that would wait for the disk.

        Files for which the kernel has no answer (tmpfs, memfd) are read.
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
        """Fill `buffer` from `position`; returns the bytes read, fewer only at the file's end."""
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
        """Id of this boot of the machine; "" where the operating system has none."""
        try:
            file = self.open_read(_BOOT_ID)
            return os.pread(file.fd, 64, 0).decode().strip()  # it has no size
        except OSError:
            return ""

    def is_resident(self, file: OpenFile, position: int, size: int) -> bool:
        """Whether a read of this region will not wait for the disk.

        Files in memory (memfd, tmpfs) count as resident.
        """
        if size <= 0:
            return True
        answer = self._cachestat(file, position, size)
        return self._probe_pages(file, position, size) if answer is None else answer

    def _cachestat(self, file: OpenFile, position: int, size: int) -> bool | None:
        """Ask the kernel in one call; None if it does not support the call."""
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
        """Send a part of a file over a socket; returns the number of bytes, 0 at the file's end."""
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
        """Return once everything written so far survives a power failure."""
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
            FileExistsError: It is there, and is left unchanged.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = OpenFile(os.open(path, flags, 0o600), path)
        self.write_at(file, 0, data)
        self.fsync(file)
        file.close()
        self.fsync_path(path.parent)

    def permissions(self, path: Path) -> int:
        """Permissions of a file: the low nine bits of its mode."""
        return path.stat().st_mode & 0o777

    # -- names ----------------------------------------------------------------------------------

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        """Rename, replacing `target`; with `durable` the directory is fsynced."""
        os.replace(source, target)
        if durable:
            self.fsync_path(target.parent)

    def unlink(self, path: Path, *, missing_ok: bool = True) -> None:
        """Remove a file's name; open descriptors stay readable."""
        path.unlink(missing_ok=missing_ok)

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(path))

    def is_dir(self, path: Path) -> bool:
        """Whether it is a directory."""
        return path.is_dir()

    def make_dirs(self, path: Path) -> None:
        """Make a directory and its parents; does nothing if it is there."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it; does nothing if it is gone."""
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
        """Size in bytes of the disk of a path, free or not."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def exists(self, path: Path) -> bool:
        """Whether a file or directory of this name exists."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Bytes of a file by its name."""
        return path.stat().st_size

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set the time of a file's last write, in ms since 1970."""
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)

    def modified_ms(self, path: Path) -> int:
        """Time of the file's last write, in ms since 1970."""
        return path.stat().st_mtime_ns // 1_000_000


def _holder(file: OpenFile) -> int:
    """The pid of the process that holds the lock of `file`; 0 or below if it is not shown."""
    layout = "hhqqi"  # struct flock: type, whence, start, length, pid
    asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return int(struct.unpack(layout, fcntl.fcntl(file.fd, fcntl.F_GETLK, asked))[-1])


def _nothing() -> None:
    """The default of `Mapping._ended`."""


class Mapping(mmap.mmap):
    """The first bytes of a file, read-only; calls back when the last slice of it is gone.

    A socket copies from it while it sends. `sendfile` would leave the file's own pages in the
    socket's queue, where the next write to the file would change the bytes that the peer receives.
    """

    _ended: Callable[[], None] = staticmethod(_nothing)

    @classmethod
    def of(cls, file: OpenFile, size_bytes: int, ended: Callable[[], None]) -> memoryview:
        """Map `size_bytes` of `file` and close it.

        Args:
            file: Without any other user.
            size_bytes: More than 0, at most the size of the file.
            ended: Called once neither the view nor any slice of it exists any more.
        """
        mapping = cls(file.fd, size_bytes, access=mmap.ACCESS_READ)
        mapping._ended = ended
        file.close()
        return memoryview(mapping)

    def __del__(self) -> None:
        # In a cycle of garbage slices may still exist here, but they cannot be reached any more.
        self._ended()
