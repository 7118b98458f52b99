"""A real server on a free port with made-up handlers, and a plain client."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from broker.network.authentication import Authenticator
from broker.network.limits import ListenerAddress, NetworkLimits
from broker.network.registry import (
    DecodedHandler,
    Handler,
    HandlerTable,
    RawHandler,
    RequestContext,
)
from broker.network.server import Server
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import SimPorts, simulated
from tests.support.worlds.waiting import PATIENCE_S, until

Raw = Callable[[RequestContext, bytes], Any]


def echo(_: RequestContext, body: bytes) -> list[object]:
    return [body]


class MadeUp(RawHandler):
    """Metadata, as the test wants it."""

    api_key = ApiKey.METADATA
    versions = Versions(0, 0)

    def __init__(self, serve: Raw) -> None:
        self._serve = serve

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        return self._serve(context, bytes(frame[offset:]))


class NeverAsked(DecodedHandler):
    """ApiVersions of versions that no test sends."""

    api_key = ApiKey.API_VERSIONS
    versions = Versions(0, 4)

    def handle(self, context: RequestContext, request: Any) -> Any:
        raise AssertionError("not called")


class Harness:
    """The server, the time it lives in, and connections to it."""

    def __init__(self, server: Server, ports: SimPorts) -> None:
        self.server, self.ports = server, ports
        self._clock, self._scheduler, self.metrics = ports.clock, ports.scheduler, ports.metrics
        self.clients: list[Client] = []

    def advance(self, step_ms: int) -> None:
        """Move the server's clock; due sweeps run on the way."""
        self._scheduler.advance(step_ms)

    async def send_and_be_read(self, client: "Client", data: bytes) -> None:
        """Send to a server without other connections; it has read some of `data` then."""
        self.advance(1)  # a connection notes the time of its last read
        client.send(data)
        (connection,) = self.server._connections
        await until(lambda: connection.last_active_ms == self._clock.monotonic_ms())

    async def stops_reading(self) -> None:
        """Wait until the one connection takes no request, for its answers cannot be sent."""
        (connection,) = self.server._connections
        await until(lambda: connection._paused and connection._outflow.is_waiting)

    async def connect(self, source: str | None = None) -> "Client":
        """A client whose connection comes from that address of this host."""
        host, port = self.server.bound["PLAINTEXT"]
        local = None if source is None else (source, 0)
        reader, writer = await asyncio.open_connection(
            host, port, limit=64 * 1024 * 1024, local_addr=local
        )
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
    raw: Raw | Handler = echo,
    *others: Handler,
    limits: NetworkLimits | None = None,
    disk: Disk | None = None,
    may_overtake: bool = False,
    api_versions: Handler | None = None,
    authenticator: Authenticator | None = None,
) -> AsyncIterator[Harness]:
    """A server of a made-up handler of Metadata, or of the handlers that are given."""
    ports = simulated(clock=ManualClock(monotonic_ms=1), disk=disk)
    first = raw if isinstance(raw, Handler) else MadeUp(raw)
    last = api_versions or NeverAsked()
    table = HandlerTable([first, *others, last], may_overtake=may_overtake)
    server = Server(table, replace(limits or NetworkLimits()), ports)
    await server.start([ListenerAddress("PLAINTEXT", "127.0.0.1", 0, authenticator)])
    harness = Harness(server, ports)
    try:
        yield harness
    finally:
        await server.stop(0)
        for client in harness.clients:
            client.writer.transport.abort()
        await asyncio.sleep(0)
