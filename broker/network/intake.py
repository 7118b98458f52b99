"""From the received bytes of a connection to whole frames.

Small frames are parsed in place, in a receive buffer that all connections share. The rest of a cut
frame is copied to the connection. A frame larger than `SMALL_FRAME_BYTES` gets its own buffer, as
soon as `RequestMemory` has room for it, and is received in place.

This module must not depend on the content of a frame or on its answer: that is `Connection`.
"""

import socket
from abc import ABC, abstractmethod
from struct import Struct

from broker.network.buffers import GrowingFrame
from broker.network.dispatch import Peer
from broker.network.registry import CloseConnection
from broker.network.shared import Shared
from broker.network.time_slices import SLICE_NS
from broker.network.unanswered import Unanswered

SMALL_FRAME_BYTES = 32 * 1024
LARGE_BEGINS_BYTES = 4 * 1024
"""A large frame gets its buffer once this much of it has arrived; less is kept as a small one."""
LARGE_READS_MAX = 4
"""Reads into a large frame in one wake-up; then other connections get their time slice."""

_unpack_size = Struct(">i").unpack_from
_HTTP_STARTS = frozenset({b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN"})
_TLS_START = b"\x16\x03"
"""First bytes of a ClientHello: a handshake record of any TLS version (RFC 8446, section 5.1)."""


class Intake(ABC):
    """The receiving half of a connection.

    Attributes:
        peer: Origin of the requests.
        address: The peer's address without its port.
        account: Event loop time used by the address.
        last_active_ms: Monotonic time of the last received bytes or the last answer.
        closed: The socket is closed.
    """

    __slots__ = (
        "_closing",
        "_frame",
        "_frame_begun_ms",
        "_frame_since_ms",
        "_head",
        "_received_ms",
        "_received_ns",
        "_server",
        "_slice_ns",
        "_sock",
        "_taken_bytes",
        "_unanswered",
        "account",
        "address",
        "closed",
        "last_active_ms",
        "peer",
    )

    def __init__(self, server: Shared, sock: socket.socket, peer: Peer) -> None:
        self._server, self._sock = server, sock
        self.peer, self.address = peer, peer.address[0]
        self.account = server.slices.account(self.address)
        self._unanswered = Unanswered()
        # a cut small frame with its size prefix, or frames that wait for resume
        self._head = bytearray()
        self._frame: GrowingFrame | None = None  # a large frame being received
        self._frame_since_ms = 0  # when the frame began or last progressed; 0: there is none
        self._frame_begun_ms = 0  # when the large frame got its memory
        self._taken_bytes = 0  # memory of a large frame that is received, or served out of the loop
        self._slice_ns = self._received_ms = self._received_ns = 0
        self._closing: str | None = None  # reason why nothing more is served
        self.closed = False
        self.last_active_ms = server.clock.monotonic_ms()

    # -- what the connection does

    @abstractmethod
    def _serve(self, frame: memoryview) -> None:
        """Serve a whole frame; its bytes are recycled afterwards unless later requests wait."""

    @abstractmethod
    def _is_full(self) -> bool:
        """True if answers to earlier frames must be sent before a frame may be served."""

    @abstractmethod
    def _must_pause(self) -> bool:
        """Send ready answers; pause and return True if the next frame may still not be served."""

    @abstractmethod
    def _has_memory(self) -> bool:
        """True if a large frame may begin; if not, pause until there is memory for it."""

    @abstractmethod
    def _give_back(self) -> None:
        """Return the memory of a large frame that is no longer in use."""

    @abstractmethod
    def run_slice(self, now_ns: int) -> None:
        """Serve ready frames for one time slice, which began at `now_ns`."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Close because of a bug or failure in the broker itself."""

    @abstractmethod
    def _end_slice(self) -> None:
        """Pause; serve the rest after the other connections' time slices."""

    @abstractmethod
    def _continue(self) -> None:
        """Send ready answers, then serve waiting frames if they may be served now."""

    @abstractmethod
    def _close_after_answers(self, reason: str, *, quiet: bool = False) -> None:
        """Stop reading; close when the answers to received requests have been sent."""

    @abstractmethod
    def close(self, reason: str, *, quiet: bool = False) -> None:
        """Close now; a second call does nothing."""

    # -- bytes

    def _on_readable(self) -> None:
        account, slices = self.account, self._server.slices
        if account.is_over:
            slices.join(self)
            return
        monotonic_ns = self._server.clock.monotonic_ns
        now_ns = monotonic_ns()
        self._read(now_ns)
        account.used_ns += monotonic_ns() - now_ns
        if account.used_ns > SLICE_NS:
            slices.end(account)

    def _read(self, now_ns: int) -> None:
        """Read once, serve the whole frames, and send."""
        self._slice_ns = self._received_ns = now_ns
        self.last_active_ms = now_ns // 1_000_000
        self._received_ms = self._server.clock.wall_ms()
        try:
            if self._frame is None:
                self._receive()
            else:
                self._receive_large(self._frame)
        except BlockingIOError:
            pass  # the slice began because the socket has room, not because it is readable
        except CloseConnection as cause:
            self._close_after_answers(cause.reason)
        except OSError as error:
            self.close(f"read failed: {error.strerror or error}", quiet=True)
        self._continue()

    def _receive(self) -> None:
        scratch = self._server.scratch
        got = self._sock.recv_into(scratch)
        if got == 0:
            self._end_of_stream()
        elif self._head:
            head, self._head = self._head, bytearray()
            head += memoryview(scratch)[:got]
            self._parse(head, len(head))
        else:
            self._parse(scratch, got)

    def _receive_large(self, frame: GrowingFrame) -> None:
        for _ in range(LARGE_READS_MAX):
            if frame.receive(self._sock) == 0:
                self._end_of_stream()
                return
            if frame.is_whole:
                self._frame, self._frame_since_ms = None, 0
                try:
                    self._serve(frame.view())
                finally:
                    if self._unanswered.behind is None:  # else its bytes are in use
                        frame.release()
                        self._give_back()
                return
            if frame.has_progressed():
                self._frame_since_ms = self.last_active_ms

    def _parse(self, buffer: bytearray, end: int) -> None:
        """Serve the whole frames in buffer[:end] and keep the rest."""
        view = memoryview(buffer)
        position, unanswered = 0, self._unanswered
        limit = self._server.limits.request_bytes_max
        now_ns, slice_end_ns = self._server.clock.monotonic_ns, self._slice_ns + SLICE_NS
        while end - position >= 4:
            (size,) = _unpack_size(buffer, position)
            if not 0 < size <= limit:
                raise CloseConnection(_absurd_size(size, bytes(view[position : position + 4])))
            start = position + 4
            is_whole = end - start >= size
            if not is_whole and (size <= SMALL_FRAME_BYTES or end - start < LARGE_BEGINS_BYTES):
                break
            if unanswered.changes and buffer[start : start + 2] != unanswered.passing:
                unanswered.is_held = True
            if self._is_full() and self._must_pause():
                break
            if not is_whole:
                if self._has_memory():
                    self._begin_large(view[start:end], size, continues=position == 0)
                    return
                break
            position = start + size
            self._serve(view[start:position])
            if self._closing is not None:
                return
            if position < end and now_ns() >= slice_end_ns:
                self._end_slice()
                break
        if position == end:
            self._frame_since_ms = 0
            return
        self._head = bytearray(view[position:end])
        if position or not self._frame_since_ms:
            self._frame_since_ms = self._slice_ns // 1_000_000

    def _begin_large(self, first: memoryview, size: int, *, continues: bool) -> None:
        self._frame = frame = GrowingFrame(self._server.buffers, first, size)
        self._frame_begun_ms = self._slice_ns // 1_000_000
        self._taken_bytes = frame.memory_bytes
        self._server.memory.take(self.address, frame.memory_bytes)
        if not continues or not self._frame_since_ms:
            self._frame_since_ms = self._frame_begun_ms

    def _end_of_stream(self) -> None:
        if self._frame is not None or self._head:
            self.close("the peer ended the stream inside a request")
        else:
            self.close("the peer closed the connection", quiet=True)


def _absurd_size(size: int, first: bytes) -> str:
    hint = "; this looks like HTTP" if first in _HTTP_STARTS else ""
    if first.startswith(_TLS_START):
        hint = "; this looks like TLS, and this listener is plaintext"
    return f"a request of {size} bytes is announced{hint}"
