"""A stream over a range of an object that is fetched in pieces of bounded size.

Must not know: where the pieces come from.
"""

import io
from collections.abc import Callable

from rsm_plugins.api import RetriableRemoteStorageError
from runtime.override import override


class PieceStream(io.RawIOBase):
    """Bytes `[position, end)` of an object; the next piece is fetched when the last is used up.

    Attributes:
        position: Of the next byte that will be read.
        cut: The present piece is shorter than requested.
    """

    def __init__(
        self,
        key: str,
        fetch: Callable[[int, int], bytes],
        position: int,
        end: int,
        piece_bytes: int,
    ) -> None:
        """Make it; nothing is fetched yet.

        Args:
            key: For messages.
            fetch: Returns bytes `[begin, end)`, fewer where the object ends.
            position: First byte.
            end: Exclusive.
            piece_bytes: Largest size of one fetch.
        """
        self._key, self._fetch, self._end = key, fetch, end
        self._piece_bytes = piece_bytes
        self._piece = memoryview(b"")
        self.position = position
        self.cut = False

    def fill(self) -> None:
        """Fetch the next piece, if none is held and any is left."""
        if self._piece or self.position >= self._end:
            return
        stop = min(self._end, self.position + self._piece_bytes)
        self._piece = memoryview(self._fetch(self.position, stop))
        self.cut = len(self._piece) < stop - self.position

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: Buffer
        self.fill()
        count = min(len(buffer), len(self._piece))
        if not count and self.position < self._end and len(buffer):
            raise RetriableRemoteStorageError(
                f"fetch of {self._key} ended at {self.position} of {self._end} bytes"
            )
        memoryview(buffer)[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        self.position += count
        return count
