"""A listener is bound on all addresses of its name; real sockets, names as the test wants them."""

import asyncio
import errno
import socket
import threading
from contextlib import ExitStack
from typing import Any

import pytest

from broker.network.limits import ListenerAddress, NetworkLimits
from broker.network.listening import listen
from broker.network.registry import HandlerTable
from broker.network.server import Server
from runtime.ports import system_ports

NOT_OURS = "192.0.2.1"  # kept for documentation: no machine has it
Infos = list[tuple[Any, ...]]


def named(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """The name `here` has these addresses."""
    real = socket.getaddrinfo

    def lookup(host: str | None, *arguments: Any, **options: Any) -> Infos:
        if host != "here":
            return list(real(host, *arguments, **options))
        return [info for one in hosts for info in real(one, *arguments, **options)]

    monkeypatch.setattr("socket.getaddrinfo", lookup)


def answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), 5):
            return True
    except ConnectionRefusedError:
        return False


def listening(host: str, port: int = 0) -> list[socket.socket]:
    return listen(ListenerAddress("PLAINTEXT", host, port), NetworkLimits())


@pytest.fixture
def stack() -> Any:
    with ExitStack() as made:
        yield made


def port_of(stack: ExitStack, sockets: list[socket.socket]) -> int:
    for sock in sockets:
        stack.enter_context(sock)
    (port,) = {sock.getsockname()[1] for sock in sockets}
    return int(port)


def test_all_addresses_of_a_name_are_bound_on_one_port(
    monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    named(monkeypatch, "127.0.0.1", "::1", "127.0.0.2", "127.0.0.1")
    sockets = listening("here")
    port = port_of(stack, sockets)
    assert [answers(host, port) for host in ("127.0.0.1", "::1", "127.0.0.2")] == [True] * 3
    assert not answers("127.0.0.3", port)
    assert len(sockets) == 3


def test_no_name_means_every_address(stack: ExitStack) -> None:
    port = port_of(stack, listening(""))
    assert [answers(host, port) for host in ("127.0.0.3", "::1")] == [True] * 2


def test_a_single_ipv6_address_is_left_as_the_system_has_it(stack: ExitStack) -> None:
    port = port_of(stack, listening("::"))
    assert [answers(host, port) for host in ("127.0.0.1", "::1")] == [True] * 2


def test_an_address_that_is_not_here_is_passed_over_while_there_is_another(
    monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    named(monkeypatch, NOT_OURS, "127.0.0.1")
    assert answers("127.0.0.1", port_of(stack, listening("here")))
    named(monkeypatch, NOT_OURS)
    with pytest.raises(OSError, match="cannot listen on PLAINTEXT://here:0") as refused:
        listening("here")
    assert refused.value.errno == errno.EADDRNOTAVAIL


def test_a_port_that_is_taken_on_one_address_leaves_nothing_bound(
    monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    port = port_of(stack, listening("127.0.0.2"))
    named(monkeypatch, "127.0.0.1", "127.0.0.2")
    with pytest.raises(OSError, match=f"cannot listen on PLAINTEXT://here:{port}") as refused:
        listening("here", port)
    assert refused.value.errno == errno.EADDRINUSE
    assert not answers("127.0.0.1", port)


def test_a_port_that_the_system_chose_is_free_on_all_addresses(
    monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    """Its first choice is taken at the second address, then it chooses again."""
    named(monkeypatch, "127.0.0.1", "127.0.0.2")
    taken: list[int] = []
    real_bind = socket.socket.bind

    class Taking(socket.socket):
        def bind(self, address: Any) -> None:
            real_bind(self, address)
            if not taken:
                taken.append(self.getsockname()[1])
                stack.enter_context(listening("127.0.0.2", taken[0])[0])

    monkeypatch.setattr("broker.network.listening.socket.socket", Taking)
    port = port_of(stack, listening("here"))
    assert port != taken[0]
    assert answers("127.0.0.2", port)


async def test_names_are_looked_up_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that does not answer holds a thread, and nobody else."""
    named(monkeypatch, "127.0.0.1")
    lookup, threads = socket.getaddrinfo, list[int]()

    def noted(*arguments: Any, **options: Any) -> Infos:
        threads.append(threading.get_ident())
        return list(lookup(*arguments, **options))

    monkeypatch.setattr("socket.getaddrinfo", noted)
    ports = system_ports(asyncio.get_running_loop())
    server = Server(HandlerTable(), NetworkLimits(), ports)
    try:
        await server.start([ListenerAddress(name, "here", 0) for name in ("ONE", "TWO")])
        assert len(server.bound) == 2
        await server.stop(0)
    finally:
        ports.executors.shutdown()
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_a_listener_that_cannot_be_bound_closes_those_before_it(stack: ExitStack) -> None:
    port = port_of(stack, listening("127.0.0.1"))
    ports = system_ports(asyncio.get_running_loop())
    server = Server(HandlerTable(), NetworkLimits(), ports)
    first, taken = ListenerAddress("ONE", "127.0.0.1", 0), ListenerAddress("TWO", "127.0.0.1", port)
    try:
        with pytest.raises(OSError, match="cannot listen on TWO"):
            await server.start([first, taken])
    finally:
        ports.executors.shutdown()
    assert server.bound == {}
