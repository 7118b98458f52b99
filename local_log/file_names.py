"""Names and paths of the files of a partition directory."""

from pathlib import Path

from kafka_protocol.files.segment_names import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file,
    segment_file,
)
from runtime.disk import Disk, OpenFile

__all__ = [
    "CLEANED",
    "DELETED",
    "EPOCH_CHECKPOINT",
    "FUTURE_MARKER",
    "LOG",
    "MOVED_MARK",
    "OFFSET_INDEX",
    "PARTITION_METADATA",
    "PRODUCER_SNAPSHOT",
    "SEGMENT_SUFFIXES",
    "SWAP",
    "TIME_INDEX",
    "TXN_INDEX",
    "cleaned_path",
    "open_moving",
    "parse_segment_file",
    "path_of",
    "segment_file",
    "swap_path",
]

CLEANED = ".cleaned"
SWAP = ".swap"
EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
FUTURE_MARKER = "tidemark-future"
"""Of a directory that is to take the place of another, see `local_log.manager.future_dirs`."""
MOVED_MARK = "tidemark-moved"
"""Of a directory that came from another log directory, see `local_log.manager.future_dirs`."""
PARTITION_METADATA = "partition.metadata"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)


def path_of(directory: Path, base_offset: int, suffix: str) -> Path:
    """Path of one file of the segment (or snapshot) at `base_offset`."""
    return directory / segment_file(base_offset, suffix)


def cleaned_path(directory: Path, base_offset: int, suffix: str, token: str) -> Path:
    """Path of a file that a cleaner is writing; `token` tells two cleaners apart."""
    return directory / f"{segment_file(base_offset, suffix)}.{token}{CLEANED}"


def swap_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """Path of a file that a cleaner has finished and that is not in its place yet."""
    return directory / f"{segment_file(base_offset, suffix)}{SWAP}"


def open_moving(disk: Disk, path: Path) -> OpenFile:
    """Open a file that a cleaner has finished, wherever on its way to `path` it is.

    It has the other name until it is in its place, never none.

    Raises:
        FileNotFoundError: it is not there.
    """
    try:
        return disk.open_read(path.with_name(path.name + SWAP))
    except FileNotFoundError:
        return disk.open_read(path)
