"""Starts the tier process; in this package only this module does.

The child inherits two descriptors: its end of the link, and the locked `tier.lock`. The lock
belongs to the open file, which only the child holds after the start. So it is free exactly when the
child is gone, after any kind of end: two tiers never run over one directory.
"""

import fcntl
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from runtime.child_process import ChildProcess, start_child
from runtime.disk import Disk, OpenFile

LOCK_NAME = "tier.lock"
TIER_NAMES = (
    LOCK_NAME,
    "tier-incarnation",
    "remote-log-index-cache",
    "remote-log-chunk-cache",
    "remote-log-metadata",
    "remote-log-metadata.damaged",
)
"""Files and directories of the tier process in log directories, besides the partitions."""


def take_tier_lock(disk: Disk, state_dir: Path) -> OpenFile | None:
    """Take `tier.lock` of the directory, or None while a tier still holds it.

    The file's content has no meaning; the lock on the open file has.

    Args:
        disk: Files.
        state_dir: Directory of the file.

    Raises:
        OSError: It cannot be opened.
    """
    file = disk.open_write(state_dir / LOCK_NAME)
    try:
        fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return file


def start_tier_process(link_fd: int, lock: OpenFile, arguments: Sequence[str] = ()) -> ChildProcess:
    """Start the child; the caller then closes its own copies of the two descriptors.

    Call it on the thread that exists as long as the broker: the child asks to die with it.
    """
    return _start_child(link_fd, (link_fd, lock.fd), arguments)


class EarlyTierProcess:
    """A first tier process that imports its modules while the broker still imports its own.

    With two cores this makes a start a second shorter. Called like `start_tier_process`, it gives
    the descriptors to the waiting process, once; each later process is started from scratch. Make
    it on the same thread.
    """

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            self._child: ChildProcess | None = _start_child(fd, (fd,), ["--wait"])

    def __call__(self, link_fd: int, lock: OpenFile) -> ChildProcess:
        """Return the running child."""
        child, self._child = self._child, None
        if child is None:
            return start_tier_process(link_fd, lock)
        try:
            with self._ours:
                socket.send_fds(self._ours, [b"."], [link_fd, lock.fd])
        except OSError:  # it ended while it waited
            child.kill()
            child.wait()
            return start_tier_process(link_fd, lock)
        return child


def _start_child(first_fd: int, fds: Sequence[int], arguments: Sequence[str]) -> ChildProcess:
    return start_child(
        "rlm.tier_process",
        [str(first_fd), str(os.getpid()), *arguments],
        descriptors=fds,
        # Fewer malloc arenas: the tier's pools are many threads that allocate little.
        defaults={"MALLOC_ARENA_MAX": "2"},
    )
