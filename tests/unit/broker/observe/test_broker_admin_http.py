"""The HTTP pages: what they say, and that nonsense is answered and ends."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.observe.health import Health, offline_reasons, routes
from broker.observe.http import TEXT, HttpAnswer, HttpServer, pages
from broker.observe.metrics import MetricsPage
from kafka_protocol.types import TopicPartition
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


def hello_pages() -> HttpServer:
    def broken() -> HttpAnswer:
        raise RuntimeError("a page of ours is broken")

    async def later() -> HttpAnswer:
        await asyncio.sleep(0)
        return HttpAnswer(200, TEXT, b"one ", [b"two ", b"three"])

    hello = HttpAnswer(200, TEXT, b"hello")
    routes = {"/hello": lambda: hello, "/broken": broken, "/later": later}
    return HttpServer("127.0.0.1", 0, pages(routes))


def test_a_page_is_served_with_its_length() -> None:
    status, head, body = ask(hello_pages, b"GET /hello?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (status, body) == (200, b"hello")
    assert b"Content-Length: 5" in head


def test_a_page_that_takes_long_is_waited_for_and_sent_in_pieces() -> None:
    status, head, body = ask(hello_pages, b"GET /later HTTP/1.1\r\n\r\n")
    assert (status, body) == (200, b"one two three")
    assert b"Content-Length: 13" in head
    _, head, body = ask(hello_pages, b"HEAD /later HTTP/1.1\r\n\r\n")
    assert (b"Content-Length: 13" in head, body) == (True, b"")


def test_head_sends_no_body() -> None:
    status, head, body = ask(hello_pages, b"HEAD /hello HTTP/1.1\r\n\r\n")
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
    assert ask(hello_pages, request_bytes)[0] == status


async def test_a_client_that_leaves_does_no_harm() -> None:
    server = hello_pages()
    await server.start()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hel")
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hello HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.endswith(b"hello")
    finally:
        await server.stop()


def test_ready_follows_the_stage_and_health_the_checks() -> None:
    health, metrics = Health(1), Registry()
    metrics.counter("seen_total", "Things seen.").inc(3)
    server = HttpServer("127.0.0.1", 0, pages(routes(health, MetricsPage(metrics))))

    def get(page: str) -> tuple[int, Any]:
        status, _, body = ask(lambda: server, f"GET {page} HTTP/1.1\r\n\r\n".encode())
        return status, body if page == "/metrics" else json.loads(body)

    assert get("/ready")[0] == 503
    health.stage = "running"
    assert get("/ready")[0] == 200
    reasons: list[str] = []
    health.checks["tier"] = lambda: reasons
    assert get("/health")[1]["status"] == "green"
    reasons.append("the store is away")
    status, report = get("/health")
    assert status == 200
    assert (report["status"], report["parts"]) == ("red", {"tier": "red"})
    assert report["reasons"] == ["tier: the store is away"]
    assert get("/ready")[0] == 200
    health.stage = "stopping"
    assert get("/ready")[0] == 503
    assert b"seen_total 3" in get("/metrics")[1]


def test_what_is_late_is_yellow_and_what_is_going_on_is_a_note() -> None:
    health = Health(1)
    unhealthy: list[str] = []
    late: list[str] = []
    health.checks["tier"] = lambda: unhealthy
    health.checks["logs"] = list
    health.warnings["tier"] = lambda: late
    health.notes["tier"] = lambda: ["validated 1 of 3 partitions"]
    report = health.report()
    assert (report["status"], report["reasons"]) == ("green", [])
    assert report["notes"] == ["tier: validated 1 of 3 partitions"]
    late.append("validating takes long")
    report = health.report()
    assert (report["status"], report["reasons"]) == ("yellow", ["tier: validating takes long"])
    assert report["parts"] == {"tier": "yellow", "logs": "green"}
    unhealthy.append("the store is away")
    report = health.report()
    assert (report["status"], report["parts"]) == ("red", {"tier": "red", "logs": "green"})
    assert report["reasons"] == ["tier: the store is away", "tier: validating takes long"]


async def test_a_client_that_says_nothing_does_not_hold_up_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = hello_pages()
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
    assert answer == b""
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_long_start_says_how_far_it_is_until_it_is_over() -> None:
    health = Health(1)
    said = ""
    health.progress = lambda: said
    assert json.loads(health.health_page().body)["stage"] == "starting"
    said = "recovering 3 of 7 partitions"
    assert json.loads(health.health_page().body)["stage"] == said
    answer = health.ready_page()
    assert answer.status == 503
    assert json.loads(answer.body)["reasons"] == [f"the broker is {said}"]
    health.stage = "running"
    assert json.loads(health.health_page().body)["stage"] == "running"
    health.stage, said = "stopping", ""
    assert json.loads(health.health_page().body)["stage"] == "stopping"
    said = "3 of 7 logs are closed"
    assert json.loads(health.health_page().body)["stage"] == f"stopping: {said}"


class Offline(dict[TopicPartition, str]):
    """Counts how many of its partitions are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[TopicPartition]:
        for tp in super().__iter__():
            self.looks += 1
            yield tp


def test_a_page_of_offline_partitions_looks_at_no_more_than_it_shows() -> None:
    offline = Offline({TopicPartition("tides", n): "no disk" for n in reversed(range(1_000))})
    *lines, rest = offline_reasons(offline)
    assert offline.looks == 100
    assert (lines[0], lines[-1]) == (
        "tides-900 is offline: no disk",
        "tides-999 is offline: no disk",
    )
    assert rest == "and 900 more partitions are offline"


def test_few_offline_partitions_are_shown_by_name() -> None:
    offline = {TopicPartition(name, 0): "no disk" for name in "ba"}
    assert offline_reasons(offline) == ["a-0 is offline: no disk", "b-0 is offline: no disk"]
