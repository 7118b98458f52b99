"""Memory for frames that are too large for the shared receive buffer.

A frame gets memory as its bytes arrive, never for the length it claims: a client that announces
100 MiB and sends ten bytes holds `FIRST_BYTES`. Buffers of finished frames are kept for the next
ones, because touching fresh pages costs more than receiving into used ones.
"""

FIRST_BYTES = 256 * 1024
"""What a frame gets to begin with; doubled each time it is full."""

KEPT_BUFFERS = 8
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Larger buffers are not kept: they are rare and would sit in memory for nothing."""


class FrameBuffers:
    """Recycles buffers; belongs to one event loop."""

    __slots__ = ("_free", "_used")

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._used = False

    def take(self, size_bytes: int) -> bytearray:
        """Give a buffer for a frame of `size_bytes`; it may be shorter or longer than that."""
        self._used = True
        if self._free:
            return self._free.pop()
        return bytearray(min(size_bytes, FIRST_BYTES))

    def grow(self, buffer: bytearray, size_bytes: int) -> bytearray:
        """Exchange a full buffer for one of up to twice the length that begins with its bytes."""
        longer = bytearray(min(2 * len(buffer), size_bytes))
        longer[: len(buffer)] = buffer
        self.give_back(buffer)
        return longer

    def give_back(self, buffer: bytearray) -> None:
        """Take a buffer back; nobody may look at it any more."""
        if len(self._free) < KEPT_BUFFERS and len(buffer) <= KEPT_BYTES_MAX:
            self._free.append(buffer)

    def trim(self) -> None:
        """Free what was not needed since the last call."""
        if not self._used:
            self._free.clear()
        self._used = False
