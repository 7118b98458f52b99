"""What an OSError of a file says about its disk: broken, or merely too much asked of this process.

A broken disk takes its directory offline. A process that has used up its descriptors or memory has
a healthy disk: the question that met it fails, and the next one may succeed.
"""

import errno
from typing import Final

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


def is_exhausted(error: OSError) -> bool:
    """Whether this process has too little left of something: the disk is not to blame."""
    return error.errno in EXHAUSTED


def way_out(error: OSError) -> str:
    """What an operator can do about an error of exhaustion, for a log line."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "let the process open more files (ulimit -n, fs.file-max) or lower max.connections"
    if error.errno == errno.ENOMEM:
        return "give the process more memory"
    return "it is tried again"
