"""Bytes between two nodes, as a port: TCP on an event loop, or a simulated network."""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from ssl import SSLContext
from typing import Protocol

from runtime.executors import Pool

Address = tuple[str, int]
"""Host and port."""


class Transport(Protocol):
    """An open connection; use it from the loop's thread only."""

    def write(self, data: bytes) -> None:
        """Send all of it, now or later."""
        ...

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`."""
        ...

    def resume_reading(self) -> None:
        """Receive again."""
        ...

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        ...


class Receiver(Protocol):
    """The owner of a connection; called on the loop's thread, never before `connect` returns."""

    def opened(self, transport: Transport) -> None:
        """The connection stands."""
        ...

    def buffer(self) -> memoryview:
        """Where the next bytes are to be written; not empty."""
        ...

    def received(self, count: int) -> None:
        """So many bytes were written to the last `buffer`."""
        ...

    def lost(self, reason: OSError) -> None:
        """There is no connection: it could not be opened, or has ended."""
        ...


class Network(Protocol):
    """Opens connections."""

    def connect(
        self, address: Address, tls: SSLContext | None, receiver: Receiver
    ) -> Callable[[], None]:
        """Begin to open a connection; the function returned gives up."""
        ...


class _Stream(asyncio.BufferedProtocol):
    """One TCP connection: asyncio receives into the buffers of its owner."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._receiver.opened(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._receiver.received(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        hint = "the connection was closed; is this a Kafka listener?"
        self._receiver.lost(exc if isinstance(exc, OSError) else ConnectionError(exc or hint))


class LoopNetwork:
    """TCP on the running event loop."""

    def __init__(self, pool: Pool) -> None:
        """Take the pool that looks names up: asyncio would do so on one of its own."""
        self._pool = pool

    def connect(
        self, address: Address, tls: SSLContext | None, receiver: Receiver
    ) -> Callable[[], None]:
        """See `Network`."""
        opening = self._open(address, tls, receiver)
        task = asyncio.get_running_loop().create_task(opening)
        return lambda: _cancel(task)

    async def _open(self, address: Address, tls: SSLContext | None, receiver: Receiver) -> None:
        loop, (host, port) = asyncio.get_running_loop(), address
        failure = OSError(f"{host} has no address")
        try:
            for place in await self._places(host):
                try:
                    await loop.create_connection(
                        lambda: _Stream(receiver),
                        place,
                        port,
                        ssl=tls,
                        server_hostname=None if tls is None else host,
                    )
                except OSError as error:
                    failure = error
                else:
                    return
        except (UnicodeError, RuntimeError) as error:  # no name; the pool has been shut down
            failure = OSError(str(error))
        except OSError as error:
            failure = error
        receiver.lost(failure)

    async def _places(self, host: str) -> list[str]:
        """The host's addresses; each is tried: a listener may have one of them."""
        try:
            ip_address(host)
        except ValueError:
            pass
        else:
            return [host]
        found = await self._pool.run(socket.getaddrinfo, host, None, 0, socket.SOCK_STREAM)
        return [str(info[4][0]) for info in found]


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
