"""HTTP/1.1 on asyncio streams: as much as a proxy between an S3 client and its store needs."""

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass

LINE_BYTES_MAX = 1 << 16
NO_BODY = {204, 304}
"""Statuses of answers that have none."""


@dataclass
class Message:
    """A request or an answer: first line, headers as they came, body."""

    first_line: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def head(self, content_length: int | None = None) -> bytes:
        """First line and headers; a length replaces what framed the body."""
        kept = [
            (key, value)
            for key, value in self.headers
            if key.lower() not in {"transfer-encoding", "expect"}
            and (content_length is None or key.lower() != "content-length")
        ]
        if content_length is not None:
            kept.append(("Content-Length", str(content_length)))
        lines = [self.first_line, *(f"{key}: {value}" for key, value in kept)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def whole(self) -> bytes:
        return self.head(len(self.body)) + self.body


class Peer:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def head(self) -> Message:
        """The next message without its body."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first_line, *lines = text[:-4].split("\r\n")
        pairs = [line.partition(":") for line in lines]
        return Message(first_line, [(key, value.strip()) for key, _, value in pairs])

    async def body(self, message: Message) -> bytes:
        if message.header("transfer-encoding").lower() == "chunked":
            return await self._chunks()
        return await self.reader.readexactly(int(message.header("content-length") or 0))

    async def _chunks(self) -> bytes:
        found = bytearray()
        while size := int((await self.reader.readline()).split(b";")[0], 16):
            found += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        while await self.reader.readline() != b"\r\n":
            pass
        return bytes(found)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """End with RST instead of FIN."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Upstream:
    """The connection to the store that belongs to one client connection, opened when needed."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._peer: Peer | None = None

    async def ask(self, request: Message) -> Message:
        """Send a request and read the answer; a kept connection may have ended meanwhile."""
        if self._peer is not None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                return await self._ask(self._peer, request)
            self.close()
        return await self._ask(await self._connect(), request)

    async def send_half(self, request: Message) -> None:
        """Send a request whose body is cut, and go away."""
        self.close()
        peer = await self._connect()
        await peer.send(request.head() + request.body)
        self.close()

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    async def _connect(self) -> Peer:
        streams = await asyncio.open_connection(*self._address, limit=LINE_BYTES_MAX)
        self._peer = Peer(*streams)
        return self._peer

    async def _ask(self, peer: Peer, request: Message) -> Message:
        await peer.send(request.whole())
        answer = await peer.head()
        while answer.first_line.split(" ")[1].startswith("1"):
            answer = await peer.head()
        status = int(answer.first_line.split(" ")[1])
        if not request.first_line.startswith("HEAD ") and status not in NO_BODY:
            answer.body = await peer.body(answer)
        if answer.header("connection").lower() == "close":
            self.close()
        return answer
