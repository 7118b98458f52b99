"""Directories whose names survive a power cut."""

from pathlib import Path

from runtime.disk import Disk


def make_dirs_durably(disk: Disk, path: Path) -> None:
    """Make a directory and its parents; returns when their names are on disk.

    A file that is fsynced in a directory without a durable name can be gone after a power cut. The
    parent is fsynced also where the directory is there already: the process that made it may have
    died before it came to that.
    """
    made = [path]
    while not disk.is_dir(made[-1].parent):
        made.append(made[-1].parent)
    disk.make_dirs(path)
    for directory in reversed(made):
        disk.fsync_path(directory.parent)
