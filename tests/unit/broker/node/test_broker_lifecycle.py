"""A broker's life among several controllers, in front of a controller of the test's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker.node.active_controller import ActiveController
from broker.node.broker_lifecycle import BrokerDescriptors, BrokerLifecycle, LifecycleSettings
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.framing import read_request_header
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.quorum.view import QuorumView
from metadata_topic.raft.messages import Node
from runtime.executors import InlinePool
from runtime.ports import system_ports
from tests.support.kafka_client.node import framed, greeted, serving
from tests.support.worlds.controlled_brokers import clustered
from tests.support.worlds.naive_quorum import PLAIN
from tests.support.worlds.pools import turns
from tests.support.worlds.waiting import until

VERSION = 1


class Replica:
    """What this broker knows of the metadata: who leads, and nothing else yet."""

    node_id, is_leader, is_alone, image = 1, False, False, EMPTY_IMAGE

    def __init__(self, port: int) -> None:
        self._view = QuorumView(epoch=3, leader_id=2, leader=Node(2, "127.0.0.1", port))

    def describe(self) -> QuorumView:
        return self._view

    def subscribe(self, subscriber: Any) -> None:
        """Nothing changes."""


async def free_descriptors() -> int:
    return 321


APIS = {ApiKey.BROKER_HEARTBEAT: (0, 1)}


@contextlib.asynccontextmanager
async def life_before(
    port: int,
    on_end: Callable[[BaseException], None] = lambda _error: None,
    interval_ms: int = 20_000,
) -> AsyncIterator[BrokerLifecycle]:
    """A life whose active controller listens there; an interval is a heartbeat's time, too."""
    ports = system_ports(asyncio.get_running_loop())
    replica: Any = Replica(port)
    active = ActiveController(replica, {}, ports)
    yield BrokerLifecycle(
        active,
        replica,
        Registration(1, b"i" * 16, (), SUPPORTED_FEATURES),
        LifecycleSettings(
            cluster_id="c",
            heartbeat_interval_ms=interval_ms,
            offline_dirs=lambda: (),
            free_descriptors=free_descriptors,
            on_end=on_end,
        ),
        ports.scheduler,
    )
    active.close()
    ports.executors.shutdown()


def taken(number: int, **fields: Any) -> bytes:
    message = response(ApiKey.BROKER_HEARTBEAT)
    body = message.encode(message.cls(**fields), VERSION)
    return framed(number.to_bytes(4, "big") + b"\0" + body)


