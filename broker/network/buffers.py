"""Memory for frames that are too large for the shared receive buffer.

A frame gets memory as its bytes arrive, not by the length that it announces. A client that
announces 100 MiB and sends ten bytes holds `FIRST_BYTES`. Buffers of finished frames are reused,
because touching fresh pages costs more than receiving into used ones. A very large frame gets an
anonymous mapping, which returns to the system with the frame. The heap would keep tens of
megabytes.
"""

import socket
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

FIRST_BYTES = 256 * 1024
"""Initial size of a frame's buffer; doubled each time it is full."""

PROGRESS_BYTES = 64 * 1024
"""Bytes after which a frame counts as progressing: about 2 KiB/s with a timeout of 30 s."""

KEPT_BUFFERS = 8
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Larger buffers are not kept: they are rare and would hold memory without use."""

Buffer = bytearray | mmap


class FrameBuffers:
    """Recycles buffers. Not thread-safe: belongs to one event loop."""

    __slots__ = ("_free", "_used")

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._used = False

    def take(self, size_bytes: int) -> bytearray:
        """Return a buffer for a frame of `size_bytes`; it may be shorter or longer than that."""
        self._used = True
        if self._free:
            return self._free.pop()
        return bytearray(min(size_bytes, FIRST_BYTES))

    def grow(self, buffer: Buffer, size_bytes: int) -> Buffer:
        """Replace a full buffer by one of up to twice its length that begins with its bytes.

        Above `KEPT_BYTES_MAX` the new buffer has the frame's whole length: a mapping takes its
        pages only when they are written.
        """
        length = min(2 * len(buffer), size_bytes)
        longer: Buffer
        if length <= KEPT_BYTES_MAX:
            longer = bytearray(length)
        else:
            longer = mmap(-1, size_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        longer[: len(buffer)] = buffer
        self.give_back(buffer)
        return longer

    def give_back(self, buffer: Buffer) -> None:
        """Take a buffer back; the caller must keep no view of it."""
        if isinstance(buffer, mmap):
            return  # the pages are freed with the last view of them
        if len(self._free) < KEPT_BUFFERS and len(buffer) <= KEPT_BYTES_MAX:
            self._free.append(buffer)

    def trim(self) -> None:
        """Free all kept buffers if none was taken since the last call."""
        if not self._used:
            self._free.clear()
        self._used = False


class GrowingFrame:
    """A large frame whose bytes arrive, in memory that grows with them.

    Attributes:
        is_whole: All bytes have arrived.
        memory_bytes: Final size of the buffer: the frame's length, or more if a longer buffer was
            reused.
    """

    __slots__ = ("_buffer", "_buffers", "_got", "_progress_at", "_size", "is_whole", "memory_bytes")

    def __init__(self, buffers: FrameBuffers, first: memoryview, size_bytes: int) -> None:
        """Begin with the first bytes; at least one byte of the frame must be missing."""
        self._buffers, self._size, self._got = buffers, size_bytes, len(first)
        buffer: Buffer = buffers.take(size_bytes)
        while len(buffer) < len(first):
            buffer = buffers.grow(buffer, size_bytes)
        buffer[: len(first)] = first
        self._buffer = buffer
        self.memory_bytes = max(size_bytes, len(buffer))
        self._progress_at = self._got + PROGRESS_BYTES
        self.is_whole = False

    def receive(self, sock: socket.socket) -> int:
        """Receive once; 0 means that the stream has ended. Raises the errors of `recv_into`."""
        if self._got == len(self._buffer):
            self._buffer = self._buffers.grow(self._buffer, self._size)
        got = sock.recv_into(memoryview(self._buffer)[self._got : self._size])
        self._got += got
        self.is_whole = self._got == self._size
        return got

    def has_progressed(self) -> bool:
        """True if `PROGRESS_BYTES` have arrived since this last returned True."""
        if self._got < self._progress_at:
            return False
        self._progress_at = self._got + PROGRESS_BYTES
        return True

    def view(self) -> memoryview:
        """The whole frame; valid until `release`."""
        return memoryview(self._buffer)[: self._size]

    def release(self) -> None:
        """Return the memory to the pool."""
        self._buffers.give_back(self._buffer)
