"""What an OSError of a file says about its disk: broken, or merely too much asked of this process.

A broken disk takes its directory offline. A process that has used up its descriptors or memory has
a healthy disk: the question that met it fails, and the next one may succeed.
"""

import errno
import logging
import os
import resource
from threading import Lock
from typing import Final

from runtime.clock import Clock, SystemClock

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})
"""Out of descriptors (of the process, of the machine), out of memory, interrupted."""

PEER: Final = frozenset(
    {
        errno.EPIPE,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.ENOTCONN,
        errno.ESHUTDOWN,
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENOBUFS,
    }
)
"""Errors of a connection: where a file is sent over a socket, they are not of the file."""


LOG_EVERY_MS = 60_000
MORE_FILES = "let the process open more files (ulimit -n, fs.file-max) or lower max.connections"
DESCRIPTORS_RESERVED = 500
"""For files beyond those that were open when a connection came; half where the limit is small."""


def is_exhausted(error: OSError) -> bool:
    """Whether this process has too little left of something: the disk is not to blame."""
    return error.errno in EXHAUSTED


def remedy(error: OSError) -> str:
    """What an operator can do about an error of exhaustion, for a log line."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return MORE_FILES
    if error.errno == errno.ENOMEM:
        return "give the process more memory"
    return "it is tried again"


def descriptors_for_connections() -> int:
    """Below this number a descriptor may be a connection's; those above are for files.

    The system gives out the lowest free number. So connections that are refused from here on leave
    a reserve which nothing but files can use: segments, indexes and checkpoints are opened when
    they are needed.
    """
    limit = descriptors_max()
    return limit - min(DESCRIPTORS_RESERVED, limit // 2)


def descriptors_max() -> int:
    """How many descriptors this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_descriptors() -> int:
    """How many descriptors this process has open.

    Before Linux 6.2 that takes a microsecond or more for each of them.
    """
    count = os.stat("/proc/self/fd").st_size  # since Linux 6.2; 0 before
    return count or len(os.listdir("/proc/self/fd"))


def half_done(error: OSError, what: str) -> OSError:
    """The error of a step that must not stay half done: never one of exhaustion.

    Returns:
        An error whose cause is `error`, also where it is kept and not raised.
    """
    made = OSError(errno.EIO, f"{what}: {error}")
    made.__cause__ = error
    return made


class Seldom:
    """Says what happens again and again once a minute, with how often it happened meanwhile."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock, self._lock = clock or SystemClock(), Lock()
        self._next_ms: int | None = None
        self._unsaid = 0

    def error(self, logger: logging.Logger, text: str) -> None:
        """Log at ERROR, unless the last line is less than a minute old. Safe for all threads."""
        self._log(logger, logging.ERROR, text)

    def warning(self, logger: logging.Logger, text: str) -> None:
        """As `error`, at WARNING."""
        self._log(logger, logging.WARNING, text)

    def _log(self, logger: logging.Logger, level: int, text: str) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if self._next_ms is not None and now_ms < self._next_ms:
                self._unsaid += 1
                return
            unsaid, self._unsaid, self._next_ms = self._unsaid, 0, now_ms + LOG_EVERY_MS
        logger.log(level, "%s (not said meanwhile: %d)", text, unsaid)


exhaustion: Final = Seldom()
"""For all who meet an error of exhaustion: one line a minute tells an operator enough."""


def is_of_exhaustion(logger: logging.Logger, what: str, error: OSError) -> bool:
    """Whether `what` cannot be used for now only; then it is said, once a minute."""
    if not is_exhausted(error):
        return False
    exhaustion.error(logger, f"{what} cannot be used now: {error}: {remedy(error)}")
    return True
