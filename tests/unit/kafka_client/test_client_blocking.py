"""Several addresses are asked side by side: one that hangs, refuses or babbles costs nothing."""

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from kafka_client.blocking import BlockingClient, ClusterError, UnreachableError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import free_ports
from tests.support.described.scripted_controller import (
    BROKER_APIS,
    ScriptedController,
    serving,
)
from tests.support.kafka_client.node import framed, greeted

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
    with serving(_broker()) as good, BlockingClient(f"{hung[0]}:{hung[1]},{good}") as client:
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
        BlockingClient(f"{one},{two}") as client,
    ):
        client.ask_any(ApiKey.METADATA, 12, codec.request(ApiKey.METADATA).cls(topics=[]))
    assert (first.asked + second.asked).count(ApiKey.METADATA) == 1


def test_addresses_where_nobody_is_are_named_with_the_reason(hung: tuple[str, int]) -> None:
    (closed,) = free_ports(1)
    with BlockingClient(f"127.0.0.1:{closed},{hung[0]}:{hung[1]}") as client:
        client.timeout_s = 0.2
        with pytest.raises(UnreachableError) as refused:
            client.ask_any(ApiKey.METADATA, 12, codec.request(ApiKey.METADATA).cls(topics=[]))
    assert str(refused.value) == (
        f"127.0.0.1:{closed}: Connection refused; {hung[0]}:{hung[1]}: timed out"
    )


def test_all_of_a_names_addresses_are_tried() -> None:
    with serving(_broker()) as good:
        place = ("localhost", _place(good)[1])
        with BlockingClient(f"localhost:{place[1]}") as client:
            assert client.versions(place)[ApiKey.METADATA].last == 12
            connected = client._lines[place]._socket
            assert connected is not None
            assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


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
        address = server.getsockname()
        with (
            BlockingClient(f"{address[0]}:{address[1]}") as client,
            pytest.raises(UnreachableError, match=r"Kafka listener|another question"),
        ):
            client.versions(address)
        thread.join(10)


def test_an_answer_counts_where_the_connection_ends_with_it() -> None:
    codec_of = codec.response(ApiKey.METADATA)
    answers = [
        greeted({ApiKey.METADATA: (12, 12)}, 0),
        framed((1).to_bytes(4, "big") + b"\0" + codec_of.encode(codec_of.cls(controller_id=7), 12)),
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            connection, _ = server.accept()
            with connection:
                for answer in answers:
                    connection.recv(1 << 16)
                    connection.sendall(answer)

        thread = Thread(target=speak)
        thread.start()
        address = server.getsockname()
        with BlockingClient(f"{address[0]}:{address[1]}") as client:
            request = codec.request(ApiKey.METADATA).cls(topics=[])
            assert client.ask(address, ApiKey.METADATA, 12, request).controller_id == 7
        thread.join(10)


def test_a_broker_that_came_back_is_found_on_a_new_connection() -> None:
    first, second = _broker(), _broker()
    request = codec.request(ApiKey.METADATA).cls
    with serving(second) as two, serving(first) as one:
        client = BlockingClient(f"{one},{two}")
        for address in client.present(client.bootstrap, 10, []):
            client.ask(address, ApiKey.METADATA, 12, request(topics=[]))
        opened = client._lines[_place(one)]._socket
        assert opened is not None
        opened.shutdown(socket.SHUT_RDWR)
        problems: list[ClusterError] = []
        assert set(client.present(client.bootstrap, 10, problems)) == set(client.bootstrap)
        client.close()
    assert problems == []


def test_what_a_broker_does_not_serve_is_said() -> None:
    with serving(_broker()) as good, BlockingClient(good) as client:
        with pytest.raises(
            ClusterError, match="MetadataRequest 13 to 13 is asked; served is 0 to 12"
        ):
            client.ask(_place(good), ApiKey.METADATA, 13, codec.request(ApiKey.METADATA).cls())
        assert client.versions(_place(good))[ApiKey.METADATA].last == 12, "it is not asked again"
