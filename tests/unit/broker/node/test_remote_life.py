"""A broker's life among several controllers, in front of a controller of the test's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

from broker.node.active_controller import ActiveController
from broker.node.remote_life import LifeSettings, RemoteLife
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.quorum.view import QuorumView
from metadata_topic.raft.messages import Node
from runtime.ports import system_ports

VERSION = 1
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Replica:
    """What this broker knows of the metadata: who leads, and nothing else yet."""

    node_id, is_leader, image = 1, False, EMPTY_IMAGE

    def __init__(self, port: int) -> None:
        self._view = QuorumView(epoch=3, leader_id=2, leader=Node(2, "127.0.0.1", port))

    def describe(self) -> QuorumView:
        return self._view

    def subscribe(self, subscriber: Any) -> None:
        """Nothing changes."""


async def free_descriptors() -> int:
    return 321


@contextlib.asynccontextmanager
async def life_before(
    serve: Serve, on_end: Callable[[BaseException], None] = lambda _error: None
) -> AsyncIterator[RemoteLife]:
    """A life whose active controller is `serve`."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    ports = system_ports(asyncio.get_running_loop())
    async with server:
        node: Any = Replica(server.sockets[0].getsockname()[1])
        yield RemoteLife(
            ActiveController(node, {}, ports.executors.pool("names", 1)),
            node,
            Registration(1, b"i" * 16, (), SUPPORTED_FEATURES),
            LifeSettings(
                cluster_id="c",
                heartbeat_interval_ms=200,
                offline_dirs=lambda: (),
                free_descriptors=free_descriptors,
                on_end=on_end,
            ),
            ports.scheduler,
        )
    ports.executors.shutdown()


async def test_the_last_heartbeat_is_sent_when_none_is_under_way() -> None:
    """One that comes in after it would have the broker, which is gone, serve again."""
    is_under_way = asyncio.Event()
    came: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
        body_at = 10 + int.from_bytes(frame[8:10], "big") + 1
        asked = codec.request(ApiKey.BROKER_HEARTBEAT).decode(frame, VERSION, body_at)[0]
        assert asked.free_descriptors == 321
        if asked.want_shut_down:
            came.append("the last one")
            cls = response(ApiKey.BROKER_HEARTBEAT)
            body = frame[4:8] + b"\0" + cls.encode(cls.cls(should_shut_down=True), VERSION)
            writer.write(len(body).to_bytes(4, "big") + body)
        else:
            is_under_way.set()
        with contextlib.suppress(OSError):
            await reader.read()
        if not asked.want_shut_down:
            came.append("end of the one before")
        writer.close()

    async with life_before(serve) as life:
        life.epoch = 7
        unfencing = asyncio.ensure_future(life.unfence())
        await is_under_way.wait()
        await life.leave()
        unfencing.cancel()
    assert came[:2] == ["end of the one before", "the last one"]


async def test_an_error_of_a_later_kafka_is_no_reason_to_beat_no_more() -> None:
    beats = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
        cls = response(ApiKey.BROKER_HEARTBEAT)
        body = frame[4:8] + b"\0" + cls.encode(cls.cls(error_code=9_999), VERSION)
        writer.write(len(body).to_bytes(4, "big") + body)
        beats.release()
        writer.close()

    async with life_before(serve) as life, asyncio.timeout(10):
        unfencing = asyncio.ensure_future(life.unfence())
        await beats.acquire()
        await beats.acquire()
        unfencing.cancel()
        await life.close()


async def test_a_heartbeat_that_fails_at_something_unknown_ends_the_broker() -> None:
    end: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with life_before(serve, end.set_result) as life, asyncio.timeout(10):
        life._settings = replace(life._settings, offline_dirs=lambda: 1 // 0)
        unfencing = asyncio.ensure_future(life.unfence())
        assert isinstance(await end, ZeroDivisionError)
        unfencing.cancel()