async def test_the_last_heartbeat_is_sent_when_none_is_under_way() -> None:
    """One that comes in after it would have the broker, which is gone, serve again."""
    came: list[str] = []
    said: list[tuple[int, int]] = []

    async def controller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = ""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while size := await reader.readexactly(4):
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                header = read_request_header(frame)
                if header.api_key == ApiKey.API_VERSIONS:
                    writer.write(greeted(APIS, header.correlation_id))
                    continue
                message = codec.request(ApiKey.BROKER_HEARTBEAT)
                asked = message.decode(frame, VERSION, header.body_offset)[0]
                said.append((asked.free_descriptors, asked.current_metadata_offset))
                name = "the last one" if asked.want_shut_down else "one before"
                came.append(name)
                if asked.want_shut_down:
                    writer.write(taken(header.correlation_id, should_shut_down=True))
        if name:  # the time was not over before it was asked
            came.append(f"end of {name}")
        writer.close()

    server = await asyncio.start_server(controller, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, life_before(port, interval_ms=200) as life:
        life.epoch = 7
        unfencing = asyncio.ensure_future(life.unfence())
        await until(lambda: came == ["one before"])
        await life.leave()
        unfencing.cancel()
        life._active.close()
        await until(lambda: len(came) >= 4)
    assert came[:3] == ["one before", "end of one before", "the last one"]
    assert set(said) == {(321, EMPTY_IMAGE.provenance.offset)}, "the last one that it has read"


async def test_a_broker_stops_when_the_controller_lets_it_go_and_not_before() -> None:
    """Until then others do not lead what it led."""
    left = [False, False, True]

    def serve(_key: int, _version: int, number: int) -> bytes:
        return taken(number, should_shut_down=left.pop(0))

    async with serving(serve, APIS) as node, life_before(node.port) as life:
        life.epoch = 7
        await life.leave()
    assert len(node.versions) == 3


async def test_a_heartbeat_that_waits_while_the_broker_leaves_is_not_sent() -> None:
    """It would have the broker, which is gone, serve again."""

    def serve(_key: int, _version: int, number: int) -> bytes:
        return taken(number, should_shut_down=True)

    async with serving(serve, APIS) as node, life_before(node.port) as life:
        life.epoch = 7
        async with life._one_beat:  # as a registration does
            life.come_back()
            await turns()
            leaving = asyncio.ensure_future(life.leave())
            await turns()
        await leaving
    assert len(node.versions) == 1


async def test_a_registration_waits_for_the_heartbeat_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of the epoch before that comes in after it would end this broker as one replaced."""
    asked: list[ApiKey] = []
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def ask(api_key: ApiKey, *_: Any, **__: Any) -> Any:
        asked.append(api_key)
        return await answered

    async with life_before(1) as life:
        monkeypatch.setattr(life._active, "ask", ask)
        life.epoch = 7
        life.come_back()
        await turns()
        registering = asyncio.ensure_future(life.register({}))
        await turns()
        assert asked == [ApiKey.BROKER_HEARTBEAT]
        answered.set_result(response(ApiKey.BROKER_HEARTBEAT).cls())
        await turns()
        assert asked == [ApiKey.BROKER_HEARTBEAT, ApiKey.BROKER_REGISTRATION]
        registering.cancel()
        await life.close()


async def test_an_error_of_a_later_kafka_is_no_reason_to_beat_no_more() -> None:
    def serve(_key: int, _version: int, number: int) -> bytes:
        return taken(number, error_code=9_999)

    async with serving(serve, APIS) as node, life_before(node.port) as life:
        unfencing = asyncio.ensure_future(life.unfence())
        await until(lambda: len(node.versions) >= 3)
        assert node.connections == 1
        unfencing.cancel()
        await life.close()


async def test_a_heartbeat_that_the_controller_does_not_serve_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    apis = {ApiKey.BROKER_HEARTBEAT: (2, 3)}
    async with serving(lambda *_: b"", apis) as node, life_before(node.port) as life:
        unfencing = asyncio.ensure_future(life.unfence())
        await until(
            lambda: "BrokerHeartbeatRequest 1 to 1 is asked; served is 2 to 3" in caplog.text
        )
        unfencing.cancel()
        await life.close()


async def test_a_heartbeat_that_fails_at_something_unknown_ends_the_broker() -> None:
    end: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async with (
        asyncio.timeout(10),
        serving(lambda *_: b"", APIS) as node,
        life_before(node.port, end.set_result) as life,
    ):
        life._settings = replace(life._settings, offline_dirs=lambda: 1 // 0)
        unfencing = asyncio.ensure_future(life.unfence())
        assert isinstance(await end, ZeroDivisionError)
        unfencing.cancel()


async def test_many_creations_do_not_take_the_same_descriptors_of_the_own_broker() -> None:
    """Between its decision and its image a replica is known to the controller alone."""
    cluster = clustered(PLAIN, own_broker_id=1)
    epoch = cluster.register(1).response
    node: Any = SimpleNamespace(
        node_id=1, brokers=cluster.control, image=cluster.quorum.loop.decided_image
    )
    replicas: Any = SimpleNamespace(hosting=SimpleNamespace(backlog=0))
    life: Any = SimpleNamespace(epoch=epoch)
    free = 100
    own = BrokerDescriptors(node, life, replicas, lambda: free, InlinePool())
    assert own.free_descriptors() == {1: free}
    end_offset = node.image.provenance.end_offset + 1
    own.replicas_placed({1: 5}, end_offset)
    assert own.free_descriptors() == {1: free - 5}
    cluster.beat(1)
    node.image, replicas.hosting.backlog = (
        cluster.quorum.loop.decided_image,
        5,
    )  # the broker knows of them
    assert node.image.provenance.end_offset >= end_offset
    assert own.free_descriptors() == {1: free - 5}
    replicas.hosting.backlog, free = 0, 95  # their files are open
    assert own.free_descriptors() == {1: 95}
    replicas.hosting.backlog = 96
    assert await own.left() == 0, "-1 would say that nothing is reported"
