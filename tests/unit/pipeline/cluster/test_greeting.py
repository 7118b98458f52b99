"""Several addresses are asked side by side: one that hangs, refuses or babbles costs nothing."""

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.greeting import answering
from pipeline.cluster.wire_client import UnreachableError, WireClient
from tests.support.brokers.process import free_ports
from tests.support.described.scripted_controller import (
    BROKER_APIS,
    ScriptedController,
    serving,
)

NEVER_S = 3600.0
"""Nobody may wait for it: a test that does would not end."""


@pytest.fixture
def hung() -> Iterator[tuple[str, int]]:
    """Where connections are made by the kernel and nobody reads, as of a stopped process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


def _broker() -> ScriptedController:
    return ScriptedController(None, apis=BROKER_APIS)


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def test_a_hung_address_that_is_named_first_costs_nothing(hung: tuple[str, int]) -> None:
    with serving(_broker()) as good, WireClient(f"{hung[0]}:{hung[1]},{good}") as client:
        client.timeout_s = NEVER_S
        request = codec.request(ApiKey.METADATA).cls
        for _ in range(2):  # the second time with connections that are open
            answer = client.ask_any(ApiKey.METADATA, 12, request(topics=[]))
            assert answer.brokers[0].node_id == 1


def test_the_question_goes_to_one_address_alone() -> None:
    first, second = _broker(), _broker()
    with (
        serving(first) as one,
        serving(second) as two,
        WireClient(f"{one},{two}") as client,
    ):
        client.ask_any(ApiKey.METADATA, 12, codec.request(ApiKey.METADATA).cls(topics=[]))
    assert (first.asked + second.asked).count(ApiKey.METADATA) == 1


def test_addresses_where_nobody_is_are_named_with_the_reason(hung: tuple[str, int]) -> None:
    (closed,) = free_ports(1)
    with WireClient(f"127.0.0.1:{closed},{hung[0]}:{hung[1]}") as client:
        client.timeout_s = 0.2
        with pytest.raises(UnreachableError) as refused:
            client.ask_any(ApiKey.METADATA, 12, codec.request(ApiKey.METADATA).cls(topics=[]))
    assert str(refused.value) == (
        f"127.0.0.1:{closed}: Connection refused; {hung[0]}:{hung[1]}: timed out"
    )


def test_all_of_a_names_addresses_are_tried() -> None:
    with serving(_broker()) as good:
        place = ("localhost", _place(good)[1])
        (found,) = answering({place: None}, b"test", 10)
        assert isinstance(found.connection, socket.socket)
        found.connection.close()


@pytest.mark.parametrize("babble", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\6other!", b""])
def test_what_is_no_answer_is_said(babble: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(babble)

        thread = Thread(target=speak)
        thread.start()
        (found,) = answering({server.getsockname(): None}, b"test", 10)
        thread.join(10)
    assert isinstance(found.connection, OSError)
    said = str(found.connection)
    assert "Kafka listener" in said or "another question" in said
