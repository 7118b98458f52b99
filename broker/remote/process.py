"""Starting and killing the tier process; of this package the one place that makes one.

The child inherits two descriptors: its end of the link, and the locked `tier.lock`. The lock
belongs to the open file, which after the start only the child holds: it is free the moment the
child is gone, however it went, and not before. So two tiers never run over one directory.
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
"""What the tier process keeps in log directories, beside the partitions."""


def take_tier_lock(disk: Disk, state_dir: Path) -> OpenFile | None:
    """Take `tier.lock` of the directory, or None while a tier still holds it.

    What the file says does not matter, only who has it open.

    Args:
        disk: files.
        state_dir: where it lies.

    Raises:
        OSError: it cannot be opened.
    """
    file = disk.open_write(state_dir / LOCK_NAME)
    try:
        fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return file


def start_tier_process(link_fd: int, lock: OpenFile, arguments: Sequence[str] = ()) -> ChildProcess:
    """Start the child; the caller closes its own copies of the two descriptors afterwards.

    Must be called on the thread that lives as long as the broker: the child asks to die with it.
    """
    return _start_child(link_fd, (link_fd, lock.fd), arguments)


class EarlyTierProcess:
    """A first tier process that imports its modules while the broker still imports its own.

    A start is a second quicker by it, where there are two cores. Called as `start_tier_process`: it
    hands the descriptors to the process that waits, once; every later one is started again. To be
    made on the same thread.
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
