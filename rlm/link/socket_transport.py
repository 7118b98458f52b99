"""Envelopes over a Unix stream socket: length-prefixed MessagePack, descriptors as SCM_RIGHTS.

A frame is its size (4 bytes, big-endian, the prefix not counted) and one encoded `Envelope`. The
descriptors of a frame are attached to its first byte, so they arrive before the frame is complete.
They go into a queue in the order of arrival, and the envelope has the number of its own ones.

Any thread may send: under a lock, straight into the socket. Bytes that do not fit wait in a buffer
that the loop drains. Only the loop's thread receives.
"""

import array
import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Sequence

import msgspec

from rlm.link.endpoint import Endpoint, LinkEndedError
from rlm.link.messages import Envelope
from runtime.disk import OpenFile

FRAME_BYTES_MAX = 256 << 20
DESCRIPTORS_MAX = 64
FRAMES_AT_ONCE_MAX = 64
_RECEIVE_BYTES = 256 << 10
_FD_BYTES = array.array("i").itemsize
_ANCILLARY_BYTES = socket.CMSG_SPACE(253 * _FD_BYTES)


def make_socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected stream sockets, with buffers for some hundred requests."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for side in (left, right):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return left, right


class SocketTransport:
    """Carries an endpoint's envelopes over one end of a socket pair, on an asyncio loop."""

    def __init__(
        self, sock: socket.socket, loop: asyncio.AbstractEventLoop, endpoint: Endpoint
    ) -> None:
        sock.setblocking(False)
        self._sock, self._loop, self._endpoint = sock, loop, endpoint
        self._lock = threading.Lock()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Envelope)
        self._unsent: deque[tuple[bytes, tuple[OpenFile, ...]]] = deque()
        self._writer_armed = False
        self._closed = self._has_rest = False
        self._buffer = bytearray()
        self._files: deque[OpenFile] = deque()
        endpoint.connect(self)
        loop.add_reader(sock.fileno(), self._receive)

    def send(self, envelope: Envelope, files: Sequence[OpenFile]) -> None:
        """Send, or queue the bytes that the socket does not take now.

        Raises:
            LinkEndedError: The other side is gone.
        """
        assert len(files) <= DESCRIPTORS_MAX, len(files)
        with self._lock:
            body = self._encoder.encode(envelope)
            frame = len(body).to_bytes(4, "big") + body
            self._unsent.append((frame, tuple(files)))
            if len(self._unsent) > 1:
                return  # the loop is draining already; order must hold
            self._drain()
            if self._unsent and not self._writer_armed:
                self._writer_armed = True
                self._loop.call_soon_threadsafe(self._arm_writer)

    def _drain(self) -> None:
        """Write queued frames until the socket is full, or up to a bound; the lock is held."""
        if self._closed:
            raise LinkEndedError("the link is closed")
        for _ in range(min(FRAMES_AT_ONCE_MAX, len(self._unsent))):
            frame, files = self._unsent[0]
            try:
                if files:
                    sent = socket.send_fds(self._sock, [frame], [file.fd for file in files])
                else:
                    sent = self._sock.send(frame)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise LinkEndedError(f"the link broke: {error}") from error
            if sent == len(frame):
                self._unsent.popleft()
            else:  # the descriptors left with the first byte
                self._unsent[0] = (frame[sent:], ())

    def _arm_writer(self) -> None:
        if not self._closed:
            self._loop.add_writer(self._sock.fileno(), self._writable)

    def _writable(self) -> None:
        ended = False
        with self._lock:
            try:
                self._drain()
            except LinkEndedError:
                ended = True
            if not self._unsent and not self._closed:
                self._writer_armed = False
                self._loop.remove_writer(self._sock.fileno())
        if ended:
            self._endpoint.end()

    def _receive(self) -> None:
        if self._has_rest:
            return  # earlier frames first
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(_RECEIVE_BYTES, _ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._endpoint.end()
            return
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = len(payload) - len(payload) % _FD_BYTES
                received = array.array("i")
                received.frombytes(payload[:whole])
                self._files.extend(OpenFile(fd, "link") for fd in received)
        if not data or flags & socket.MSG_CTRUNC:
            self._endpoint.end()
            return
        self._buffer += data
        self._deliver_frames()

    def _deliver_rest(self) -> None:
        self._has_rest = False
        if not self._closed:
            self._deliver_frames()

    def _deliver_frames(self) -> None:
        """Deliver the received frames, a bounded number at a time: thousands may arrive."""
        buffer = self._buffer
        position, end, left = 0, len(buffer), FRAMES_AT_ONCE_MAX
        while end - position >= 4:
            if left == 0:
                self._has_rest = True
                self._loop.call_soon(self._deliver_rest)
                break
            left -= 1
            size = int.from_bytes(buffer[position : position + 4], "big")
            if size > FRAME_BYTES_MAX:
                self._endpoint.end()
                return
            if end - position - 4 < size:
                break
            body = bytes(buffer[position + 4 : position + 4 + size])
            position += 4 + size
            try:
                envelope = self._decoder.decode(body)
            except msgspec.MsgspecError:
                self._endpoint.end()
                return
            files = tuple(self._files.popleft() for _ in range(envelope.descriptors))
            try:
                self._endpoint.deliver(envelope, files)
            except Exception as error:  # noqa: BLE001 - a loop top, see the loop's handler
                # If it were raised from here, it would be raised again with the next frames. The
                # frames before it would take the descriptors of later ones.
                said = f"a message was not taken: kind={type(envelope.body).__name__}"
                self._loop.call_exception_handler({"message": said, "exception": error})
            if self._closed:
                return
        del buffer[:position]

    def close(self) -> None:
        """End the link; from any thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with contextlib.suppress(OSError):  # the other side may have been faster
            self._sock.shutdown(socket.SHUT_RDWR)
        if self._loop.is_closed():
            self._sock.close()
        else:
            self._loop.call_soon_threadsafe(self._close_on_loop)

    def _close_on_loop(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
