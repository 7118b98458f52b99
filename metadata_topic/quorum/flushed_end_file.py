"""The file `tidemark-flushed-end`: up to where the metadata log was flushed when it was written.

It is written after a start, a roll, a snapshot and at a clean stop, so it is behind the log most of
the time. What it says stays true until the log is cut, and a cut lowers it on disk first. A file
that is missing or damaged proves nothing: Apache Kafka does not write it.

    tidemark-flushed-end 2
    flushed 4711
    restart -1 -1
    led 7
    crc 0a1b2c3d

`restart` is the id (end offset, epoch) of a snapshot that is about to replace the whole log; -1 -1
at all other times. `led` is the epoch that this node led when it wrote the file, -1 for none: only
batches of that epoch say something about this node's disk, see `log_verdict`. Version 1 had no
`led`, and no epoch in `restart`: what it lies beside was written by a sole voter.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from metadata_topic.raft.snapshot_id import SnapshotId
from runtime.disk import Disk

FLUSHED_END: Final = "tidemark-flushed-end"
EVERY_EPOCH: Final = -2
"""In the place of an epoch: nothing in the log was fetched from a leader."""
NO_EPOCH: Final = -1
_FORM: Final = re.compile(
    rb"(tidemark-flushed-end ([12])\nflushed (\d+)\n"
    rb"restart (-1|\d+)(?: (-1|\d+))?\n(?:led (-1|\d+)\n)?)crc ([0-9a-f]{8})\n"
)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushedEnd:
    """What the file says.

    Attributes:
        offset: everything below it (exclusive end) was flushed.
        restart: the log is being dropped in favour of this snapshot; None if not. Its epoch is -1
            in a file of version 1, which does not say it.
        led_epoch: batches of this epoch at and above `offset` were begun by this node, so that what
            they say about a flushed end is about this disk; NO_EPOCH, EVERY_EPOCH.
    """

    offset: int
    restart: SnapshotId | None = None
    led_epoch: int = NO_EPOCH

    def is_restart_at(self, snapshot: SnapshotId) -> bool:
        """Whether the log was being dropped in favour of that snapshot."""
        restart = self.restart
        if restart is None or restart.end_offset != snapshot.end_offset:
            return False
        return restart.epoch in (NO_EPOCH, snapshot.epoch)


def dump_flushed_end(end: FlushedEnd) -> bytes:
    """Write the file's content."""
    offset, epoch = end.restart or (-1, -1)
    lines = (
        "tidemark-flushed-end 2",
        f"flushed {end.offset}",
        f"restart {offset} {epoch}",
        f"led {end.led_epoch}",
    )
    text = "".join(f"{line}\n" for line in lines).encode()
    return text + f"crc {crc32c(text):08x}\n".encode()


def parse_flushed_end(data: bytes) -> FlushedEnd | None:
    """Read the file's content; None if it is damaged."""
    found = _FORM.fullmatch(data)
    if found is None or int(found[7], 16) != crc32c(found[1]):
        return None
    is_old = found[2] == b"1"
    if is_old is not (found[5] is None) or is_old is not (found[6] is None):
        return None
    restart = int(found[4])
    snapshot = None if restart < 0 else SnapshotId(restart, NO_EPOCH if is_old else int(found[5]))
    return FlushedEnd(int(found[3]), snapshot, EVERY_EPOCH if is_old else int(found[6]))


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
