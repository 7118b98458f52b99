"""A server of HTTP that answers as a function of a test says, and remembers what it was asked."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Request:
    """What was asked; the names of `headers` may be looked up in any case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class AnsweringServer:
    """The server, on a free port of 127.0.0.1.

    Attributes:
        answer: called on the server's threads with each request.
        requests: all that have come so far.
        url: what a client takes for the store.
    """

    def __init__(self, answer: Callable[[Request], Answer] = lambda _: Answer()) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1  # an answer leaves in one write, as from a store

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = Request(self.command, self.path, self.headers, body)
                outer.requests.append(request)
                answer = outer.answer(request)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in answer.headers:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body if self.command != "HEAD" else b"")

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Quiet: a client that goes away is no news."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def asked(self) -> list[str]:
        return [f"{one.method} {one.target}" for one in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def error(status: int, code: str, words: str = "no") -> Answer:
    """An error as S3 words it; without a code a bare status, as of a proxy."""
    if not code:
        return Answer(status)
    return Answer(status, f"<Error><Code>{code}</Code><Message>{words}</Message></Error>".encode())
