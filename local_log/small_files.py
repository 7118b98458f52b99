"""The small files of a partition directory: read and replaced as a whole."""

from pathlib import Path
from typing import Protocol

from runtime.disk import Disk
from runtime.override import override


class SmallFiles(Protocol):
    """How a log reads and writes the small files of its directory."""

    def read(self, name: str) -> bytes:
        """The whole content of a file.

        Raises:
            FileNotFoundError: it is not there.
            CorruptFileError: it is not what was written.
        """
        ...

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Replace a file; with `durable` it survives a power cut when this returns."""
        ...


class PlainFiles(SmallFiles):
    """Small files as they are on disk; what was written is not remembered elsewhere."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    @override
    def read(self, name: str) -> bytes:
        return self._disk.read_file(self._directory / name)

    @override
    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._disk.atomic_write(self._directory / name, data, durable=durable)
