"""One client's connection: whole frames in, answers out in the order of the requests.

It runs on the event loop with a non-blocking socket and without its own task. A wake-up reads once,
serves each whole frame it received, and sends all answers with one call. `Intake` receives the
frames, `Unanswered` keeps the order of the answers, and `Outflow` sends them.

Reading pauses in these cases:

* Too many requests are unanswered, or too many bytes wait for the peer, also in front of a large
  frame. So a client that never reads has a bounded cost, and its TCP window closes.
* A request is being served that later ones must not overtake, because they may depend on it.
* A large frame comes while no request memory is left.

Whole frames that are left at the end of the connection's time slice wait for its next one.
"""

import logging
import select
import socket
from asyncio import Future

from broker.network.authentication import Session
from broker.network.buffers import PROGRESS_BYTES
from broker.network.dispatch import Answer, Peer
from broker.network.intake import SMALL_FRAME_BYTES, Intake
from broker.network.outflow import Outflow
from broker.network.registry import CloseConnection
from broker.network.sender import Sender
from broker.network.shared import Shared
from broker.network.time_slices import SLICE_NS
from broker.network.unanswered import Slot
from runtime.incidents import Incident
from runtime.log_context import limited

log = logging.getLogger(__name__)


class Connection(Intake):
    """A connection from accept to close; its methods must be called on the event loop."""

    __slots__ = (
        "_closing_quiet",
        "_outflow",
        "_paused",
        "_reading",
        "_sender",
        "_wants_memory",
        "waiting_bytes",
    )

    def __init__(self, server: Shared, sock: socket.socket, peer: Peer) -> None:
        super().__init__(server, sock, peer)
        self._sender = Sender(sock, server.disk)
        self._outflow = Outflow(server, sock, self._sender, self._on_capacity, self._failed)
        self._paused = False
        self._wants_memory = False  # a large frame waits until others give theirs back
        self._closing_quiet = False
        self.waiting_bytes = 0  # see `Holder`
        self._reading = True
        server.loop.add_reader(sock, self._on_readable)

    @property
    def is_idle(self) -> bool:
        """True if no request is begun, being served, or waiting to be sent."""
        return not (
            self._unanswered.slots
            or self._sender.unsent_bytes
            or self._head
            or self._frame is not None
        )

    # -- serving

    def _serve(self, frame: memoryview) -> None:
        session = self.peer.session
        is_unknown = session.principal is None
        if is_unknown:
            self._check_unknown(session, frame)
        answer = self._server.dispatcher.dispatch(
            self.peer, frame, self._received_ms, self._received_ns, self._slice_ns
        )
        if type(answer) is tuple:
            if self._unanswered.slots:
                self._unanswered.keep(answer)
            else:
                self._sender.add(answer)
        elif answer is not None:
            assert isinstance(answer, Future)
            slot = self._unanswered.wait_for(answer)
            answer.add_done_callback(lambda future: self._answered(slot, future))
            if self._unanswered.behind is not None:
                self._pause()
        if is_unknown:
            self._on_authenticated(session)

    def _check_unknown(self, session: Session, frame: memoryview) -> None:
        """Raise CloseConnection for a request that needs a principal."""
        if len(frame) > SMALL_FRAME_BYTES or not session.allows(int.from_bytes(frame[:2], "big")):
            raise CloseConnection("a request before authentication")

    def _on_authenticated(self, session: Session) -> None:
        """Serve all requests of an authenticated peer; close the connection of a refused one."""
        if session.principal is not None:
            self._server.authenticated(self)
        elif session.refusal is not None:
            self._close_after_answers(session.refusal)

    def _answered(self, slot: Slot, future: Future[Answer | None]) -> None:
        """Send an answer that is ready now, and answers that waited behind it."""
        if future.cancelled():
            return
        failure = self._unanswered.settle(slot, future)
        if self.closed:
            return
        self.last_active_ms = self._server.clock.monotonic_ms()
        if self._taken_bytes and self._frame is None and self._unanswered.behind is None:
            self._give_back()
        if failure is not None:
            self._close_after_answers(failure)
        self._unanswered.move_ready(self._sender)
        self._pump()

    # -- time slices and pauses

    def _must_pause(self) -> bool:
        self._send()  # a client that reads should not be held up
        if not self._is_full() and not self.closed:
            return False
        self._pause()
        return True

    def _pause(self) -> None:
        self._paused = True
        if self._reading:
            self._reading = False
            self._server.loop.remove_reader(self._sock)

    def _end_slice(self) -> None:
        """Serve the rest after all other connections that have work."""
        self._pause()
        self._server.slices.join(self)

    def run_slice(self, now_ns: int) -> None:
        """Continue for one time slice of the address, which began at `now_ns`."""
        if self._paused or self._closing is not None:
            self._slice_ns = now_ns
            self._continue()
        else:
            self._read(now_ns)

    def _is_full(self) -> bool:
        limits, unanswered, sender = self._server.limits, self._unanswered, self._sender
        return (
            unanswered.behind is not None
            or unanswered.is_held
            or len(unanswered.slots) + len(sender.queue) >= limits.in_flight_max
            or sender.unsent_bytes + unanswered.kept_bytes > limits.unsent_bytes_max
        )

    def _on_capacity(self) -> None:
        """The socket has room: continue sending, within the time slice of the address."""
        if self.account.is_over:
            self._server.slices.join(self)
        else:
            self._serve_now()

    def _serve_now(self) -> None:
        account, monotonic_ns = self.account, self._server.clock.monotonic_ns
        self._slice_ns = monotonic_ns()
        self._continue()
        account.used_ns += monotonic_ns() - self._slice_ns
        if account.used_ns > SLICE_NS:
            self._server.slices.end(account)

    def _pump(self) -> None:
        """Send ready answers; if that frees space, serve waiting frames and resume reading."""
        self._send()
        if self._paused and self._may_resume():
            self._on_capacity()

    def _continue(self) -> None:
        self._send()
        while self._paused and self._may_resume():
            self._resume()
            self._send()

    def _may_resume(self) -> bool:
        """True if a paused connection may serve again."""
        if self._wants_memory or self in self.account.queue:
            return False
        return not self.closed and self._closing is None and not self._is_full()

    def _resume(self) -> None:
        self._paused = False
        self._frame_since_ms = 0  # reading was paused, so the peer's time-out begins again
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

    def _send(self) -> None:
        is_all = self._outflow.send()
        if is_all and self._closing is not None and not self._unanswered.slots:
            self.close(self._closing, quiet=self._closing_quiet)
        elif not is_all or self._unanswered.kept_bytes != self.waiting_bytes:
            self._notify_waiting()

    def _notify_waiting(self) -> None:
        if not self.closed:
            waiting_bytes = self._sender.memory_bytes + self._unanswered.kept_bytes
            self._server.unsent.change(waiting_bytes - self.waiting_bytes)
            self.waiting_bytes = waiting_bytes

    # -- memory

    def _has_memory(self) -> bool:
        if self.peer.session.principal is None:
            raise CloseConnection("a large request before authentication")
        if self._server.memory.ask(self):
            return True
        self._wants_memory = True
        self._pause()
        return False

    def memory_is_there(self) -> None:
        """Receive the large frame that waited for `RequestMemory`."""
        self._wants_memory = False
        self._server.slices.leave(self)
        self._serve_now()

    def _give_back(self) -> None:
        if self._taken_bytes:
            self._server.memory.give_back(self.address, self._taken_bytes)
            self._taken_bytes = 0

    def _leave_queue(self) -> None:
        if self._wants_memory:
            self._wants_memory = False
            self._server.memory.leave(self)

    def _want_no_memory(self) -> None:
        """Receive nothing more: leave the queue for memory, release memory that is unused."""
        self._leave_queue()
        if self._frame is not None:
            self._frame.release()
            self._frame = None
        elif self._unanswered.behind is not None and self._taken_bytes:
            # A produce continues after its client has gone, and uses its batches until it is done.
            memory, address, taken = self._server.memory, self.address, self._taken_bytes
            self._taken_bytes = 0
            self._unanswered.behind.add_done_callback(lambda _: memory.give_back(address, taken))
        self._give_back()

    def memory_held_ms(self, now_ms: int) -> int:
        """Milliseconds since it began to receive a large request; 0: it receives none."""
        return 0 if self._frame is None else now_ms - self._frame_begun_ms

    def _failed(self, reason: str, quiet: bool) -> None:
        self.close(reason, quiet=quiet)

    # -- end

    def check_deadlines(self, now_ms: int) -> None:
        """Close if the peer is too slow in sending a request or taking an answer, or idle."""
        limits = self._server.limits
        if self._unanswered.behind is not None and self._is_gone():
            self.close("the peer closed the connection", quiet=True)
        elif self._outflow.since_ms and now_ms - self._outflow.since_ms > limits.write_ms_max:
            self.close(f"the peer took no byte of its answers for {limits.write_ms_max} ms")
        elif (
            self._frame_since_ms
            and not self._paused
            and self not in self.account.queue
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

    def _is_gone(self) -> bool:
        """True if the peer has closed its end, even if bytes of it are unread."""
        poll = select.poll()
        poll.register(self._sock, select.POLLRDHUP)
        return bool(poll.poll(0))

    def finish(self) -> None:
        """Serve nothing new; close when all received requests are answered."""
        self._close_after_answers("the broker is shutting down", quiet=True)
        self._pump()

    def _close_after_answers(self, reason: str, *, quiet: bool = False) -> None:
        """Read no more; close when the answers to earlier requests have been sent."""
        if self._closing is None:
            self._closing, self._closing_quiet = reason, quiet
            self._head = bytearray()
            self._want_no_memory()
            if self._reading:
                self._reading = False
                self._server.loop.remove_reader(self._sock)

    def fail(self, error: Exception) -> None:
        """Close because of a bug or failure in the broker itself; logged at ERROR."""
        address, port = self.peer.address
        line = Incident.DEFECT.line(what=f"connection failed: peer={address}:{port}")
        limited.error(log, line, type(error).__name__, exc_info=error)
        self.close("an error inside the broker")

    def close(self, reason: str, *, quiet: bool = False) -> None:
        """Close now, with one log line; a second call does nothing.

        Args:
            reason: For the log; must contain no text of the peer's.
            quiet: An ordinary end, logged at DEBUG.
        """
        if self.closed:
            return
        self.closed = True
        if self._reading:
            self._reading = False
            self._server.loop.remove_reader(self._sock)
        self._server.slices.leave(self)
        self._server.unsent.change(-self.waiting_bytes)
        self._outflow.end()
        self._sock.close()
        self._want_no_memory()
        self._unanswered.cancel()
        self._server.forget(self, self.peer, reason, quiet=quiet)
