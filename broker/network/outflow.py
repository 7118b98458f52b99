"""Sends the answers of a connection, including those from files that are not in the page cache.

A send ends when the socket is full, the time slice is over, or the next piece of a file is cold. It
continues when the socket has room again, or when a thread has read the cold piece: the event loop
never waits for a disk.
"""

import socket
from collections.abc import Callable

from broker.network.sender import FileFailed, Sender, SendFailed
from broker.network.shared import Shared
from runtime.disk import FileRegion


class Outflow:
    """Sends what one connection's `Sender` holds.

    Attributes:
        since_ms: When the peer last took a byte of the data waiting for it (monotonic); 0: none
            waits.
        is_waiting: Waits until the socket has room, or the next time slice begins.
    """

    __slots__ = (
        "_close",
        "_ended",
        "_is_warming",
        "_now_ns",
        "_on_capacity",
        "_sender",
        "_sent_enough",
        "_server",
        "_sock",
        "is_waiting",
        "since_ms",
    )

    def __init__(
        self,
        server: Shared,
        sock: socket.socket,
        sender: Sender,
        on_capacity: Callable[[], None],
        close: Callable[[str, bool], None],
    ) -> None:
        """Prepare to send from `sender`; the connection calls `end` when it closes.

        Args:
            server: Owner of the event loop and of the threads that read files.
            sock: Non-blocking socket of the connection.
            sender: Queue to send from.
            on_capacity: Called when more can be sent.
            close: Called with a reason when sending has failed, and with True for an ordinary end.
        """
        self._server, self._sock, self._sender = server, sock, sender
        self._on_capacity, self._close = on_capacity, close
        self._now_ns = server.clock.monotonic_ns
        self.since_ms = 0
        self.is_waiting = self._is_warming = self._ended = False
        self._sent_enough = False  # the rest waits for the next time slice

    def send(self) -> bool:
        """Send as much as possible now; returns whether nothing is left."""
        if self._ended or self._is_warming or self._sent_enough:
            return False
        sender = self._sender
        if sender.unsent_bytes:
            before = sender.unsent_bytes
            try:
                cold = sender.send()
            except SendFailed as failure:
                if isinstance(failure, FileFailed):
                    self._server.read_failures.note(failure.path, failure.error)
                self._close(str(failure), False)
                return False
            except OSError as error:
                self._close(f"write failed: {error.strerror or error}", True)
                return False
            sender.note_sent(self._now_ns())
            if cold is not None:
                self._warm(cold)
                return False
            if sender.unsent_bytes:
                if not self.since_ms or sender.unsent_bytes != before:
                    self.since_ms = self._server.clock.monotonic_ms()
                self._sent_enough = sender.slice_is_over
                if not self.is_waiting:
                    self.is_waiting = True
                    self._server.loop.add_writer(self._sock, self._on_writable)
                return False
        self.since_ms = 0
        if self.is_waiting:
            self._wait_no_longer()
        return True

    def _wait_no_longer(self) -> None:
        self.is_waiting = False
        self._server.loop.remove_writer(self._sock)

    def _on_writable(self) -> None:
        """The peer has freed memory, or the other connections have had their time slice."""
        self._sent_enough = False
        self._on_capacity()

    def _warm(self, piece: FileRegion) -> None:
        """Have a thread read a piece that the page cache does not hold."""
        self._is_warming = True
        self.since_ms = 0
        if self.is_waiting:
            self._wait_no_longer()

        def done(data: bytes | BaseException) -> None:
            self._is_warming = False
            if isinstance(data, OSError):
                self._server.read_failures.note(piece.file.path, data)
            if self._ended:
                return
            if isinstance(data, BaseException):
                self._close(f"cannot read {piece.file.path}: {data}", False)
                return
            try:
                self._sender.replace_head(piece, data)
            except SendFailed as failure:
                self._close(str(failure), False)
                return
            self._on_capacity()

        self._server.read_cold(piece, done)

    def end(self) -> None:
        """Send nothing more: the connection is closed."""
        self._ended = True
        if self.is_waiting:
            self._wait_no_longer()
        self._on_capacity = self._close = (
            _nothing  # breaks the reference cycle of connection and outflow
        )


def _nothing(*_: object) -> None:
    """Replaces the callbacks of a closed connection."""
