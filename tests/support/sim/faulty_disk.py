"""Real files on a disk that fails when told to."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from runtime.disk import Buffer, Disk, OpenFile


class FaultyDisk(Disk):
    """Real files on a disk that fails when told to: fills up, breaks, or loses one file.

    Each rule names an operation (a method of `Disk`), a part of the path and how many calls still
    succeed.

    Attributes:
        has_failed: a rule has applied.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_failed = False
        self._rules: list[_FaultRule] = []

    def fail(
        self,
        operations: Iterable[str],
        *,
        path_part: str = "",
        error: int = errno.ENOSPC,
        after: int = 0,
    ) -> None:
        """From the call number `after` on (from 0), the operations raise OSError(`error`)."""
        wanted = frozenset(operations)
        never = [one for one in wanted if getattr(type(self), one) is getattr(Disk, one)]
        assert not never, f"{type(self).__name__} has no faults in {sorted(never)}"
        self._rules.append(_FaultRule(wanted, path_part, error, after))

    def heal(self) -> None:
        """Drop all rules."""
        self._rules.clear()

    def _check(self, operation: str, path: Path | str) -> None:
        for rule in self._rules:
            if operation in rule.operations and rule.path_part in str(path):
                if rule.left == 0:
                    self.has_failed = True
                    raise OSError(rule.error, os.strerror(rule.error), str(path))
                rule.left -= 1

    def append(self, file: OpenFile, data: Buffer) -> None:
        """Append, or write half of it and fail as a full disk does."""
        try:
            self._check("append", file.path)
        except OSError:
            os.write(file.fd, memoryview(data)[: len(data) // 2])
            raise
        super().append(file, data)

    def write_at(self, file: OpenFile, position: int, data: Buffer) -> None:
        """Write or fail."""
        self._check("write_at", file.path)
        super().write_at(file, position, data)

    def fsync(self, file: OpenFile) -> None:
        """Fsync or fail."""
        self._check("fsync", file.path)
        super().fsync(file)

    def fsync_path(self, path: Path) -> None:
        """Fsync or fail."""
        self._check("fsync_path", path)
        super().fsync_path(path)

    def truncate(self, file: OpenFile, size: int) -> None:
        """Truncate or fail."""
        self._check("truncate", file.path)
        super().truncate(file, size)

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        """Rename or fail."""
        self._check("rename", target)
        super().rename(source, target, durable=durable)

    def free_bytes(self, path: Path) -> int:
        """Ask or fail."""
        self._check("free_bytes", path)
        return super().free_bytes(path)

    def open_append(self, path: Path) -> OpenFile:
        """Open or fail."""
        self._check("open_append", path)
        return super().open_append(path)

    def open_write(self, path: Path) -> OpenFile:
        """Open or fail."""
        self._check("open_write", path)
        return super().open_write(path)

    def open_read(self, path: Path) -> OpenFile:
        """Open or fail."""
        self._check("open_read", path)
        return super().open_read(path)

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        """Read or fail."""
        self._check("read_at", file.path)
        return super().read_at(file, position, size)

    def read_resident(self, file: OpenFile, position: int, size: int) -> bytes | None:
        """Read or fail, as `read_at`."""
        self._check("read_at", file.path)
        return super().read_resident(file, position, size)

    def unlink(self, path: Path, *, missing_ok: bool = True) -> None:
        """Remove a name or fail."""
        self._check("unlink", path)
        super().unlink(path, missing_ok=missing_ok)

    def list_dir(self, path: Path) -> list[str]:
        """List or fail."""
        self._check("list_dir", path)
        return super().list_dir(path)

    def make_dirs(self, path: Path) -> None:
        """Make a directory or fail."""
        self._check("make_dirs", path)
        super().make_dirs(path)


class _FaultRule:
    __slots__ = ("error", "left", "operations", "path_part")

    def __init__(self, operations: frozenset[str], path_part: str, error: int, left: int) -> None:
        self.operations, self.path_part, self.error, self.left = operations, path_part, error, left
