"""A real server on a free port with made-up handlers, and a plain client."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from broker.handlers.registry import Handler, HandlerTable, RequestContext
from broker.network.limits import ListenerAddress, NetworkLimits
from broker.network.server import Server
from kafka_protocol.wire.api_keys import ApiKey
from runtime.clock import ManualClock
from runtime.disk import Disk
from runtime.executors import InlinePool
from runtime.metrics import Registry
from runtime.scheduler import ManualScheduler

Raw = Callable[[RequestContext, bytes], Any]
PATIENCE_S = 20


def echo(_: RequestContext, body: bytes) -> list[object]:
    return [body]


def never(_: RequestContext, __: Any) -> Any:
    raise AssertionError("not called")


class Harness:
    """The server, the time it lives in, and connections to it."""

    def __init__(self, server: Server, scheduler: ManualScheduler, metrics: Registry) -> None:
        self.server, self._scheduler, self.metrics = server, scheduler, metrics
        self.clients: list[Client] = []

    def advance(self, step_ms: int) -> None:
        """Move the server's clock; due sweeps run on the way."""
        self._scheduler.advance(step_ms)

    async def connect(self) -> "Client":
        host, port = self.server.bound["PLAINTEXT"]
        reader, writer = await asyncio.open_connection(host, port, limit=64 * 1024 * 1024)
        self.clients.append(Client(reader, writer))
        return self.clients[-1]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes]:
        """The next response: (correlation id, body)."""
        async with asyncio.timeout(PATIENCE_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
        return struct.unpack_from(">i", frame)[0], frame[4:]

    async def is_closed(self) -> bool:
        """Whether the server ends the stream, having sent nothing more."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()


def frame(
    body: bytes = b"",
    *,
    correlation_id: int = 0,
    api_key: int = ApiKey.METADATA,
    version: int = 0,
    client_id: bytes | None = b"c",
) -> bytes:
    head = struct.pack(">hhi", api_key, version, correlation_id)
    head += struct.pack(">h", -1 if client_id is None else len(client_id)) + (client_id or b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


@asynccontextmanager
async def serving(
    raw: Raw = echo, *, limits: NetworkLimits | None = None, disk: Disk | None = None
) -> AsyncIterator[Harness]:
    clock = ManualClock(monotonic_ms=1)
    scheduler = ManualScheduler(clock)
    table = HandlerTable(
        [
            Handler(
                ApiKey.METADATA,
                0,
                0,
                never,
                raw=lambda context, data, offset: raw(context, bytes(data[offset:])),
            ),
            Handler(ApiKey.API_VERSIONS, 0, 4, never),
        ]
    )
    metrics = Registry()
    server = Server(
        handlers=table,
        limits=replace(limits or NetworkLimits()),
        clock=clock,
        scheduler=scheduler,
        pool=InlinePool(),
        disk=disk or Disk(),
        metrics=metrics,
    )
    await server.start([ListenerAddress("PLAINTEXT", "127.0.0.1", 0)])
    harness = Harness(server, scheduler, metrics)
    try:
        yield harness
    finally:
        await server.stop(0)
        for client in harness.clients:
            client.writer.transport.abort()
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop work until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - conditions are of many kinds
            await asyncio.sleep(0.001)
