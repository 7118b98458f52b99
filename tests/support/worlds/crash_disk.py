"""A machine that loses power or kills its process, with one directory that breaks."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from runtime.disk import Buffer, OpenFile
from tests.support.sim.power_cut_disk import PowerCutDisk

_BY_PATH: Final = (
    "open_read",
    "open_append",
    "open_write",
    "open_empty",
    "fsync_path",
    "unlink",
    "make_dirs",
    "remove_dir",
    "list_dir",
    "exists",
    "is_dir",
    "size",
    "modified_ms",
)
_BY_FILE: Final = ("read_at", "read_resident", "read_into", "write_at", "truncate", "fsync")


class CrashDisk(PowerCutDisk):
    """A `PowerCutDisk` on which what lies below one directory fails with EIO.

    Attributes:
        has_failed: it did.
    """

    _broken: Path | None = None
    _sound_left = 0
    _stays = True
    has_failed = False

    def break_directory(self, path: Path, *, after: int, stays: bool) -> None:
        """From the operation number `after` on (from 0) it fails.

        Permanently, or in that one only.
        """
        self._broken, self._sound_left, self._stays = path, after, stays
        self.has_failed = False

    @property
    def broken(self) -> Path | None:
        """The directory that fails, or is to."""
        return self._broken

    def take_faults(self, other: "CrashDisk") -> None:
        """Break where another one is broken: it is the same machine."""
        self._broken, self._sound_left, self._stays = other._broken, other._sound_left, other._stays

    def begin(self, operations: int | None = None, *, kills: bool = False) -> None:
        """As a `PowerCutDisk`; nothing has failed yet."""
        super().begin(operations, kills=kills)
        self.has_failed = False

    def repair(self) -> None:
        """All directories work."""
        self._broken, self.has_failed = None, False

    def check(self, path: Path | str) -> None:
        """Count an operation on a path.

        Raises:
            OSError: it fails.
        """
        if self._broken is None or not Path(path).is_relative_to(self._broken) or self.is_off:
            return
        self._sound_left -= 1
        if self._sound_left == -1 or (self._sound_left < 0 and self._stays):
            self.has_failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def append(self, file: OpenFile, data: Buffer) -> None:
        """Append, or write half of it and fail."""
        try:
            self.check(file.path)
        except OSError:
            if len(data) > 1:
                super().append(file, bytes(data)[: len(data) // 2])
            raise
        super().append(file, data)

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        """Rename or fail."""
        self.check(target)
        super().rename(source, target, durable=durable)


def _checked(name: str, path_of: Callable[[Any], Path | str]) -> None:
    plain = getattr(PowerCutDisk, name)

    def method(self: CrashDisk, first: Any, *args: Any, **kwargs: Any) -> Any:
        self.check(path_of(first))
        return plain(self, first, *args, **kwargs)

    setattr(CrashDisk, name, method)


for _name in _BY_PATH:
    _checked(_name, lambda path: path)
for _name in _BY_FILE:
    _checked(_name, lambda file: file.path)
