"""The sender of ControllerRegistration: whom it asks, when, and when it stops."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.process import controller_registration
from broker.process.controller_registration import question_of, register_in_metadata
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from metadata_topic.controller.brokers import Registration
from metadata_topic.image.model import ControllerImage, Endpoint
from metadata_topic.image.records import CONTROLLER_REGISTRATION_LEVEL
from metadata_topic.quorum.view import QuorumView
from metadata_topic.raft.messages import Node
from runtime.ports import system_ports
from tests.support.kafka_client.node import framed, serving
from tests.support.sim.ports import simulated
from tests.support.worlds.pools import turns
from tests.support.worlds.waiting import until

ME, OTHER = 2, 1
APIS = {ApiKey.CONTROLLER_REGISTRATION: (0, 0)}
MINE = Registration(
    ME, b"i" * 16, (Endpoint("CONTROLLER", "h2", 9093, 0),), {"kraft.version": (0, 1)}
)


class Standby:
    """A controller that follows, by what it knows; the test changes it."""

    node_id, registration = ME, MINE

    def __init__(self, port: int) -> None:
        self.is_leader, self.knows_active_controller = False, True
        self.image: Any = SimpleNamespace(
            controllers={}, metadata_version=CONTROLLER_REGISTRATION_LEVEL
        )
        self.view = QuorumView(epoch=3, leader_id=OTHER, leader=Node(OTHER, "127.0.0.1", port))
        self.looked = 0

    def describe(self) -> QuorumView:
        return self.view

    def is_in_metadata(self, incarnation_id: bytes) -> None:
        known = ControllerImage(ME, incarnation_id)
        self.image = SimpleNamespace(
            controllers={ME: known}, metadata_version=CONTROLLER_REGISTRATION_LEVEL
        )


def answers(*codes: ErrorCode) -> Any:
    left = list(codes)

    def serve(key: int, version: int, number: int) -> bytes:
        made = response(ApiKey(key))
        code = left.pop(0) if left else ErrorCode.NONE
        body = made.encode(made.cls(error_code=int(code), error_message="not now"), version)
        return framed(number.to_bytes(4, "big") + b"\0" + body)

    return serve


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_registration, "POLL_MS", 1)
    monkeypatch.setattr(controller_registration, "RETRY_MS_MAX", 2)


def test_it_says_who_it_is_and_where_it_listens() -> None:
    codec = request(ApiKey.CONTROLLER_REGISTRATION)
    said, _ = codec.decode(codec.encode(question_of(MINE), 0), 0)
    assert (said.controller_id, said.incarnation_id) == (ME, MINE.incarnation_id)
    (listener,) = said.listeners
    assert (listener.name, listener.host, listener.port) == ("CONTROLLER", "h2", 9093)
    (feature,) = said.features
    supported = feature.min_supported_version, feature.max_supported_version
    assert (feature.name, supported) == ("kraft.version", (0, 1))


async def test_it_asks_until_its_own_life_is_in_the_metadata() -> None:
    ports = system_ports(asyncio.get_running_loop())
    async with serving(answers(ErrorCode.NOT_CONTROLLER), APIS) as leader:
        standby: Any = Standby(leader.port)
        standby.is_in_metadata(b"o" * 16)  # of the life before
        task = register_in_metadata(standby, ports)
        await until(lambda: len(leader.versions) >= 2)
        assert not task.done(), "a yes is not the metadata"
        standby.is_in_metadata(MINE.incarnation_id)
        await asyncio.wait_for(task, 10)
        asked = len(leader.versions)
        await until(lambda: leader.ended == 1)
        assert len(leader.versions) == asked
    ports.executors.shutdown()


@pytest.mark.parametrize("what", ["leads", "no leader", "an old level"])
async def test_it_asks_nobody_in_vain(what: str) -> None:
    ports = system_ports(asyncio.get_running_loop())
    looks: list[str] = []

    class Looking(Standby):
        @property
        def is_leader(self) -> bool:
            looks.append(what)
            return what == "leads"

        @is_leader.setter
        def is_leader(self, _value: bool) -> None:
            """Says what the row says."""

    async with serving(answers(), APIS) as leader:
        standby: Any = Looking(leader.port)
        standby.knows_active_controller = what != "no leader"
        if what == "an old level":
            standby.image.metadata_version = CONTROLLER_REGISTRATION_LEVEL - 1
        task = register_in_metadata(standby, ports)
        await until(lambda: len(looks) >= 3)
        assert leader.connections == 0
        standby.is_in_metadata(MINE.incarnation_id)
        await asyncio.wait_for(task, 10)
    ports.executors.shutdown()


async def test_it_asks_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's controllers write a record each time they are asked, also after a yes."""
    asked: list[int] = []
    ports = simulated()

    async def ask(*_: Any) -> str:
        asked.append(ports.clock.monotonic_ms())
        return ""

    monkeypatch.setattr(controller_registration, "POLL_MS", 500)
    monkeypatch.setattr(controller_registration, "RETRY_MS_MAX", 10_000)
    monkeypatch.setattr(controller_registration, "_ask", ask)
    standby: Any = Standby(1)
    task = register_in_metadata(standby, ports)
    for _ in range(600):
        await turns()
        ports.scheduler.advance(100)
    assert 6 <= len(asked) <= 15
    standby.is_in_metadata(MINE.incarnation_id)
    while not task.done():
        ports.scheduler.advance(1_000)
        await turns()
