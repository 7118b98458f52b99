"""The page of a node, read within a deadline."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import pytest

from runtime.clock import SystemClock
from tidemark.status.facts import CopyLag, Page
from tidemark.status.pages import page_address, read_metrics, read_page

CLOCK = SystemClock()


@contextmanager
def page(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a page that answers one connection so."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(65_536)
                answer(peer)

        thread = Thread(target=serve)
        thread.start()
        yield int(listening.getsockname()[1])
        thread.join(10)
        assert not thread.is_alive()


def http(body: bytes) -> Callable[[socket.socket], None]:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    return lambda peer: peer.sendall(head + body)


def limit(seconds: float) -> Callable[[], float]:
    ends_ms = CLOCK.monotonic_ms() + seconds * 1000
    return lambda: (ends_ms - CLOCK.monotonic_ms()) / 1000


def report(node_id: int) -> bytes:
    said = {
        "node_id": node_id,
        "status": "red",
        "stage": "running",
        "reasons": ["tier: no"],
        "remedies": {"tier: no": "repair it"},
    }
    return json.dumps(said).encode()


def test_a_page_says_the_health_of_its_node() -> None:
    with page(http(report(7))) as port:
        found = read_page(("127.0.0.1", port), 7, limit(10))
    assert found == Page("red", "running", ("tier: no",), {"tier: no": "repair it"})


def test_a_page_of_an_older_version_says_no_remedies() -> None:
    said = {"node_id": 7, "status": "red", "stage": "running", "reasons": ["tier: no"]}
    with page(http(json.dumps(said).encode())) as port:
        found = read_page(("127.0.0.1", port), 7, limit(10))
    assert found == Page("red", "running", ("tier: no",))


def test_the_page_of_another_node_is_not_believed() -> None:
    with page(http(report(8))) as port:
        found = read_page(("127.0.0.1", port), 7, limit(10))
    assert found.status == ""
    assert "is the page of node 8" in found.reasons[0]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"no", b'{"node_id": 7}', b"\xff"])
def test_what_is_no_report_is_unknown(body: bytes) -> None:
    with page(http(body)) as port:
        found = read_page(("127.0.0.1", port), 7, limit(10))
    assert found.status == ""
    assert "is no page of health" in found.reasons[0]


def test_a_page_that_drips_is_given_up() -> None:
    def drip(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with suppress(OSError):  # it was given up
            while not Event().wait(0.02):
                peer.sendall(b" ")

    began_ms = CLOCK.monotonic_ms()
    with page(drip) as port:
        found = read_page(("127.0.0.1", port), 7, limit(0.2))
    assert "does not answer" in found.reasons[0]
    assert CLOCK.monotonic_ms() - began_ms < 5_000


def test_a_page_where_nobody_listens_is_unknown() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = read_page(("127.0.0.1", unused.getsockname()[1]), 7, limit(1))
    assert "does not answer" in found.reasons[0]


@pytest.mark.parametrize(
    ("listener", "address"),
    [
        ("", None),
        ("nonsense", None),
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("h1", 9464)),
        (":9464", ("h1", 9464)),
        ("[::]:9464", ("h1", 9464)),
    ],
)
def test_a_page_that_listens_everywhere_is_at_its_node(
    listener: str, address: tuple[str, int] | None
) -> None:
    assert page_address(listener, ("h1", 9093)) == address


def test_metrics_say_the_version_and_the_copy_lag_of_all_partitions() -> None:
    name = "kafka_server_BrokerTopicMetrics_RemoteCopyLag"
    body = f"""
# HELP {name}Bytes Bytes of closed segments not copied yet
tidemark_build_info{{python="3.11.7",version="1.2.3"}} 1
{name}Bytes{{topic="a",partition="0"}} 7
{name}Bytes{{topic="a",partition="1"}} 1e3
{name}Bytes{{topic="b",partition="0"}} 0
{name}Segments{{topic="a",partition="0"}} 1
{name}Segments{{topic="a",partition="1"}} 2
{name}Segments{{topic="b",partition="0"}} 0
{name}Bytes_of_another{{topic="a",partition="0"}} 5
"""
    with page(http(body.encode())) as port:
        found = read_metrics(("127.0.0.1", port), limit(10))
    assert found == ("1.2.3", {"a": CopyLag(3, 1_007), "b": CopyLag(0, 0)})


def test_metrics_that_nobody_tells_are_unknown() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert read_metrics(bound.getsockname(), limit(10)) == ("", {})
