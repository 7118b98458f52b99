"""The file `tidemark-flushed-end`: flushed end of the metadata log at the time of writing.

It is replaced after a start, a roll, a snapshot and at a clean stop. Each flush between these adds
a line, whose fsync follows within a second; no work waits for it. The content stays true until the
log is cut, and a cut replaces the file first. A missing or damaged file proves nothing: Apache
Kafka does not write it.

    tidemark-flushed-end 3
    flushed 4711
    restart -1 -1
    led 7
    crc 0a1b2c3d
    flushed 4718 5e6f7a8b

`restart` is the id (end offset, epoch) of a snapshot that is about to replace the whole log. At all
other times it is -1 -1. `led` is the epoch that this node led when it wrote the file, -1 for none.
Only batches of that epoch are evidence about this node's disk, see `verdict`. A line's checksum
continues from that of the first five lines, so a line is valid in this file only. A power cut may
tear or lose lines; the highest sound one counts.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from metadata_topic.quorum.errors import UnusableMetadataError
from metadata_topic.raft.messages import SnapshotId
from runtime.disk import Disk, OpenFile

FLUSHED_END: Final = "tidemark-flushed-end"
NO_EPOCH: Final = -1
HEAD_LINES: Final = 5
LINES_MAX: Final = 4096
"""Lines added before the file is replaced."""
_FORM: Final = re.compile(
    rb"(tidemark-flushed-end 3\nflushed (\d+)\nrestart (-1|\d+) (-1|\d+)\nled (-1|\d+)\n)"
    rb"crc ([0-9a-f]{8})\n"
)
_LINE: Final = re.compile(rb"(flushed (\d+)) ([0-9a-f]{8})\n")
_OLDER: Final = re.compile(rb"(tidemark-flushed-end ([12])\n.*?)crc ([0-9a-f]{8})\n", re.DOTALL)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushedEnd:
    """Content of the file.

    Attributes:
        offset: Everything below it (exclusive end) was flushed.
        restart: Snapshot that is replacing the log; None if none is.
        led_epoch: This node has begun the batches of this epoch at and above `offset`, so the
            flushed ends in them are about this disk; NO_EPOCH.
    """

    offset: int
    restart: SnapshotId | None = None
    led_epoch: int = NO_EPOCH


def dump_flushed_end(end: FlushedEnd) -> bytes:
    """Encode the content, without lines."""
    offset, epoch = end.restart or (-1, -1)
    lines = (
        "tidemark-flushed-end 3",
        f"flushed {end.offset}",
        f"restart {offset} {epoch}",
        f"led {end.led_epoch}",
    )
    text = "".join(f"{line}\n" for line in lines).encode()
    return text + f"crc {crc32c(text):08x}\n".encode()


def dump_line(offset: int, head_crc: int) -> bytes:
    """Encode a line: the log is flushed to `offset` (exclusive).

    Args:
        offset: See above.
        head_crc: Checksum of the output of `dump_flushed_end` before the lines.
    """
    text = f"flushed {offset}".encode()
    return text + f" {crc32c(text, head_crc):08x}\n".encode()


def parse_flushed_end(data: bytes) -> FlushedEnd | None:
    """Decode the content; None if it is damaged, or of another version."""
    found = _FORM.match(data)
    if found is None or int(found[6], 16) != crc32c(found[1]):
        return None
    snapshot = SnapshotId(int(found[3]), int(found[4]))
    offset = max([int(found[2]), *_lines(data[found.end() :], crc32c(found[0]))])
    return FlushedEnd(offset, snapshot if snapshot.end_offset >= 0 else None, int(found[5]))


def _lines(data: bytes, head_crc: int) -> Iterator[int]:
    """Offsets in the sound lines; other lines were torn by a power cut."""
    for line in _LINE.finditer(data):
        if int(line[3], 16) == crc32c(line[1], head_crc):
            yield int(line[2])


class FlushedEndFile:
    """The file in one metadata directory; one call at a time, except for `fsync_lines`."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._path = directory / FLUSHED_END
        self._disk = disk
        self._head_crc: int | None = None  # checksum of the file, if written by this incarnation
        self._open: OpenFile | None = None
        self._count = 0

    def read(self) -> FlushedEnd | None:
        """Return the content; None if the file is missing or damaged.

        Raises:
            UnusableMetadataError: The file is whole, and of an unreleased version.
            OSError: The disk failed.
        """
        try:
            data = self._disk.read_file(self._path)
        except FileNotFoundError:
            return None
        found = parse_flushed_end(data)
        older = _OLDER.match(data)
        if older is not None and int(older[3], 16) == crc32c(older[1]):
            raise UnusableMetadataError(
                f"{self._path} is of version {int(older[2])}, which no release wrote, and says up "
                "to where the metadata log beside it was flushed. If this directory is the newest "
                "and was stopped cleanly, remove the file; else restore the directory"
            )
        if found is None:
            log.warning("damaged, or of another version, and proves nothing: %s", self._path)
        return found

    def write(self, end: FlushedEnd) -> None:
        """Replace the file; returns after fsync of file and directory."""
        self.release()
        data = dump_flushed_end(end)
        self._disk.atomic_write(self._path, data)
        self._head_crc, self._count = crc32c(data), 0

    @property
    def takes_lines(self) -> bool:
        """True if a line can be added: this incarnation wrote the file, and it is not long yet."""
        return self._head_crc is not None and self._count < LINES_MAX

    def add_line(self, offset: int) -> None:
        """Add a flushed end (exclusive); durable only after `fsync_lines`.

        Raises:
            OSError: The disk failed.
        """
        assert self._head_crc is not None
        if self._open is None:
            self._open = self._disk.open_append(self._path)
        self._disk.append(self._open, dump_line(offset, self._head_crc))
        self._count += 1

    def fsync_lines(self) -> None:
        """Make the lines durable.

        On any thread, also while lines are added or the file is replaced.

        Raises:
            OSError: The disk failed.
        """
        file = self._open
        if file is not None:
            self._disk.fsync(file)

    def release(self) -> None:
        """Drop the reference to the open file: it closes after the last fsync in progress."""
        self._open = None
