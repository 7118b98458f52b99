"""What `tidemark rsm new` writes: how it talks to a store, and what it makes of the answers."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from types import ModuleType
from typing import Any

import pytest

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)

TOKEN = "s3cr3t"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    status, content = 200, b""
    heard: list[str]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def answer(self) -> None:
        self.server.heard.append(self.headers["Authorization"])
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.server.content)

    do_GET = do_HEAD = do_PUT = do_DELETE = answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.heard = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def written() -> Any:
    text = files("tidemark.rsm").joinpath("template", "plugin.py.txt").read_text()
    module = ModuleType("kv_store")
    exec(compile(text.replace("@CLASS@", "Kv"), "kv_store.py", "exec"), module.__dict__)
    return module


def store(written: Any, server: _Server, scheme: str = "http") -> Any:
    manager = written.KvStorageManager()
    manager.configure({"url": f"{scheme}://127.0.0.1:{server.server_port}/kv", "token": TOKEN})
    return manager._store


@pytest.mark.parametrize(
    "url",
    ["ftp://h/", "h:80/x", "http://", "/only/a/path", "http://h:port/", "http://u:p@h/"],
)
def test_a_url_of_another_scheme_or_without_a_host_is_refused(written: Any, url: str) -> None:
    with pytest.raises(ValueError, match=r"rsm\.config\.url="):
        written.KvStorageManager().configure({"url": url})


def test_https_is_never_spoken_in_clear_text(written: Any, server: _Server) -> None:
    with pytest.raises(RetriableRemoteStorageError, match="GET https://127"):
        store(written, server, "https").request("GET", "a")
    assert server.heard == []
    store(written, server).request("GET", "a")
    assert server.heard == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize("status", [404, 410])
@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("GET", "a", RemoteResourceNotFoundError),
        ("HEAD", "a", RemoteResourceNotFoundError),
        ("GET", "?prefix=a", RemoteStorageError),
        ("PUT", "a", RemoteStorageError),
    ],
)
def test_only_a_read_of_an_object_finds_it_missing(
    written: Any,
    server: _Server,
    method: str,
    path: str,
    status: int,
    error: type[RemoteStorageError],
) -> None:
    server.status = status
    with pytest.raises(RemoteStorageError) as raised:
        store(written, server).request(method, path)
    assert type(raised.value) is error


def test_deleting_what_is_not_there_is_success(written: Any, server: _Server) -> None:
    server.status = 404
    store(written, server).delete(["a"])
    server.status = 403
    with pytest.raises(RemoteStorageError):
        store(written, server).delete(["a"])


@pytest.mark.parametrize("status", [404, 403, 503])
def test_an_error_says_request_status_and_answer_but_no_token(
    written: Any, server: _Server, status: int
) -> None:
    server.status, server.content = status, f"no: {TOKEN} ".encode() + b"y" * 1_000
    with pytest.raises(RemoteStorageError) as raised:
        store(written, server).request("GET", "a/b")
    said = str(raised.value)
    url = f"http://127.0.0.1:{server.server_port}/kv/a/b"
    assert said.startswith(f"GET {url}: the store answers {status} ")
    assert said.count("y") == 200 - len("no: (hidden) ")
    assert TOKEN not in said


def test_a_store_that_ignores_range_is_found_out(written: Any, server: _Server) -> None:
    server.content = bytes(100)
    with pytest.raises(RemoteStorageError, match=r"ignores Range: 10 bytes .* sends 100") as raised:
        store(written, server).piece("a", 20, 30)
    assert not isinstance(raised.value, RetriableRemoteStorageError)
    assert store(written, server).piece("a", 0, 100) == bytes(100)  # all of it was asked for
