"""A very small HTTP server: metrics, health and readiness, for machines that poll.

Off unless `tidemark.http.listener` names an address. It answers GET of a few fixed paths, one
request a connection, with small limits in size and time. It knows nothing of what it serves: each
path is a function that returns an `HttpAnswer`, at once or, for a page that takes long to make, as
an awaitable.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

_REQUEST_BYTES_MAX: Final = 8_192
_REQUEST_S_MAX: Final = 5.0
_ANSWER_S_MAX: Final = 30.0
_CONNECTIONS_MAX: Final = 64
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, kind and bytes of one answer; `more` follows the body, piece by piece."""

    status: int
    content_type: str
    body: bytes
    more: Sequence[bytes] = ()


Route = Callable[[], HttpAnswer | Awaitable[HttpAnswer]]


class HttpServer:
    """Listens on one address and serves the routes it was given."""

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        """Serve `routes` (path to function) on `host`:`port`; port 0 lets the system choose."""
        self._host, self._port = host, port
        self._routes = dict(routes)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[object]] = set()

    @property
    def port(self) -> int:
        """The port that is listened on, once started."""
        assert self._server is not None, "not started"
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
        """
        self._server = await asyncio.start_server(
            self._serve, self._host, self._port, limit=_REQUEST_BYTES_MAX
        )
        log.info("serving metrics and health: address=%s:%d", self._host, self.port)

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
        self._serving.add(task)
        try:
            if len(self._serving) <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_REQUEST_S_MAX):
                    method, route = await self._read(reader)
                async with asyncio.timeout(_ANSWER_S_MAX):
                    await _send(await self._call(route), writer, with_body=method != "HEAD")
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            log.debug("an HTTP client went away before its answer")
        except asyncio.CancelledError:
            log.debug("an HTTP client is left because the broker stops")
        finally:
            self._serving.discard(task)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> tuple[str, Route]:
        """Read one request: its method, and what answers it."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "", lambda: _text(400, "the request is too long")
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "", lambda: _text(400, "not an HTTP/1 request")
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return "", lambda: _text(405, "only GET is served")
        route = self._routes.get(path)
        if route is None:
            pages = " ".join(self._routes)
            return "", lambda: _text(404, f"no such page; there are: {pages}")
        return method, route

    async def _call(self, route: Route) -> HttpAnswer:
        try:
            answer = route()
            return answer if isinstance(answer, HttpAnswer) else await answer
        except Exception:
            path = next((path for path, known in self._routes.items() if known is route), "")
            log.exception("an HTTP page failed: path=%s", path)
            return _text(500, "internal error; see the broker's log")


def _text(status: int, text: str) -> HttpAnswer:
    return HttpAnswer(status, TEXT, f"{text}\n".encode())


async def _send(answer: HttpAnswer, writer: asyncio.StreamWriter, *, with_body: bool) -> None:
    size = len(answer.body) + sum(map(len, answer.more))
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {size}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode("ascii") + (answer.body if with_body else b""))
    await writer.drain()
    for piece in answer.more if with_body else ():
        writer.write(piece)
        await writer.drain()
