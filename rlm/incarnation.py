"""The tier incarnation: second half of every fence, and never the same twice.

The counter is fsynced before a number is used: two tiers that ran under one leader epoch must not
write under the same pair. Losing the file means losing the log directory, whose partitions then
come back under higher leader epochs.
"""

from pathlib import Path
from threading import Lock

from runtime.disk import Disk

FILE_NAME = "tier-incarnation"


class Incarnations:
    """Gives out incarnation numbers."""

    def __init__(self, disk: Disk, log_dir: Path) -> None:
        self._disk, self._path, self._lock = disk, log_dir / FILE_NAME, Lock()
        self._last: int | None = None

    def take(self) -> int:
        """The next number, durably taken.

        Raises:
            OSError, ValueError: it cannot be written, or the file holds no number.
        """
        with self._lock:
            last = self._read() if self._last is None else self._last
            self._disk.atomic_write(self._path, f"{last + 1}\n".encode())
            self._last = last + 1
            return self._last

    def _read(self) -> int:
        if not self._disk.exists(self._path):
            return 0
        return int(self._disk.read_file(self._path))
