"""A node on loopback that answers as the test says; frames are made by hand."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from ssl import SSLContext

from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from tests.support.worlds.waiting import until

Apis = Mapping[ApiKey, tuple[int, int]]
Serve = Callable[[int, int, int], bytes | Awaitable[bytes] | None]
"""Makes the bytes that answer (api key, version, correlation id); None: silence, empty: the end."""


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def greeted(apis: Apis, number: int, error: int = 0) -> bytes:
    """The answer to ApiVersions 3."""
    codec = response(ApiKey.API_VERSIONS)
    keys = [
        codec.cls.ApiKeys(api_key=int(key), min_version=low, max_version=high)
        for key, (low, high) in apis.items()
    ]
    body = codec.encode(codec.cls(error_code=error, api_keys=keys), 3)
    return framed(struct.pack(">i", number) + body)


async def asked_by(reader: asyncio.StreamReader) -> tuple[int, int, int]:
    """API key, version and correlation id of the next request."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    key, version, number = struct.unpack_from(">hhi", await reader.readexactly(size))
    return key, version, number


@dataclass
class Node:
    """What became of it.

    Attributes:
        versions: of each request but ApiVersions.
        ended: connections that are over.
    """

    port: int = 0
    connections: int = 0
    ended: int = 0
    versions: list[int] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port


@asynccontextmanager
async def serving(
    serve: Serve, apis: Apis, error: int = 0, tls: SSLContext | None = None
) -> AsyncIterator[Node]:
    """A node that announces `apis`, as they are at each connection, or refuses with `error`."""
    node = Node()
    writers: list[asyncio.StreamWriter] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node.connections += 1
        writers.append(writer)
        try:
            while True:
                key, version, number = await asked_by(reader)
                if key == ApiKey.API_VERSIONS:
                    answer: bytes | None = greeted(apis, number, error)
                else:
                    node.versions.append(version)
                    served = serve(key, version, number)
                    answer = await served if isawaitable(served) else served
                if answer == b"":
                    break
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        writer.transport.abort()
        node.ended += 1

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    node.port = server.sockets[0].getsockname()[1]
    try:
        yield node
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await until(lambda: node.ended == node.connections)
        await asyncio.sleep(0)


@contextmanager
def silent_host(host: str, port: int) -> Iterator[tuple[str, int]]:
    """An address where nobody answers a SYN: its queue of connections is full."""
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.create_server((host, port), backlog=0))
        while True:
            one = sockets.enter_context(socket.socket())
            one.settimeout(0.2)
            try:
                one.connect((host, port))
            except TimeoutError:
                yield full.getsockname()[:2]
                return
