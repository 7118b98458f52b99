"""Access to the small files of a partition directory, which are read and replaced as a whole."""

from pathlib import Path
from typing import Protocol

from runtime.disk import Disk
from runtime.override import override


class SmallFiles(Protocol):
    """Reads and writes the small files of one partition directory."""

    def read(self, name: str) -> bytes:
        """Return the whole content of a file.

        Raises:
            FileNotFoundError: The file does not exist.
            CorruptFileError: Its content is not the last one written.
        """
        ...

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Replace a file atomically; with `durable` it is fsynced on return."""
        ...


class PlainFiles(SmallFiles):
    """Small files without a checksum elsewhere, so a changed file is not noticed."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    @override
    def read(self, name: str) -> bytes:
        return self._disk.read_file(self._directory / name)

    @override
    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._disk.atomic_write(self._directory / name, data, durable=durable)
