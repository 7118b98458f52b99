"""The HTTP pages: what they say, and that nonsense is answered and ends."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from broker.health import Health, routes
from broker.http import TEXT, HttpAnswer, HttpServer
from runtime.metrics import Registry


def ask(server_of: Callable[[], HttpServer], request: bytes) -> tuple[int, bytes, bytes]:
    """Status, head and body of what a server answers to raw bytes."""

    async def talk() -> bytes:
        server = server_of()
        await server.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request)
            answer = await reader.read()
            writer.close()
            return answer
        finally:
            await server.stop()

    head, _, body = asyncio.run(talk()).partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head, body


def pages() -> HttpServer:
    def broken() -> HttpAnswer:
        raise RuntimeError("a page of ours is broken")

    hello = HttpAnswer(200, TEXT, b"hello")
    return HttpServer("127.0.0.1", 0, {"/hello": lambda: hello, "/broken": broken})


def test_a_page_is_served_with_its_length() -> None:
    status, head, body = ask(pages, b"GET /hello?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (status, body) == (200, b"hello")
    assert b"Content-Length: 5" in head


def test_head_sends_no_body() -> None:
    status, head, body = ask(pages, b"HEAD /hello HTTP/1.1\r\n\r\n")
    assert (status, body) == (200, b"")
    assert b"Content-Length: 5" in head


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nosuch HTTP/1.1\r\n\r\n", 404),
        (b"POST /hello HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /hello FTP/1\r\n\r\n", 400),
        (b"\xff\xfe\xfd \x00\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
    ],
)
def test_nonsense_gets_a_status(request_bytes: bytes, status: int) -> None:
    assert ask(pages, request_bytes)[0] == status


def test_a_client_that_leaves_does_no_harm() -> None:
    async def leave_and_ask() -> bytes:
        server = pages()
        await server.start()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /hel")
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /hello HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer
        finally:
            await server.stop()

    work: Awaitable[bytes] = leave_and_ask()
    assert asyncio.run(work).endswith(b"hello")  # type: ignore[arg-type]


def test_ready_follows_the_stage_and_health_the_checks() -> None:
    health, metrics = Health(1), Registry()
    metrics.counter("seen_total", "Things seen.").inc(3)
    served = routes(health, metrics)
    assert served["/ready"]().status == 503
    health.stage = "running"
    assert served["/ready"]().status == 200
    reasons: list[str] = []
    health.checks["tier"] = lambda: reasons
    assert json.loads(served["/health"]().body)["status"] == "green"
    reasons.append("the store is away")
    answer = served["/health"]()
    assert answer.status == 200
    report = json.loads(answer.body)
    assert (report["status"], report["parts"]) == ("red", {"tier": "red"})
    assert report["reasons"] == ["tier: the store is away"]
    assert served["/ready"]().status == 200
    health.stage = "stopping"
    assert served["/ready"]().status == 503
    assert b"seen_total 3" in served["/metrics"]().body


def test_a_client_that_says_nothing_does_not_hold_up_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stop_beside_a_silent_client() -> bytes:
        server = pages()
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hello HTTP/1.1\r\n")
        probe_reader, probe = await asyncio.open_connection("127.0.0.1", server.port)
        probe.write(b"GET /hello HTTP/1.1\r\n\r\n")
        await probe_reader.read()  # so the first connection was accepted, too
        await server.stop()
        answer = await reader.read()
        writer.close()
        probe.close()
        return answer

    assert asyncio.run(stop_beside_a_silent_client()) == b""
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
