"""Record bytes that leave a log in recovery: kept under another name, never unlinked.

`<file>.<number>.<position>.cut` holds what was in `<file>` from byte `position` on. Kafka takes no
notice of such files, recovery leaves them alone, and `tidemark log inspect` lists them; a person
removes them.
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
    """Whether a file was set aside."""
    return _NAME.match(name) is not None


def cut_name(file: str, position: int, names: Iterable[str]) -> str:
    """A name that is not taken, for what was in `file` from byte `position` on."""
    taken = [m for m in map(_NAME.match, names) if m is not None and m["file"] == file]
    number = max((int(match["number"]) for match in taken), default=0) + 1
    return f"{file}.{number}.{position}{CUT}"


def set_segment_aside(disk: Disk, directory: Path, base_offset: int) -> Path:
    """Take a whole segment out of the log; durable on return.

    Its indexes say nothing without it and are removed.

    Returns:
        Where its records are now.

    Raises:
        OSError: the disk failed.
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
    """Cut a segment's log at byte `position`; durable on return.

    Args:
        disk: where it is.
        directory: of the partition.
        base_offset: the segment's.
        position: what lies from this byte (inclusive) on goes.
        keeps: copy that to a file beside first; False for an incomplete last batch.

    Returns:
        The copy.

    Raises:
        OSError: the disk failed.
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
    """Copy a file from byte `position` on to a file beside it; durable on return.

    Under a temporary name until it is whole: what a kill leaves is removed at the next start.

    Returns:
        The copy.

    Raises:
        OSError: the disk failed.
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
