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
"""Marker of a directory that will replace another, see `local_log.manager.future_dirs`."""
MOVED_MARK = "tidemark-moved"
"""Marker of a directory that was moved here, see `local_log.manager.future_dirs`."""
PARTITION_METADATA = "partition.metadata"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)


def path_of(directory: Path, base_offset: int, suffix: str) -> Path:
    """Path of one file of the segment (or snapshot) at `base_offset`."""
    return directory / segment_file(base_offset, suffix)


def cleaned_path(directory: Path, base_offset: int, suffix: str, token: str) -> Path:
    """Path of a file that a cleaner is writing; `token` separates two cleaners."""
    return directory / f"{segment_file(base_offset, suffix)}.{token}{CLEANED}"


def swap_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """Path of a finished file of a cleaner that is not in its place yet."""
    return directory / f"{segment_file(base_offset, suffix)}{SWAP}"


def open_moving(disk: Disk, path: Path) -> OpenFile:
    """Open a finished file of a cleaner, which may be on its way to `path`.

    Until it is in place it has the `.swap` name; one of the two names always exists.

    Raises:
        FileNotFoundError: Neither name exists.
    """
    try:
        return disk.open_read(path.with_name(path.name + SWAP))
    except FileNotFoundError:
        return disk.open_read(path)
