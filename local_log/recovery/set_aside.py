"""Keeps record bytes that recovery cuts from a log under another name, and never unlinks them.

`<file>.<number>.<position>.cut` holds the bytes of `<file>` from byte `position` on. Kafka and
recovery ignore such files, and `tidemark log inspect` lists them. Only an operator removes them.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from local_log.file_names import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, path_of
from runtime.disk import Disk

CUT: Final = ".cut"
_NAME: Final = re.compile(r"(?P<file>.+)\.(?P<number>\d+)\.(?P<position>\d+)\.cut\Z")
_CHUNK_BYTES: Final = 1 << 20


def is_cut_name(name: str) -> bool:
    """True if a file of this name holds bytes that were set aside."""
    return _NAME.match(name) is not None


def cut_name(file: str, position: int, names: Iterable[str]) -> str:
    """Return a free name for the bytes of `file` from byte `position` on.

    Args:
        file: Name of the file without its directory.
        position: First byte (inclusive) that is set aside.
        names: Names of all files in the directory.
    """
    taken = [m for m in map(_NAME.match, names) if m is not None and m["file"] == file]
    number = max((int(match["number"]) for match in taken), default=0) + 1
    return f"{file}.{number}.{position}{CUT}"


def set_segment_aside(disk: Disk, directory: Path, base_offset: int) -> Path:
    """Rename a segment's log file out of the log and remove its indexes; durable on return.

    Returns:
        The new path of its records.

    Raises:
        OSError: The disk failed.
    """
    path = path_of(directory, base_offset, LOG)
    target = directory / cut_name(path.name, 0, disk.list_dir(directory))
    disk.fsync_path(path)
    disk.rename(path, target, durable=True)
    for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX):
        disk.unlink(path_of(directory, base_offset, suffix))
    return target


def cut_segment(
    disk: Disk, directory: Path, base_offset: int, position: int, *, keeps: bool
) -> Path | None:
    """Cut a segment's log file at byte `position`; durable on return. Its indexes stay.

    Args:
        disk: Holds the partition directory.
        directory: Of the partition.
        base_offset: Of the segment.
        position: First byte (inclusive) to remove.
        keeps: Copy the removed bytes to a `.cut` file first; False for an incomplete last batch.

    Returns:
        Path of the copy, None without one.

    Raises:
        OSError: The disk failed.
    """
    path = path_of(directory, base_offset, LOG)
    copy = None
    if keeps:
        copy = copy_aside(disk, path, position)
    file = disk.open_write(path)
    disk.truncate(file, position)
    disk.fsync(file)
    return copy


def copy_aside(disk: Disk, source: Path, position: int) -> Path:
    """Copy a file from byte `position` (inclusive) on to a `.cut` file; durable on return.

    The copy has a temporary name until it is complete; the next start removes an incomplete one.

    Returns:
        Path of the copy.

    Raises:
        OSError: The disk failed.
    """
    target = source.with_name(cut_name(source.name, position, disk.list_dir(source.parent)))
    part = target.with_name(target.name + ".tmp")
    old, new = disk.open_read(source), disk.open_empty(part)
    written = 0
    while chunk := disk.read_at(old, position, _CHUNK_BYTES):
        disk.write_at(new, written, chunk)
        written += len(chunk)
        position += len(chunk)
    disk.fsync(new)
    disk.rename(part, target, durable=True)
    return target
