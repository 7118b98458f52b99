"""The cause of a file's OSError: a broken disk, or an exhausted process.

A broken disk takes its directory offline. A process without free descriptors or memory has a
healthy disk: the request that met the error fails, and the next one may succeed.
"""

import errno
import logging
import os
import resource
from typing import Final

from runtime.incidents import Incident
from runtime.log_context import limited

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
"""Errors of a connection: when a file is sent over a socket, they do not concern the file."""


MORE_FILES = "let the process open more files (ulimit -n, fs.file-max) or lower max.connections"
DESCRIPTORS_RESERVED = 500
"""Descriptors kept for files that are opened after a connection is accepted; half of the limit if
it is small."""


def is_exhausted(error: OSError) -> bool:
    """Whether this process has run out of a resource, so that the disk is not the cause."""
    return error.errno in EXHAUSTED


def remedy(error: OSError) -> str:
    """The remedy for an error of exhaustion, for a log line."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return MORE_FILES
    if error.errno == errno.ENOMEM:
        return "give the process more memory"
    return "it is tried again"


def descriptors_for_connections() -> int:
    """Below this number a descriptor may be a connection's; those above are for files.

    The system assigns the lowest free number. So refusing connections from here on leaves a reserve
    that only files can use: segments, indexes and checkpoints are opened when needed.
    """
    limit = descriptors_max()
    return limit - min(DESCRIPTORS_RESERVED, limit // 2)


def descriptors_max() -> int:
    """Number of descriptors that this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_descriptors() -> int:
    """Number of descriptors that this process has open.

    Before Linux 6.2 that takes a microsecond or more for each of them.
    """
    count = os.stat("/proc/self/fd").st_size  # since Linux 6.2; 0 before
    return count or len(os.listdir("/proc/self/fd"))


def half_done(error: OSError, what: str) -> OSError:
    """The error of a step that must not stay half done: never one of exhaustion.

    Returns:
        An error whose cause is `error`, even if it is kept and not raised.
    """
    made = OSError(errno.EIO, f"{what}: {error}")
    made.__cause__ = error
    return made


def is_of_exhaustion(logger: logging.Logger, what: str, error: OSError) -> bool:
    """Whether `what` cannot be used only for now; then that is logged.

    All callers share one line a minute: it is enough for an operator.
    """
    if not is_exhausted(error):
        return False
    what = f"{what} cannot be used now"
    line = Incident.EXHAUSTED.line(what=what, error=error, remedy=remedy(error))
    limited.error(logger, line)
    return True
