"""The file `tidemark-flushed-end`: up to where the metadata log was flushed when it was written.

It is written after a start, a roll, a snapshot and at a clean stop, so it is behind the log most of
the time. What it says stays true until the log is cut, and a cut lowers it on disk first. A file
that is missing or damaged proves nothing: Apache Kafka does not write it.

    tidemark-flushed-end 1
    flushed 4711
    restart -1
    crc 0a1b2c3d

`restart` is the offset at which an empty log is about to begin because a snapshot replaces what was
there; -1 at all other times.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from runtime.disk import Disk

FLUSHED_END: Final = "tidemark-flushed-end"
_FORM: Final = re.compile(
    rb"(tidemark-flushed-end 1\nflushed (\d+)\nrestart (-1|\d+)\n)crc ([0-9a-f]{8})\n"
)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushedEnd:
    """What the file says.

    Attributes:
        offset: everything below it (exclusive end) was flushed.
        restart_at: the log is being dropped in favour of a snapshot that ends here; None if not.
    """

    offset: int
    restart_at: int | None = None


def dump_flushed_end(end: FlushedEnd) -> bytes:
    """Write the file's content."""
    restart = -1 if end.restart_at is None else end.restart_at
    text = f"tidemark-flushed-end 1\nflushed {end.offset}\nrestart {restart}\n".encode()
    return text + f"crc {crc32c(text):08x}\n".encode()


def parse_flushed_end(data: bytes) -> FlushedEnd | None:
    """Read the file's content; None if it is damaged."""
    found = _FORM.fullmatch(data)
    if found is None or int(found[4], 16) != crc32c(found[1]):
        return None
    restart = int(found[3])
    return FlushedEnd(int(found[2]), None if restart < 0 else restart)


class FlushedEndFile:
    """The file in one metadata directory."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._path = directory / FLUSHED_END
        self._disk = disk

    def read(self) -> FlushedEnd | None:
        """What the file says; None if it is missing or damaged.

        Raises:
            OSError: the disk failed.
        """
        try:
            data = self._disk.read_file(self._path)
        except FileNotFoundError:
            return None
        found = parse_flushed_end(data)
        if found is None:
            log.warning("file is damaged and proves nothing: %s", self._path)
        return found

    def write(self, end: FlushedEnd) -> None:
        """Replace the file; returns after fsync of file and directory."""
        self._disk.atomic_write(self._path, dump_flushed_end(end))
