"""Several addresses are asked side by side: one that hangs, refuses or babbles costs nothing."""

import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest

from kafka_client import blocking
from kafka_client.blocking import BlockingClient, ClusterError, UnreachableError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.asker import Asker
from runtime.clock import SystemClock
from tests.support.brokers.process import free_ports
from tests.support.described.scripted_controller import (
    BROKER_APIS,
    ScriptedController,
    serving,
)
from tests.support.kafka_client.node import framed, greeted, silent_host
from tests.support.worlds.waiting import PATIENCE_S

ASKED = codec.request(ApiKey.METADATA).cls(topics=[])
NEVER_S = 3600.0
"""Nobody may wait for it: a test that does would not end."""


@pytest.fixture
def hung() -> Iterator[tuple[str, int]]:
    """Where connections are made by the kernel and nobody reads, as of a stopped process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


class Late(SystemClock):
    """The machine's clock, moved forward as the test says."""

    skipped_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + Late.skipped_ms


class GreetsLate(ScriptedController):
    """Answers nothing before it may."""

    may_greet: Event

    def answer(self, frame: bytes) -> bytes | None:
        assert self.may_greet.wait(PATIENCE_S)
        return super().answer(frame)


def _broker() -> ScriptedController:
    return ScriptedController(None, apis=BROKER_APIS)


def _greets_late() -> GreetsLate:
    broker = GreetsLate(None, apis=BROKER_APIS)
    broker.may_greet = Event()
    return broker


GREETED = greeted({ApiKey.METADATA: (12, 12), ApiKey.API_VERSIONS: (3, 3)}, 0)


def _metadata(number: int) -> bytes:
    message = codec.response(ApiKey.METADATA)
    body = message.encode(message.cls(controller_id=7), 12)
    return framed(number.to_bytes(4, "big") + b"\0" + body)


@contextmanager
def saying(*connections: Sequence[bytes | Event]) -> Iterator[tuple[str, int]]:
    """Says one after the other, each after a request, and then ends the connection.

    Where an event stands it waits.
    """

    def speak(server: socket.socket) -> None:
        for answers in connections:
            connection = server.accept()[0]
            with connection, connection.makefile("rb") as asked:
                for answer in answers:
                    if isinstance(answer, Event):
                        answer.wait(PATIENCE_S)
                        continue
                    asked.read(int.from_bytes(asked.read(4), "big"))
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        thread = Thread(target=speak, args=(server,))
        thread.start()
        yield server.getsockname()
        thread.join(PATIENCE_S)


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
        client.ask_any(ApiKey.METADATA, 12, ASKED)
    assert (first.asked + second.asked).count(ApiKey.METADATA) == 1


def test_addresses_where_nobody_is_are_named_with_the_reason(hung: tuple[str, int]) -> None:
    (closed,) = free_ports(1)
    with BlockingClient(f"127.0.0.1:{closed},{hung[0]}:{hung[1]}") as client:
        client.timeout_s = 0.2
        with pytest.raises(UnreachableError) as refused:
            client.ask_any(ApiKey.METADATA, 12, ASKED)
    assert str(refused.value) == (
        f"127.0.0.1:{closed}: Connection refused; {hung[0]}:{hung[1]}: timed out"
    )


