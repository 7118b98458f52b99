"""One connection of a soak client, and the common counters of all clients of a process."""

import asyncio
import socket
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Self

from benchmarks.stall_probe import frame
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions

PATIENCE_S = 60.0
TROUBLES_MAX = 50


@dataclass
class Tally:
    """Counts, latencies and errors of the clients.

    Attributes:
        counts: Number of actions by kind of client and action.
        latencies_ms: Of good small requests since the last report.
        wrong: The first broken promises.
    """

    counts: Counter[str] = field(default_factory=Counter)
    latencies_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)

    def complain(self, text: str) -> None:
        self.counts["complaints"] += 1
        if len(self.wrong) < TROUBLES_MAX:
            self.wrong.append(text)
            print(f"  complaint: {text}", file=sys.stderr, flush=True)


@dataclass
class Soaked:
    """Broker and tally that a client works with.

    Attributes:
        runnable_ms: How long the event loops of broker and clients together could have run and had
            no CPU. Clients measure without it: a busy machine makes no broker slow.
    """

    bootstrap: str
    rng: Random
    tally: Tally
    number: int
    runnable_ms: Callable[[], float]

    async def pause(self, seconds: float) -> None:
        """So long, give or take a third."""
        await asyncio.sleep(seconds * self.rng.uniform(0.67, 1.33))

    async def line(self, *, receive_bytes: int = 0) -> "Line":
        """A connection; `receive_bytes`: of a receive buffer that is soon full."""
        host, port = self.bootstrap.rsplit(":", 1)
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
        except OSError:
            sock.close()
            raise
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Line(sock)


class Line:
    """A socket that asks one question after the other, or does worse."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._loop.sock_sendall(self._sock, data)

    async def receive(self, size: int, patience_s: float = PATIENCE_S) -> bytes:
        """Up to so many bytes; b"" is the end."""
        # In Python 3.11 `wait_for` drops a cancellation that comes together with the result. Then
        # the client would not end.
        async with asyncio.timeout(patience_s):
            return await self._loop.sock_recv(self._sock, size)

    async def answer(self) -> bytes:
        """The next answer, without its length."""
        return await self._exactly(int.from_bytes(await self._exactly(4), "big"))

    async def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = await self.receive(min(size - len(data), 1 << 18))
            if not piece:
                raise ConnectionResetError("the broker ended the connection")
            data += piece
        return bytes(data)

    async def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request made of nested dicts; its answer, decoded."""
        await self.send(request(api_key, version, **fields))
        return decoded(api_key, version, await self.answer())


def request(api_key: ApiKey, version: int, **fields: Any) -> bytes:
    return frame(api_key, version, build(codec.request(api_key).cls, fields))


def decoded(api_key: ApiKey, version: int, answer: bytes) -> Any:
    head = 4 + header_versions(api_key, version)[1]
    return codec.response(api_key).decode(answer, version, head)[0]


def build(cls: Any, fields: dict[str, Any]) -> Any:
    """A struct of the codec out of nested dicts."""
    made = {}
    for name, value in fields.items():
        nested = getattr(cls, "".join(word.capitalize() for word in name.split("_")), None)
        is_structs = isinstance(value, list) and value and isinstance(value[0], dict)
        made[name] = [build(nested, one) for one in value] if nested and is_structs else value
    return cls(**made)
