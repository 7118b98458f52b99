"""A simulated network stands under the same connection: no event loop, time by the test's clock."""

import struct
from concurrent.futures import Future
from typing import Any

import pytest

from kafka_client.connection import Connections
from kafka_client.exchange import ConnectionSettings
from kafka_client.requests import Answer, Call, NoAnswerError, NotSentError, encoder
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.framing import read_request_header
from runtime.executors import InlinePool
from tests.support.kafka_client.node import framed, greeted
from tests.support.kafka_client.sim_network import SimNetwork
from tests.support.sim.ports import simulated

NODE = ("node", 9092)


class Cluster:
    """Serves DescribeCluster on one connection."""

    hosts: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._received = bytearray()

    def received(self, data: bytes, answer: Any) -> None:
        self._received += data
        while len(self._received) > 4:
            (size,) = struct.unpack_from(">i", self._received)
            header = read_request_header(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
            number = header.correlation_id
            if header.api_key == ApiKey.API_VERSIONS:
                answer(greeted({ApiKey.DESCRIBE_CLUSTER: (0, 1)}, number))
            else:
                self.answer_one(number, header.api_version, answer)

    def answer_one(self, number: int, version: int, answer: Any) -> None:
        codec = response(ApiKey.DESCRIBE_CLUSTER)
        brokers = [codec.cls.Brokers(host=host) for host in self.hosts]
        body = codec.cls(controller_id=number, brokers=brokers)
        answer(framed(struct.pack(">i", number) + b"\0" + codec.encode(body, version)))


class World:
    def __init__(self, seed: int, **settings: Any) -> None:
        self.ports = simulated(seed)
        self.network = SimNetwork(self.ports.scheduler, self.ports.rng)
        self.network.nodes[NODE] = Cluster
        self.connections = Connections(
            ConnectionSettings(client_id="s", **settings), self.ports, self.network
        )
        self.ends: list[Any] = []

    def ask(self, *, timeout_ms: int = 1_000, **more: Any) -> None:
        encode = encoder(ApiKey.DESCRIBE_CLUSTER, request(ApiKey.DESCRIBE_CLUSTER).cls())
        call = Call(
            ApiKey.DESCRIBE_CLUSTER, encode, self.ends.append, timeout_ms=timeout_ms, **more
        )
        self.connections.to(NODE).send(call)


@pytest.mark.parametrize("seed", range(20))
def test_requests_are_answered_in_order_whatever_the_network_delays(seed: int) -> None:
    world = World(seed)
    for _ in range(10):
        world.ask()
        world.ports.scheduler.advance(7)
    world.ports.scheduler.advance(500)
    assert [one.controller_id for one in world.ends] == list(range(1, 11))
    assert world.network.connections == 1


def test_a_cut_ends_requests_at_their_deadline_and_the_next_finds_out() -> None:
    world = World(1)
    world.ask()
    world.ports.scheduler.advance(500)
    world.network.cut.add(NODE)
    world.ask()
    world.ports.scheduler.advance(999)
    assert len(world.ends) == 1
    world.ports.scheduler.advance(1)
    assert isinstance(world.ends[1], NoAnswerError)
    world.ask()
    world.ports.scheduler.advance(1_000)
    assert isinstance(world.ends[2], NotSentError)
    world.network.cut.clear()
    world.ask()
    world.ports.scheduler.advance(500)
    assert (world.ends[3].controller_id, world.network.connections) == (1, 2)


def test_a_receiver_that_is_behind_is_sent_nothing_more() -> None:
    world = World(1, held_bytes_max=1)
    for _ in range(3):
        world.ask(read=None, timeout_ms=300_000)
    for number in (1, 2, 3):
        world.ports.scheduler.advance(60_000)
        answer = world.ends[-1]
        assert isinstance(answer, Answer)
        assert (len(world.ends), answer.decode().controller_id) == (number, number)
        answer.release()


def test_an_idle_connection_is_closed() -> None:
    world = World(1, idle_ms_max=5_000)
    world.ask()
    world.ports.scheduler.advance(4_000)
    world.ask()
    world.ports.scheduler.advance(4_999)
    assert world.connections.to(NODE).is_in_use
    world.ports.scheduler.advance(200)
    assert not world.connections.to(NODE).is_in_use
    assert len(world.ends) == 2


def test_nobody_listens() -> None:
    world = World(1)
    world.network.nodes.clear()
    world.ask()
    world.ports.scheduler.advance(100)
    assert isinstance(world.ends[0], NotSentError)


class Long(Cluster):
    hosts = ("x" * 30_000,) * 3


class Busy(InlinePool):
    """Has no thread free."""

    def submit(self, *_: Any, **__: Any) -> "Future[Any]":
        return Future()


def test_a_long_answer_times_out_although_all_threads_are_busy() -> None:
    world = World(1)
    world.network.nodes[NODE] = Long
    connection = world.connections.to(NODE)
    free, connection._pool = connection._pool, Busy()
    world.ask()
    world.ports.scheduler.advance(999)
    assert (world.ends, connection.held_bytes > 0) == ([], True)
    world.ports.scheduler.advance(1)
    assert [type(one) for one in world.ends] == [NoAnswerError]
    assert connection.held_bytes == 0
    connection._pool = free
    world.ask()
    world.ports.scheduler.advance(999)
    assert (world.ends[-1].controller_id, world.network.connections) == (2, 1)


class Socket:
    """A network and its one connection, whose bytes lie there until they are received."""

    def connect(self, *connecting: Any) -> Any:
        self.receiver, self.bytes, self.is_open = connecting[2], b"", True
        return self.abort

    def abort(self) -> None:
        self.is_open = False

    def write(self, data: bytes) -> None:
        """Nobody is asked."""

    def receive(self) -> None:
        """As one iteration of the loop."""
        room = self.receiver.buffer()
        count = min(len(room), len(self.bytes))
        room[:count], self.bytes = self.bytes[:count], self.bytes[count:]
        self.receiver.received(count)


@pytest.mark.parametrize("came", [0, 3])
def test_answers_that_lie_in_the_socket_count_though_the_loop_stood(came: int) -> None:
    """As on asyncio: each turn receives once, and then come the timers that are due."""
    world, network = World(1), Socket()
    world.connections._network = network  # type: ignore[assignment]
    scheduler = world.ports.scheduler

    def turn() -> None:
        if network.bytes and network.is_open:
            network.receive()
            scheduler.call_later(0, turn)

    scheduler.call_later(1_000, turn)
    for _ in range(3):
        world.ask()
    network.receiver.opened(network)
    network.bytes = greeted({ApiKey.DESCRIBE_CLUSTER: (0, 1)}, 0)
    while network.bytes:
        network.receive()
    scheduler.advance(999)
    node = Cluster()
    for number in range(1, came + 1):
        node.answer_one(number, 1, lambda data: setattr(network, "bytes", network.bytes + data))
    scheduler.advance(1)
    kinds = [NoAnswerError if isinstance(one, NoAnswerError) else "answer" for one in world.ends]
    assert kinds == (["answer"] * 3 if came else [NoAnswerError] * 3)
    assert network.is_open is bool(came)
