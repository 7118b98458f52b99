"""Requests and answers between two processes, each of which may die at any moment.

`Endpoint` knows which request an answer belongs to and nothing of sockets; a `Transport` carries
envelopes and descriptors. The real transport is `rlm.link.socket_transport`; tests and the
simulator connect two endpoints by `FakeLink`, which delays, and dies with either side.

Any thread may ask, answer and send; requests arrive on the one thread that drives the transport. A
request ends in exactly one of: its answer, `LinkFailureError` (the other side answered `Failure`),
`LinkEndedError`.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kafka_protocol.errors import TidemarkError
from rlm.link.messages import ANSWER, ONE_WAY, REQUEST, AnyMessage, Envelope, Failure
from runtime.disk import OpenFile


class LinkEndedError(TidemarkError):
    """The other process is gone, or this side closed the link; it may have acted on the request."""


class LinkFailureError(TidemarkError):
    """The other side answered that it cannot serve the request."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Transport(Protocol):
    """Carries envelopes in order, each with its descriptors; never blocks for long."""

    def send(self, envelope: Envelope, files: Sequence[OpenFile]) -> None:
        """Send; the descriptors stay open on this side.

        Raises:
            LinkEndedError: The link is down.
        """
        ...

    def close(self) -> None:
        """End the link; the other side notices."""
        ...


@dataclass(frozen=True, slots=True)
class Received:
    """A message with the descriptors that came with it, now owned by the receiver."""

    message: AnyMessage
    files: tuple[OpenFile, ...] = ()


Reply = Callable[..., None]
M = TypeVar("M", bound=AnyMessage)


class RequestHandler(Protocol):
    """Handles a request; `reply(message, files=())` may be called later, once."""

    def __call__(self, received: Received, reply: Reply) -> None:
        """Accept a request or a one-way message; the reply to a one-way message is dropped."""
        ...


class Endpoint:
    """One side of the link."""

    def __init__(self, on_request: RequestHandler, on_end: Callable[[], None]) -> None:
        self._on_request, self._on_end = on_request, on_end
        self._lock = threading.Lock()
        self._next_id = 0
        self._pending: dict[int, Future[Received]] = {}
        self._transport: Transport | None = None
        self._ended = False

    def connect(self, transport: Transport) -> None:
        """Use `transport`; called once, before anything is sent."""
        self._transport = transport

    @property
    def ended(self) -> bool:
        """True once the link is down."""
        return self._ended

    def ask(self, message: AnyMessage, files: Sequence[OpenFile] = ()) -> "Future[Received]":
        """Send a request; the future holds its answer. Never raises."""
        future: Future[Received] = Future()
        with self._lock:
            if self._ended or self._transport is None:
                future.set_exception(LinkEndedError("the link is down"))
                return future
            self._next_id += 1
            request_id = self._next_id
            self._pending[request_id] = future
        self._send(Envelope(REQUEST, request_id, len(files), message), files)
        return future

    def tell(self, message: AnyMessage) -> None:
        """Send a message that has no answer; dropped silently if the link is down."""
        self._send(Envelope(ONE_WAY, 0, 0, message), ())

    def _send(self, envelope: Envelope, files: Sequence[OpenFile]) -> None:
        transport = self._transport
        if transport is None or self._ended:
            return
        try:
            transport.send(envelope, files)
        except LinkEndedError:
            self.end()

    def deliver(self, envelope: Envelope, files: tuple[OpenFile, ...]) -> None:
        """Accept a message from the transport, on the transport's thread."""
        received = Received(envelope.body, files)
        if envelope.kind == ANSWER:
            with self._lock:
                future = self._pending.pop(envelope.id, None)
            if future is None:
                return
            if isinstance(envelope.body, Failure):
                future.set_exception(LinkFailureError(envelope.body.code, envelope.body.message))
            else:
                future.set_result(received)
            return
        answered = envelope.kind == ONE_WAY

        def reply(message: AnyMessage, reply_files: Sequence[OpenFile] = ()) -> None:
            nonlocal answered
            if not answered:
                answered = True
                answer = Envelope(ANSWER, envelope.id, len(reply_files), message)
                self._send(answer, reply_files)

        self._on_request(received, reply)

    def end(self) -> None:
        """Mark the link as down: fail pending requests and call `on_end` once. From any thread."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            pending = list(self._pending.values())
            self._pending.clear()
        if self._transport is not None:
            self._transport.close()
        for future in pending:
            future.set_exception(LinkEndedError("the link ended before the answer came"))
        self._on_end()


class FakeLink:
    """Two endpoints in one process; a message arrives only when the test delivers it.

    `pump` delivers queued messages, oldest first; `cut` drops the rest and ends both sides.
    """

    def __init__(self, left: Endpoint, right: Endpoint) -> None:
        self._sides = (left, right)
        self._queue: deque[tuple[Endpoint, Envelope, tuple[OpenFile, ...]]] = deque()
        self._cut = False
        left.connect(_FakeSide(self, right))
        right.connect(_FakeSide(self, left))

    def _post(self, to: Endpoint, envelope: Envelope, files: Sequence[OpenFile]) -> None:
        if self._cut:
            raise LinkEndedError("the link is cut")
        self._queue.append((to, envelope, tuple(files)))

    def pump(self, count: int = 1_000_000) -> int:
        """Deliver up to `count` messages, including those that they cause; returns their number."""
        delivered = 0
        while self._queue and delivered < count:
            to, envelope, files = self._queue.popleft()
            to.deliver(envelope, files)
            delivered += 1
        return delivered

    def cut(self) -> None:
        """End the connection, as after the death of one side."""
        self._cut = True
        self._queue.clear()
        for side in self._sides:
            side.end()


class _FakeSide:
    __slots__ = ("_link", "_to")

    def __init__(self, link: FakeLink, to: Endpoint) -> None:
        self._link, self._to = link, to

    def send(self, envelope: Envelope, files: Sequence[OpenFile]) -> None:
        self._link._post(self._to, envelope, files)

    def close(self) -> None:
        pass
