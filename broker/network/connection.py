"""One client's connection: whole frames in, answers out in the order of the requests.

Runs on the event loop with a non-blocking socket and no task of its own. A wake-up reads once,
serves every whole frame in what it got, and sends all answers with one call.

How bytes come in: small frames are parsed where they landed, in a receive buffer that all
connections share. What is left of a cut frame is copied to the connection; a frame larger than
`SMALL_FRAME_BYTES` gets a buffer of its own and is received in place.

Reading pauses while too many requests are unanswered or too many bytes wait for the peer, also in
front of a large frame; so a client that never reads costs a bounded amount, and TCP tells it to
stop. It pauses also behind a request that must not be overtaken: what it changes must be there for
those that follow. Whole frames that are left when the connection's turn is over wait for its next
one.
"""

import socket
from asyncio import Future
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING

from broker.network.buffers import PROGRESS_BYTES, GrowingFrame
from broker.network.dispatch import Answer, InTurnFuture, Peer
from broker.network.registry import CloseConnection
from broker.network.sender import FileFailed, Sender, SendFailed
from runtime.disk import FileRegion

if TYPE_CHECKING:
    from broker.network.server import Server

SMALL_FRAME_BYTES = 32 * 1024
TURN_MS = 5
"""After so long other connections are served, whatever lies ready here: a request may cost a
hundred times another, where its batch begins a segment."""
LOOKS_AFTER = 3
"""The clock is read after so many requests: a look costs a twentieth of a cheap one."""
LARGE_BEGINS_BYTES = 4 * 1024
"""A large frame gets memory of its own when so much of it is there: less is kept as it is."""
LARGE_READS_MAX = 4
"""Reads of one wake-up into a large frame; then the others get their turn."""

