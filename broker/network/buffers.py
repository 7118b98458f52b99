"""Memory for frames that are too large for the shared receive buffer.

A frame gets memory as its bytes arrive, never for the length it claims: a client that announces
100 MiB and sends ten bytes holds `FIRST_BYTES`. Buffers of finished frames are kept for the next
ones, because touching fresh pages costs more than receiving into used ones. A very large one gets
pages of its own, which go back to the system with it: the heap would keep tens of megabytes.
"""

import socket
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

FIRST_BYTES = 256 * 1024
"""What a frame gets to begin with; doubled each time it is full."""

PROGRESS_BYTES = 64 * 1024
"""So many further bytes of a frame are progress: 2 KiB a second, where they may take 30 s."""

KEPT_BUFFERS = 8
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Larger buffers are not kept: they are rare and would sit in memory for nothing."""

Buffer = bytearray | mmap


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

    def grow(self, buffer: Buffer, size_bytes: int) -> Buffer:
        """Exchange a full buffer for one of up to twice the length that begins with its bytes.

        Above `KEPT_BYTES_MAX` it has the whole length: its pages are there when they are written.
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
        """Take a buffer back; nobody may look at it any more."""
        if isinstance(buffer, mmap):
            return  # its pages go when the last view of it does
        if len(self._free) < KEPT_BUFFERS and len(buffer) <= KEPT_BYTES_MAX:
            self._free.append(buffer)

    def trim(self) -> None:
        """Free what was not needed since the last call."""
        if not self._used:
            self._free.clear()
        self._used = False


class GrowingFrame:
    """A large frame whose bytes arrive, in memory that grows with them.

    Attributes:
        is_whole: all its bytes are there.
        memory_bytes: what it takes in the end: its length, or that of a longer buffer it was given.
    """

    __slots__ = ("_buffer", "_buffers", "_got", "_progress_at", "_size", "is_whole", "memory_bytes")

    def __init__(self, buffers: FrameBuffers, first: memoryview, size_bytes: int) -> None:
        """Begin with the bytes that are there; at least one is missing."""
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
        """Receive once; 0: the stream has ended. Raises what `recv_into` does."""
        if self._got == len(self._buffer):
            self._buffer = self._buffers.grow(self._buffer, self._size)
        got = sock.recv_into(memoryview(self._buffer)[self._got : self._size])
        self._got += got
        self.is_whole = self._got == self._size
        return got

    def has_progressed(self) -> bool:
        """Whether `PROGRESS_BYTES` have come since it last said so."""
        if self._got < self._progress_at:
            return False
        self._progress_at = self._got + PROGRESS_BYTES
        return True

    def view(self) -> memoryview:
        """The frame, once it is whole; until `release`."""
        return memoryview(self._buffer)[: self._size]

    def release(self) -> None:
        """Give the memory back."""
        self._buffers.give_back(self._buffer)
