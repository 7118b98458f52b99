"""A very small HTTP server, for pages that machines poll and for commands.

It serves one request a connection, with small limits in size and time. One function takes each
request and returns an `HttpAnswer`, or an awaitable if the work is long. `pages` makes such a
function from fixed read-only paths.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from runtime.incidents import Incident
from runtime.log_context import escape, limited

log = logging.getLogger(__name__)

_HEAD_BYTES_MAX: Final = 8_192
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    421: "Misdirected Request",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, kind and bytes of one answer; `more` follows the body, piece by piece.

    `headers` are added to those of each answer. They are not escaped: no client's text goes in.
    """

    status: int
    content_type: str
    body: bytes
    more: Sequence[bytes] = ()
    headers: Sequence[tuple[str, str]] = ()


Reply = HttpAnswer | Awaitable[HttpAnswer]
Route = Callable[[], Reply]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request.

    Attributes:
        method: GET and so on, as it was sent.
        path: Without the query after a question mark.
        headers: By name in lower case; of a repeated one the last.
        body: Empty where the server takes none.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


Respond = Callable[[HttpRequest], Reply]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of one server.

    Attributes:
        body_bytes: Largest body; 0: bodies are not read.
        head_s: Time for the head of a request to arrive.
        body_s: Time for its body, after that.
        answer_s: Time to make and send an answer.
        connections: At a time. A further one replaces the oldest that waits for its peer, to send
            the rest of a request or to read the answer. Without such a one it is closed itself.
        connections_per_ip: Of one address, so that others find places. A further one replaces the
            oldest of its address in the same way.
    """

    body_bytes: int = 0
    head_s: float = 2.0
    body_s: float = 5.0
    answer_s: float = 30.0
    connections: int = 64
    connections_per_ip: int = 16


class _BadRequest(Exception):
    """A request that cannot be read, with its answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.answer = text_answer(status, text)


class HttpServer:
    """Listens on one address and answers each request with one function."""

    def __init__(
        self, host: str, port: int, respond: Respond, limits: HttpLimits | None = None
    ) -> None:
        """Serve on `host`:`port`; port 0 lets the system choose."""
        self._host, self._port = host, port
        self._respond, self._limits = respond, limits or HttpLimits()
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[object], str] = {}  # with its address
        self._waiting: dict[asyncio.Task[object], str] = {}  # the oldest first

    @property
    def port(self) -> int:
        """The bound port, once started."""
        assert self._server is not None, "not started"
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: The address cannot be bound.
        """
        self._server = await asyncio.start_server(
            self._serve, self._host, self._port, limit=_HEAD_BYTES_MAX
        )

    async def stop(self) -> None:
        """Stop listening, and end the connections that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        address = str(writer.get_extra_info("peername")[0])
        try:
            if self._has_room(address):
                self._serving[task] = address
                await self._serve_one(address, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            log.debug("an HTTP client went away before its answer")
        except asyncio.CancelledError:
            log.debug("an HTTP client is left: others need its place, or the broker stops")
        finally:
            self._serving.pop(task, None)
            # Unsent bytes are dropped: `close` would keep the descriptor until they are read.
            writer.transport.abort()

    @contextmanager
    def _gives_way(self, address: str) -> Iterator[None]:
        """Let a newcomer end this connection while it waits for its peer."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = address
        try:
            yield
        finally:
            self._waiting.pop(task, None)

    def _has_room(self, address: str) -> bool:
        """True if there is a place for one more; ends one that waits for its peer if it must."""
        if list(self._serving.values()).count(address) >= self._limits.connections_per_ip:
            own = (task for task, one in self._waiting.items() if one == address)
            oldest = next(own, None)
        elif len(self._serving) >= self._limits.connections:
            oldest = next(iter(self._waiting), None)
        else:
            return True
        if oldest is None:
            return False
        del self._waiting[oldest], self._serving[oldest]
        oldest.cancel()
        return True

    async def _serve_one(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.transport.set_write_buffer_limits(0)  # `drain` waits until all has left
        with_body = True
        try:
            with self._gives_way(address):
                request = await self._read(reader)
        except _BadRequest as error:
            answer = error.answer
        else:
            with_body = request.method != "HEAD"
            async with asyncio.timeout(self._limits.answer_s):
                answer = await self._answer(request)
        with self._gives_way(address):
            async with asyncio.timeout(self._limits.answer_s):
                await _send(answer, writer, with_body=with_body)

    async def _read(self, reader: asyncio.StreamReader) -> HttpRequest:
        async with asyncio.timeout(self._limits.head_s):
            method, path, headers = await self._read_head(reader)
        async with asyncio.timeout(self._limits.body_s):
            body = await self._read_body(reader, headers) if self._limits.body_bytes else b""
        return HttpRequest(method, path, headers, body)

    async def _read_head(self, reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
        """Method, path and headers of a request."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _BadRequest(400, "the request is too long") from None
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise _BadRequest(400, "not an HTTP/1 request")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        return words[0], words[1].partition("?")[0], headers

    async def _read_body(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
        digits, most = headers.get("content-length", "0"), self._limits.body_bytes
        if "transfer-encoding" in headers or not (digits.isascii() and digits.isdigit()):
            raise _BadRequest(400, "a body must come with its Content-Length")
        if len(digits) > 18 or int(digits) > most:
            raise _BadRequest(413, f"a body has at most {most} bytes")
        return await reader.readexactly(int(digits))

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        try:
            answer = self._respond(request)
            return answer if isinstance(answer, HttpAnswer) else await answer
        except Exception as error:  # noqa: BLE001 - logged
            path = escape(request.path, 100)
            line = Incident.DEFECT.line(what=f"an HTTP request failed: path={path}")
            limited.error(log, line, (path, type(error)), exc_info=error)
            return text_answer(500, "internal error; see the broker's log")


def pages(routes: Mapping[str, Route]) -> Respond:
    """Answer GET and HEAD of fixed paths."""

    def respond(request: HttpRequest) -> Reply:
        if request.method not in ("GET", "HEAD"):
            return text_answer(405, "only GET is served")
        route = routes.get(request.path)
        if route is None:
            return text_answer(404, f"no such page; there are: {' '.join(routes)}")
        return route()

    return respond


def text_answer(status: int, text: str) -> HttpAnswer:
    """One line of text."""
    return HttpAnswer(status, TEXT, f"{text}\n".encode())


async def _send(answer: HttpAnswer, writer: asyncio.StreamWriter, *, with_body: bool) -> None:
    size = len(answer.body) + sum(map(len, answer.more))
    beside = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {size}\r\n"
        f"{beside}"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode("ascii") + (answer.body if with_body else b""))
    await writer.drain()
    for piece in answer.more if with_body else ():
        writer.write(piece)
        await writer.drain()
