"""A simulated network stands under the same connection: no event loop, time by the test's clock."""

import struct
from typing import Any

import pytest

from kafka_client.connection import Connections
from kafka_client.exchange import ConnectionSettings
from kafka_client.requests import Answer, Call, NoAnswerError, NotSentError, encoder
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.framing import read_request_header
from tests.support.kafka_client.node import framed, greeted
from tests.support.kafka_client.sim_network import SimNetwork
from tests.support.sim.ports import simulated

NODE = ("node", 9092)


class Cluster:
    """Serves DescribeCluster on one connection."""

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
                codec = response(ApiKey.DESCRIBE_CLUSTER)
                body = codec.encode(codec.cls(controller_id=number), header.api_version)
                answer(framed(struct.pack(">i", number) + b"\0" + body))


class World:
    def __init__(self, seed: int, **settings: Any) -> None:
        self.ports = simulated(seed)
        self.network = SimNetwork(self.ports.scheduler, self.ports.dice)
        self.network.nodes[NODE] = Cluster
        self.connections = Connections(
            ConnectionSettings(client_id="s", **settings), self.ports, self.network
        )
        self.ends: list[Any] = []

    def ask(self, **more: Any) -> None:
        encode = encoder(ApiKey.DESCRIBE_CLUSTER, request(ApiKey.DESCRIBE_CLUSTER).cls())
        call = Call(ApiKey.DESCRIBE_CLUSTER, encode, self.ends.append, timeout_ms=1_000, **more)
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
        world.ask(read=None)
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