_unpack_size = Struct(">i").unpack_from
_HTTP_STARTS = frozenset({b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN"})


class _Slot:
    """A request whose answer is not there yet, or waits for an earlier one."""

    __slots__ = ("answer", "done", "future")

    def __init__(self, future: Future[Answer | None] | None, answer: Answer | None) -> None:
        self.future, self.answer = future, answer
        self.done = future is None


class Connection:
    """A connection from accept to close."""

    __slots__ = (
        "_changes",
        "_closing",
        "_closing_quiet",
        "_frame",
        "_frame_since_ms",
        "_head",
        "_is_behind",
        "_is_held",
        "_kept_bytes",
        "_passing",
        "_paused",
        "_peer",
        "_reading",
        "_received_ms",
        "_sender",
        "_sent_enough",
        "_server",
        "_slots",
        "_sock",
        "_turn_is_over",
        "_turn_since_ms",
        "_warming",
        "_write_since_ms",
        "_writing",
        "closed",
        "last_active_ms",
        "provisional",
    )

    def __init__(
        self,
        server: "Server",
        sock: socket.socket,
        listener_name: str,
        address: tuple[str, int],
        *,
        provisional: bool,
    ) -> None:
        self._server, self._sock = server, sock
        self._peer = Peer(listener_name, address)
        self._sender = Sender(sock, server.disk)
        self._slots: deque[_Slot] = deque()
        self._head = bytearray()  # a cut small frame with its size prefix, or what waits for resume
        self._frame: GrowingFrame | None = None  # a large frame being received
        self._frame_since_ms = 0  # of the frame's first byte or last progress; 0: none is begun
        self._write_since_ms = 0  # 0: nothing waits for the peer
        self._paused = self._writing = self._warming = False
        self._sent_enough = False  # the rest of the answers waits for the next turn
        self._is_behind = False  # a request is served that nothing may overtake
        self._is_held = False  # the next request waits until no change is without an answer
        self._changes = 0  # requests without an answer that only others of their API may pass:
        self._passing = b""  # this one
        self._kept_bytes = 0  # of answers that wait for earlier ones
        self._turn_is_over = False  # whole frames wait for the next turn
        self._turn_since_ms = 0
        self._closing: str | None = None
        self._closing_quiet = False
        self._received_ms = 0
        self.closed = False
        self.provisional = provisional
        self.last_active_ms = server.clock.monotonic_ms()
        self._reading = True
        server.loop.add_reader(sock, self._on_readable)

    @property
    def address(self) -> tuple[str, int]:
        """Who is on the other side: (host, port)."""
        return self._peer.address

    @property
    def is_idle(self) -> bool:
        """Whether no request is begun, being served, or waiting to be sent."""
        return not (
            self._slots or self._sender.unsent_bytes or self._head or self._frame is not None
        )

    # -- in

    def _on_readable(self) -> None:
        clock = self._server.clock
        self.last_active_ms = self._turn_since_ms = clock.monotonic_ms()
        self._received_ms = clock.wall_ms()
        try:
            if self._frame is None:
                self._receive()
            else:
                self._receive_large(self._frame)
        except BlockingIOError:
            return
        except CloseConnection as cause:
            self._close_after_answers(cause.reason)
        except OSError as error:
            self.close(f"read failed: {error.strerror or error}", quiet=True)
        self._go_on()

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
                    if not self._is_behind:  # else it is in use
                        frame.release()
                return
            if frame.has_progressed():
                self._frame_since_ms = self.last_active_ms

    def _parse(self, buffer: bytearray, end: int) -> None:
        """Serve the whole frames in buffer[:end] and keep the rest."""
        view = memoryview(buffer)
        position = 0
        limit = self._server.limits.request_bytes_max
        now_ms, turn_end_ms = self._server.clock.monotonic_ms, self._turn_since_ms + TURN_MS
        unwatched = LOOKS_AFTER
        while end - position >= 4:
            (size,) = _unpack_size(buffer, position)
            if not 0 < size <= limit:
                raise CloseConnection(_absurd_size(size, bytes(view[position : position + 4])))
            start = position + 4
            is_whole = end - start >= size
            if not is_whole and (size <= SMALL_FRAME_BYTES or end - start < LARGE_BEGINS_BYTES):
                break
            if self._changes and buffer[start : start + 2] != self._passing:
                self._is_held = True
            if self._must_pause():
                break
            if not is_whole:
                self._begin_large(view[start:end], size, continues=position == 0)
                return
            position = start + size
            self._serve(view[start:position])
            if self._closing is not None:
                return
            unwatched -= 1
            if unwatched == 0:
                unwatched = LOOKS_AFTER
                if position < end and now_ms() >= turn_end_ms:
                    self._end_turn()
                    break
        if position == end:
            self._frame_since_ms = 0
            return
        self._head = bytearray(view[position:end])
        if position or not self._frame_since_ms:
            self._frame_since_ms = self._turn_since_ms

    def _begin_large(self, first: memoryview, size: int, *, continues: bool) -> None:
        self._frame = GrowingFrame(self._server.buffers, first, size)
        if not continues or not self._frame_since_ms:
            self._frame_since_ms = self._turn_since_ms

    def _end_of_stream(self) -> None:
        if self._frame is not None or self._head:
            self.close("the peer ended the stream inside a request")
        else:
            self.close("the peer closed the connection", quiet=True)

    # -- serving

    def _serve(self, frame: memoryview) -> None:
        if self.provisional:
            self._confirm(frame)
        answer = self._server.dispatcher.dispatch(self._peer, frame, self._received_ms)
        if type(answer) is tuple:
            if self._slots:
                self._slots.append(_Slot(None, answer))
                self._kept_bytes += answer[1]
            else:
                self._sender.add(answer)
        elif answer is not None:
            assert isinstance(answer, Future)
            slot = _Slot(answer, None)
            self._slots.append(slot)
            answer.add_done_callback(lambda future: self._answered(slot, future))
            if type(answer) is InTurnFuture:
                if answer.passing is None:
                    self._is_behind = True
                    self._pause()
                else:
                    self._changes += 1
                    self._passing = answer.passing

    def _confirm(self, frame: memoryview) -> None:
        """Judge a connection over the limit by the client id of its first request."""
        if self._server.client_id_of(frame) not in self._server.limits.exempt_client_ids:
            raise CloseConnection("too many connections")
        self.provisional = False
        self._server.confirmed()

    def _answered(self, slot: _Slot, future: Future[Answer | None]) -> None:
        """An answer that had to wait is there: send it and what waited behind it."""
        if self.closed or future.cancelled():
            return
        slot.done = True
        self.last_active_ms = self._server.clock.monotonic_ms()
        if type(future) is InTurnFuture:
            if future.passing is None:
                self._is_behind = False
            else:
                self._changes -= 1
                self._is_held = self._is_held and self._changes > 0
        cause = future.exception()
        if cause is not None:
            # Nothing behind a failed request can be answered in order any more.
            while self._slots.pop() is not slot:
                pass
            reason = cause.reason if isinstance(cause, CloseConnection) else repr(cause)
            self._close_after_answers(reason)
        else:
            answer = slot.answer = future.result()
            self._kept_bytes += 0 if answer is None else answer[1]
        slots = self._slots
        while slots and slots[0].done:
            answer = slots.popleft().answer
            if answer is not None:
                self._kept_bytes -= answer[1]
                self._sender.add(answer)
        self._pump()

    def _must_pause(self) -> bool:
        if not self._is_full():
            return False
        self._send()  # a client that does read is not held up
        if not self._is_full() and not self.closed:
            return False
        self._pause()
        return True

    def _pause(self) -> None:
        self._paused = True
        if self._reading:
            self._reading = False
            self._server.loop.remove_reader(self._sock)

    def _end_turn(self) -> None:
        """Serve the rest when everybody else who has something to do has done it."""
        self._turn_is_over = True
        self._pause()
        self._server.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_is_over = False
        self._pump()

    def _is_full(self) -> bool:
        limits = self._server.limits
        return (
            self._is_behind
            or self._is_held
            or len(self._slots) + len(self._sender) >= limits.in_flight_max
            or self._sender.unsent_bytes + self._kept_bytes > limits.unsent_bytes_max
        )

    def _pump(self) -> None:
        """Send what is ready; where that makes room, serve what had to wait and read on."""
        if self._paused:
            self._turn_since_ms = self._server.clock.monotonic_ms()
        self._go_on()

    def _go_on(self) -> None:
        self._send()
        while self._may_resume():
            self._resume()
            self._send()

    def _may_resume(self) -> bool:
        if not self._paused or self._turn_is_over:
            return False
        return not self.closed and self._closing is None and not self._is_full()

    def _resume(self) -> None:
        self._paused = False
        self._frame_since_ms = 0  # nothing was read meanwhile: that is not the peer's fault
        head, self._head = self._head, bytearray()
        try:
            self._parse(head, len(head))
        except CloseConnection as cause:
            self._close_after_answers(cause.reason)
        self._read_on()

    def _read_on(self) -> None:
        if not (self._paused or self._reading or self.closed) and self._closing is None:
            self._reading = True
            self._server.loop.add_reader(self._sock, self._on_readable)

    # -- out

    def _on_writable(self) -> None:
        """The peer has made room, or everybody else who has something to do has done it."""
        self._sent_enough = False
        self._pump()

    def _send(self) -> None:
        """Send what can be sent now; the rest waits for the peer, a file or the next turn."""
        if self.closed or self._warming or self._sent_enough:
            return
        sender = self._sender
        if sender.unsent_bytes:
            before = sender.unsent_bytes
            try:
                cold = sender.send()
            except SendFailed as failure:
                if isinstance(failure, FileFailed):
                    self._server.read_failures.note(failure.path, failure.error)
                self.close(str(failure))
                return
            except OSError as error:
                self.close(f"write failed: {error.strerror or error}", quiet=True)
                return
            if cold is not None:
                self._warm(cold)
                return
            if sender.unsent_bytes:
                if not self._write_since_ms or sender.unsent_bytes != before:
                    self._write_since_ms = self._server.clock.monotonic_ms()
                self._sent_enough = sender.turn_is_over
                if not self._writing:
                    self._writing = True
                    self._server.loop.add_writer(self._sock, self._on_writable)
                return
        self._write_since_ms = 0
        if self._writing:
            self._writing = False
            self._server.loop.remove_writer(self._sock)
        if self._closing is not None and not self._slots:
            self.close(self._closing, quiet=self._closing_quiet)

    def _warm(self, piece: FileRegion) -> None:
        """Have a thread read what the page cache does not hold; the loop never waits for a disk."""
        self._warming = True
        self._write_since_ms = 0
        if self._writing:
            self._writing = False
            self._server.loop.remove_writer(self._sock)

        def done(data: bytes | BaseException) -> None:
            self._warming = False
            if isinstance(data, OSError):
                self._server.read_failures.note(piece.file.path, data)
            if self.closed:
                return
            if isinstance(data, BaseException):
                self.close(f"cannot read {piece.file.path}: {data}")
                return
            try:
                self._sender.replace_head(piece, data)
            except SendFailed as failure:
                self.close(str(failure))
                return
            self._pump()

        self._server.read_cold(piece, done)

    # -- end

    def check_deadlines(self, now_ms: int) -> None:
        """Close if the peer is too slow in sending a request or taking an answer, or idle."""
        limits = self._server.limits
        if self._write_since_ms and now_ms - self._write_since_ms > limits.write_ms_max:
            self.close(f"the peer took no byte of its answers for {limits.write_ms_max} ms")
        elif (
            self._frame_since_ms
            and not self._paused
            and now_ms - self._frame_since_ms > limits.frame_ms_max
        ):
            self.close(
                f"a request was not complete after {limits.frame_ms_max} ms, "
                f"nor did {PROGRESS_BYTES} more bytes of it come"
            )
        elif self._closing is not None and now_ms - self.last_active_ms > limits.write_ms_max:
            self.close(self._closing, quiet=self._closing_quiet)
        elif self.is_idle and now_ms - self.last_active_ms > limits.idle_ms_max:
            self.close(f"idle for {limits.idle_ms_max} ms", quiet=True)
        elif self.provisional and now_ms - self.last_active_ms > limits.provisional_ms_max:
            self.close("too many connections")

    def finish(self) -> None:
        """Serve nothing new; close when what was asked so far is answered."""
        self._close_after_answers("the broker is shutting down", quiet=True)
        self._pump()

    def _close_after_answers(self, reason: str, *, quiet: bool = False) -> None:
        """Read no more; close when the answers to earlier requests have been sent."""
        if self._closing is None:
            self._closing, self._closing_quiet = reason, quiet
            self._head = bytearray()
            if self._reading:
                self._reading = False
                self._server.loop.remove_reader(self._sock)

    def close(self, reason: str, *, quiet: bool = False) -> None:
        """Close now, with one log line.

        Args:
            reason: for the log; made of our own words and numbers.
            quiet: an ordinary end, logged at DEBUG.
        """
        if self.closed:
            return
        self.closed = True
        loop = self._server.loop
        if self._reading:
            loop.remove_reader(self._sock)
        if self._writing:
            loop.remove_writer(self._sock)
        self._reading = self._writing = False
        self._sock.close()
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.future is not None:
                slot.future.cancel()
        if self._frame is not None:
            self._frame.release()
            self._frame = None
        self._server.forget(self, self._peer, reason, quiet=quiet)


def _absurd_size(size: int, first: bytes) -> str:
    hint = "; this looks like HTTP" if first in _HTTP_STARTS else ""
    return f"a request of {size} bytes is announced{hint}"