def test_all_of_a_names_addresses_are_tried() -> None:
    with serving(_broker()) as good:
        place = ("localhost", _place(good)[1])
        with BlockingClient(f"localhost:{place[1]}") as client:
            assert client.versions(place)[ApiKey.METADATA].last == 12
            connected = client._connections[place]._socket
            assert connected is not None
            assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name `two.addresses` has 127.0.0.2 before 127.0.0.1."""
    found = socket.getaddrinfo

    def look_up(host: str, port: int, **wanted: Any) -> list[Any]:
        hosts = ["127.0.0.2", "127.0.0.1"] if host == "two.addresses" else [host]
        return [place for one in hosts for place in found(one, port, **wanted)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.usefixtures("two_addresses")
def test_a_silent_address_leaves_time_for_the_next_of_its_name() -> None:
    with serving(_broker()) as good, silent_host("127.0.0.2", _place(good)[1]) as place:
        address = ("two.addresses", place[1])
        with BlockingClient(f"two.addresses:{place[1]}") as client:
            client.timeout_s = 4
            assert client.versions(address)[ApiKey.METADATA].last == 12


@pytest.mark.parametrize("host", ["nowhere.invalid", "255.255.255.255", "x" * 64 + ".invalid"])
def test_a_host_that_fails_at_once_is_said(host: str) -> None:
    with BlockingClient(f"{host}:9092") as client:
        for _ in range(2):
            with pytest.raises(UnreachableError, match=rf"^{host}:9092: \w"):
                client.ask_any(ApiKey.METADATA, 12, ASKED)
            with pytest.raises(UnreachableError, match=rf"^{host}:9092: \w"):
                client.versions((host, 9092))


def test_a_name_that_is_not_found_for_a_moment_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, failures = socket.getaddrinfo, [socket.gaierror(socket.EAI_AGAIN, "not now")]

    def look_up(*wanted: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return found(*wanted, **more)

    with serving(_broker()) as good, BlockingClient(good) as client:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        assert set(Asker(client, PATIENCE_S).look().brokers) == {1}


@pytest.mark.parametrize("babble", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\6other!", b""])
def test_what_is_no_answer_is_said(babble: bytes) -> None:
    with (
        saying([babble]) as address,
        BlockingClient(f"{address[0]}:{address[1]}") as client,
        pytest.raises(UnreachableError, match=r"Kafka listener|another question"),
    ):
        client.versions(address)


def test_an_answer_counts_where_the_connection_ends_with_it() -> None:
    with (
        saying([GREETED, _metadata(1)]) as address,
        BlockingClient(f"{address[0]}:{address[1]}") as client,
    ):
        assert client.ask(address, ApiKey.METADATA, 12, ASKED).controller_id == 7


def test_a_connection_that_ended_at_rest_is_opened_again() -> None:
    at_rest = Event()
    with (
        saying([GREETED, _metadata(1), at_rest], [GREETED, _metadata(1)]) as address,
        BlockingClient(f"{address[0]}:{address[1]}") as client,
    ):
        assert client.ask(address, ApiKey.METADATA, 12, ASKED).controller_id == 7
        at_rest.set()
        opened = client._connections[address]._socket
        assert opened is not None
        assert select.select([opened], [], [], PATIENCE_S)[0], "its end has arrived"
        assert client.ask(address, ApiKey.METADATA, 12, ASKED).controller_id == 7


def test_a_request_that_was_sent_is_not_sent_again() -> None:
    with (
        saying([GREETED, b""], [GREETED, _metadata(1)]) as address,
        BlockingClient(f"{address[0]}:{address[1]}") as client,
    ):
        with pytest.raises(UnreachableError, match=r"was closed$"):
            client.ask(address, ApiKey.METADATA, 12, ASKED)
        assert client.ask(address, ApiKey.METADATA, 12, ASKED).controller_id == 7


def test_a_request_behind_a_greeting_that_is_not_answered_finds_nobody() -> None:
    """Not a refusal: it may be asked again, on the connection that was opened meanwhile."""
    with (
        serving(_broker()) as good,
        saying([GREETED, b"", b""], [GREETED, _metadata(1)]) as address,
        BlockingClient(f"{good},{address[0]}:{address[1]}") as client,
    ):
        assert set(client.present(client.bootstrap, PATIENCE_S, [])) == set(client.bootstrap)
        present = client.present(client.bootstrap, PATIENCE_S, [])
        assert next(present) == _place(good)
        with pytest.raises(UnreachableError, match="closed"):
            client.ask(address, ApiKey.METADATA, 12, ASKED)
        assert list(present) == [address]
        assert client.ask(address, ApiKey.METADATA, 12, ASKED).controller_id == 7


def test_time_in_which_the_caller_asks_one_is_not_that_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocking, "_CLOCK", Late())
    first, second, problems = _broker(), _greets_late(), list[ClusterError]()
    with (
        serving(first) as one,
        serving(second) as two,
        BlockingClient(f"{one},{two}") as client,
    ):
        present = client.present(client.bootstrap, PATIENCE_S, problems)
        assert next(present) == _place(one)
        monkeypatch.setattr(Late, "skipped_ms", 3_600_000)
        second.may_greet.set()
        assert list(present) == [_place(two)]
    assert problems == []


def test_the_slower_ones_keep_the_connection_that_they_have() -> None:
    first, second = _broker(), _greets_late()
    with (
        serving(first) as one,
        serving(second) as two,
        BlockingClient(f"{one},{two}") as client,
    ):
        client.ask_any(ApiKey.METADATA, 12, ASKED)
        opened = client._connections[_place(two)]._socket
        for _ in range(5):
            client.ask_any(ApiKey.METADATA, 12, ASKED)
        second.may_greet.set()
        assert set(client.present(client.bootstrap, PATIENCE_S, [])) == set(client.bootstrap)
        assert client._connections[_place(two)]._socket is opened is not None


def test_a_connection_on_which_nobody_answered_in_time_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node may be back: it would not know of the connection, and its machine may be silent."""
    monkeypatch.setattr(blocking, "_CLOCK", Late())
    first, second = _broker(), _greets_late()
    with (
        serving(first) as one,
        serving(second) as two,
        BlockingClient(f"{one},{two}") as client,
    ):
        client.ask_any(ApiKey.METADATA, 12, ASKED)
        opened = client._connections[_place(two)]._socket
        monkeypatch.setattr(Late, "skipped_ms", round(client.timeout_s * 1000) + 1)
        client.ask_any(ApiKey.METADATA, 12, ASKED)
        second.may_greet.set()
        assert set(client.present(client.bootstrap, PATIENCE_S, [])) == set(client.bootstrap)
        assert client._connections[_place(two)]._socket is not opened is not None


def test_a_broker_that_came_back_is_found_on_a_new_connection() -> None:
    first, second = _broker(), _broker()
    request = codec.request(ApiKey.METADATA).cls
    with serving(second) as two, serving(first) as one:
        client = BlockingClient(f"{one},{two}")
        for address in client.present(client.bootstrap, 10, []):
            client.ask(address, ApiKey.METADATA, 12, request(topics=[]))
        opened = client._connections[_place(one)]._socket
        assert opened is not None
        opened.shutdown(socket.SHUT_RDWR)
        problems: list[ClusterError] = []
        assert set(client.present(client.bootstrap, 10, problems)) == set(client.bootstrap)
        client.close()
    assert problems == []


def test_a_listener_without_metadata_is_taken_for_that_of_the_controllers() -> None:
    with (
        serving(ScriptedController(None)) as node,
        BlockingClient(node) as client,
        pytest.raises(ClusterError, match="served is none; is this the controllers' listener"),
    ):
        client.ask(_place(node), ApiKey.METADATA, 12, ASKED)


def test_what_a_broker_does_not_serve_is_said() -> None:
    with serving(_broker()) as good, BlockingClient(good) as client:
        with pytest.raises(
            ClusterError, match=r"MetadataRequest 13 to 13 is asked; served is 0 to 12$"
        ):
            client.ask(_place(good), ApiKey.METADATA, 13, codec.request(ApiKey.METADATA).cls())
        assert client.versions(_place(good))[ApiKey.METADATA].last == 12, "it is not asked again"
