"""Requests and answers of one open connection, without socket, thread or timer.

Bytes are received in place. The 8 bytes with an answer's length and correlation id come first, then
the answer into its own memory, which is never copied. Answers come in the order of requests. Any
violation of the protocol is an OSError and ends the connection with all its requests.

A request that is not answered in time ends alone, and its answer is dropped when it arrives. When
no other request has time left, the connection ends too: the node may have vanished silently, and a
new connection shows that. It also ends when its oldest request has no answer for
`request_timeout_ms`. A cancelled request has no time and keeps no connection.

Answers count as held from their announcement until their release; above `held_bytes_max` nothing
more is read. Requests still end in their time meanwhile, since their caller decides both. The
connection stays, since the node is not the cause. The bound is that of one connection while it is
open: answers that are held beyond its end do not count for the next.
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from ssl import SSLContext
from struct import Struct
from typing import Any, Final

from kafka_client.requests import (
    CORRELATION_BYTES,
    CORRELATION_ID_MAX,
    GREETING,
    Answer,
    Call,
    NoAnswerError,
    NotSentError,
    encoder,
    greeting,
    served_versions,
)
from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from runtime.clock import Clock

_HEAD: Final = Struct(">ii")
_SIZE: Final = Struct(">i")
AT_ONCE_BYTES: Final = 64 << 10
"""An event loop receives at most this at a time, and decodes no longer answer itself."""

Questions = Generator[tuple[ApiKey, int, Any], Any, None]
Authentication = Callable[[], Questions]
"""Yields requests (API key, version, body) and is sent their decoded answers; raises an OSError
where the node refuses. Runs after ApiVersions, before the first request of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The settings of the connections of one purpose.

    Attributes:
        client_id: In every request's header.
        answer_bytes_max: A longer answer ends the connection.
        held_bytes_max: Reading stops before an answer that would exceed it; one answer is always
            read.
        connect_timeout_ms: For name, connection, TLS, ApiVersions and authentication.
        request_timeout_ms: A connection whose oldest request has waited this long, and not less
            than the request's own time, is closed.
        idle_ms_max: A connection without requests for this time is closed.
        tls: None: no TLS.
        authenticate: SASL; None: no authentication.
    """

    client_id: str
    answer_bytes_max: int = 32 << 20
    held_bytes_max: int = 32 << 20
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    idle_ms_max: int = 540_000
    tls: SSLContext | None = None
    authenticate: Authentication | None = None


def _nothing(*_: object) -> None:
    pass


def _no_questions() -> Questions:
    yield from ()


class Exchange:
    """Requests and answers of one open connection.

    Attributes:
        versions: The versions that the node serves.
        is_ready: Authenticated: requests are sent.
        is_reading: False while the receiver of the answers is behind.
        held_bytes: Of answers that are being received or not released.
        on_capacity: Called when reading may continue.
    """

    def __init__(self, settings: ConnectionSettings, clock: Clock) -> None:
        """The connection is being opened."""
        self.versions: Mapping[int, Versions] = {ApiKey.API_VERSIONS: GREETING}
        self.is_ready, self.is_reading, self.held_bytes = False, True, 0
        self.on_capacity: Callable[[], None] = _nothing
        self._settings, self._clock = settings, clock
        self._client_id = settings.client_id.encode()
        self._waiting: deque[Call] = deque()
        self._asked: deque[tuple[int, Call]] = deque()
        self._correlation_id = 0
        self._outgoing: list[bytes] = []
        self._head, self._filled = bytearray(_HEAD.size), 0
        self._size, self._frame = 0, memoryview(b"")
        self._authentication: Questions | None = None
        self._used_ms = self._opening_ms = clock.monotonic_ms()

    # -- requests

    def opened(self) -> None:
        """The connection is open: send ApiVersions."""
        self._write(greeting(_nothing, self._settings.connect_timeout_ms))

    def add(self, call: Call) -> None:
        """Send a request as soon as possible."""
        self._used_ms = self._clock.monotonic_ms()
        call.ends_ms = self._used_ms + call.timeout_ms
        if self.is_ready:
            self._ask(call)
        else:
            self._waiting.append(call)

    def take_outgoing(self) -> bytes:
        """Remove and return the bytes to be sent now."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def _ask(self, call: Call) -> None:
        try:
            self._write(call)
        except NotSentError as reason:
            call.finish(reason)

    def _write(self, call: Call) -> None:
        number = self._correlation_id
        frame = call.frame(self.versions.get(call.api_key), number, self._client_id)
        self._correlation_id = 0 if number == CORRELATION_ID_MAX else number + 1
        self._asked.append((number, call))
        self._outgoing.append(frame)

    @property
    def is_idle(self) -> bool:
        """True if no request waits for its end."""
        return not self._asked and not self._waiting

    # -- answers

    def buffer(self, bytes_max: int = AT_ONCE_BYTES) -> memoryview:
        """Memory for the next bytes; empty while not `is_reading`."""
        if not self._frame:
            return memoryview(self._head)[self._filled :]
        return self._frame[self._filled : self._filled + bytes_max]

    def received(self, count: int) -> tuple[Call, Answer] | None:
        """Handle `count` bytes written to `buffer`; returns a whole answer with its call.

        Raises:
            OSError: The bytes are no answer to the oldest request.
        """
        self._filled += count
        if not self._frame:
            self._read_head()
        elif self._filled == self._size:
            _, call = self._asked.popleft()
            release = partial(self._release, self._size)
            answer = Answer(call.api_key, call.version, self._frame, release)
            self._frame, self._filled = memoryview(b""), 0
            self._used_ms = self._clock.monotonic_ms()
            if not self.is_ready:
                self._shake_hands(answer)
            elif call.is_done:
                answer.release()
            else:
                return call, answer
        return None

    def _read_head(self) -> None:
        if self._filled < _SIZE.size:
            return
        (self._size,) = _SIZE.unpack_from(self._head)
        if not CORRELATION_BYTES < self._size <= self._settings.answer_bytes_max:
            raise ConnectionError(f"an answer of {self._size} bytes{self._doubt}")
        if self._filled < _HEAD.size:
            return
        _, number = _HEAD.unpack(self._head)
        if not self._asked or self._asked[0][0] != number:
            raise ConnectionError(f"it answers another question: number {number}")
        if self._has_room():
            self._begin_frame()
        else:
            self.is_reading = False

    def _has_room(self) -> bool:
        return not self.held_bytes or (
            self.held_bytes + self._size <= self._settings.held_bytes_max
        )

    def _begin_frame(self) -> None:
        size = self._size
        self.held_bytes += size
        if size <= AT_ONCE_BYTES:
            self._frame = memoryview(bytearray(size))
        else:  # pages of its own: allocated when written, and returned to the system
            self._frame = memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS))[:size]
        self._frame[:CORRELATION_BYTES] = self._head[_SIZE.size :]
        self._filled = CORRELATION_BYTES

    def _release(self, size: int) -> None:
        self.held_bytes -= size
        if not self.is_reading and self._has_room():
            self.is_reading = True
            self._begin_frame()
            self.on_capacity()

    def _shake_hands(self, answer: Answer) -> None:
        try:
            if self._authentication is None:
                self.versions = served_versions(answer)
                self._authentication = (self._settings.authenticate or _no_questions)()
                api_key, version, body = next(self._authentication)
            else:
                api_key, version, body = self._authentication.send(answer.decode())
            encode, timeout_ms = encoder(api_key, body), self._settings.connect_timeout_ms
            self._write(Call(api_key, encode, _nothing, versions=version, timeout_ms=timeout_ms))
        except StopIteration:
            self.is_ready = True
            for call in self._waiting:
                if not call.is_done:
                    self._ask(call)
            self._waiting.clear()
        except (NotSentError, MalformedMessageError) as cause:
            raise ConnectionError(f"authentication: {cause}") from cause
        finally:
            answer.release()

    @property
    def _doubt(self) -> str:
        return "; is this a Kafka listener?" if self._authentication is None else ""

    # -- time and end

    def closed(self) -> ConnectionError:
        """The reason of an end by the other side."""
        return ConnectionError(f"the connection was closed{self._doubt}")

    def pass_time(self) -> int | None:
        """End requests whose time is over; return the ms until the next check, None if unknown.

        Visits every request, so it must not be called for each of them.

        Raises:
            TimeoutError: The connection must be ended.
        """
        settings, now_ms = self._settings, self._clock.monotonic_ms()
        calls = [call for _, call in self._asked] if self.is_ready else list(self._waiting)
        live = [call for call in calls if not call.is_done]
        over = [call for call in live if call.ends_ms <= now_ms]
        ends: list[tuple[int, str]] = []
        if not self.is_ready:
            limit_ms = settings.connect_timeout_ms
            ends.append((self._opening_ms + limit_ms, f"not connected in {limit_ms} ms"))
        elif self.is_reading and calls:
            oldest = calls[0]
            more_ms = max(settings.request_timeout_ms - oldest.timeout_ms, 0)
            reason = f"no answer within {oldest.timeout_ms + more_ms} ms"
            ends.append((oldest.ends_ms + more_ms, reason))
        if self.is_ready and self.is_reading and not live:
            ends.append((self._used_ms + settings.idle_ms_max, "idle"))
        if self.is_reading and over and len(over) == len(live):
            ends.append((over[0].ends_ms, f"no answer within {over[0].timeout_ms} ms"))
        end_ms, reason = min(ends, default=(now_ms + 1, ""))
        if end_ms <= now_ms:
            raise TimeoutError(reason)
        for call in over:
            kind = NoAnswerError if self.is_ready else NotSentError
            call.fail(kind, TimeoutError(f"no answer within {call.timeout_ms} ms"))
        looks = [end for end, _ in ends] + [call.ends_ms for call in live if not call.is_done]
        return min(looks) - now_ms if looks else None

    def end(self, reason: OSError) -> None:
        """End every request without an answer."""
        asked, waiting = list(self._asked), list(self._waiting)
        self._asked.clear()
        self._waiting.clear()
        for _, call in asked:
            call.fail(NoAnswerError, reason)
        for call in waiting:
            call.fail(NotSentError, reason)
