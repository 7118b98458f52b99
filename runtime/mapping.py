"""Files of memory, mapped for reading and sent without passing the heap."""

import mmap
from collections.abc import Callable

from runtime.disk import OpenFile


def _nothing() -> None:
    """Nobody is to be told."""


class Mapping(mmap.mmap):
    """The first bytes of a file, read-only; says when the last slice of it is gone.

    A socket copies from it while it sends; `sendfile` would leave the file's own pages in the
    socket's queue, where whoever writes the file next would change what the peer receives.
    """

    _ended: Callable[[], None] = staticmethod(_nothing)

    @classmethod
    def of(cls, file: OpenFile, size_bytes: int, ended: Callable[[], None]) -> memoryview:
        """Map `size_bytes` of `file` and close it.

        Args:
            file: not used by anybody else.
            size_bytes: more than 0, at most the size of the file.
            ended: called once when neither the view nor any slice of it exists any more.
        """
        mapping = cls(file.fd, size_bytes, access=mmap.ACCESS_READ)
        mapping._ended = ended
        file.close()
        return memoryview(mapping)

    def __del__(self) -> None:
        # In a cycle of garbage slices may still exist here, but nobody can reach them any more.
        self._ended()
