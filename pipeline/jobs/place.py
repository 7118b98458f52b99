"""A directory that an export writes to, on whatever kind of store.

Paths are relative to the place, with `/` between. Must not know: what an export is.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from pipeline.errors import OptionError
from runtime.override import override


class Place(Protocol):
    """A store for an export; the bytes that a call wrote are durable when it returns.

    Can be pickled, to write files in executors.
    """

    @property
    def url(self) -> str:
        """The place itself, as a user would name it."""
        ...

    def names(self, directory: str) -> list[str]:
        """Names of what is directly in a directory, sorted; nothing if it is absent."""
        ...

    def files(self, directory: str) -> dict[str, int]:
        """Paths below a directory (relative to it) and their sizes; nothing if it is absent."""
        ...

    def read(self, path: str) -> bytes:
        """All bytes of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Make a file with these bytes, whole or not at all; False if there is one already.

        Of two that try at once, one succeeds. After an error it may or may not be there.
        """
        ...

    def move(self, source: str, target: str) -> None:
        """Rename a file, which appears whole; a source that is gone is fine: it was moved."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or a directory with all that is in it; an absent one is fine."""
        ...

    def writing(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A new file, open for writing in the block and durable after it."""
        ...

    def location(self, path: str) -> str:
        """The address of a file, for catalogues."""
        ...


class LocalPlace(Place):
    """A directory of this machine, or one that all machines mount."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    @override
    def url(self) -> str:
        return str(self._root)

    @override
    def names(self, directory: str) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(os.listdir(self._root / directory))
        return []

    @override
    def files(self, directory: str) -> dict[str, int]:
        found: dict[str, int] = {}
        top = self._root / directory
        for parent, _, names in os.walk(top):
            for name in names:
                path = Path(parent, name)
                with suppress(FileNotFoundError):  # moved or removed by somebody else
                    found[path.relative_to(top).as_posix()] = path.stat().st_size
        return found

    @override
    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def create(self, path: str, data: bytes) -> bool:
        """A hard link is made of a whole file, or not at all."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        try:
            with draft.open("xb") as file:
                file.write(data)
                _sync(file)
            os.link(draft, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise OptionError(
                    f"{self._root}: this file system has no hard links, which make commits"
                    " exclusive: export to another one"
                ) from error
            raise
        finally:
            draft.unlink(missing_ok=True)
        _sync_directories(target.parent, self._root)
        return True

    @override
    def move(self, source: str, target: str) -> None:
        to = self._root / target
        to.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            (self._root / source).replace(to)
        _sync_directories(to.parent, self._root)

    @override
    def remove(self, path: str) -> None:
        full = self._root / path
        if full.is_dir():
            shutil.rmtree(full, ignore_errors=True)  # somebody else may be removing it, too
        else:
            full.unlink(missing_ok=True)

    @override
    @contextmanager
    def writing(self, path: str) -> Iterator[BinaryIO]:
        full = self._root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        with full.open("xb") as file:
            yield file
            _sync(file)
        _sync_directories(full.parent, self._root)

    @override
    def location(self, path: str) -> str:
        return (self._root / path).as_uri()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directories(directory: Path, root: Path) -> None:
    """Make names durable: of the directory, and of those that may have been made above it."""
    while True:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if directory in (root, directory.parent):
            return
        directory = directory.parent
