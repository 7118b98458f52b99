"""Bytes between two nodes, as a port: TCP on an event loop, or a simulated network."""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from ssl import SSLContext
from typing import Any, Final, Protocol

from runtime.executors import Pool
from runtime.ports import Isolation

Address = tuple[str, int]
"""Host and port."""
_ATTEMPT_S: Final = 1.5
"""Time that an address may be silent while its name has others. One SYN is repeated in it, and a
caller with the time-out of a quorum's request still reaches the next."""


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
        """Close at once; unsent bytes are lost."""
        ...


class Receiver(Protocol):
    """The owner of a connection; called on the loop's thread, never before `connect` returns."""

    def opened(self, transport: Transport) -> None:
        """The connection is open."""
        ...

    def buffer(self) -> memoryview:
        """Memory for the next bytes; not empty."""
        ...

    def received(self, count: int) -> None:
        """`count` bytes were written to the last `buffer`."""
        ...

    def lost(self, reason: OSError | None) -> None:
        """The connection could not be opened, or has ended; None: the node ended it."""
        ...


class Network(Protocol):
    """Opens connections."""

    def connect(
        self, address: Address, tls: SSLContext | None, receiver: Receiver
    ) -> Callable[[], None]:
        """Begin to open a connection; the returned function cancels that."""
        ...


class _Stream(asyncio.BufferedProtocol):
    """One TCP connection: asyncio receives into the buffers of its owner."""

    def __init__(self, receiver: Receiver, isolation: Isolation) -> None:
        self._receiver, self._isolation = receiver, isolation

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._isolation.is_cut:  # since it began to connect
            transport.abort()
            return
        self._isolation.add(self, transport.abort)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._receiver.opened(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._receiver.received(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not isinstance(exc, OSError):
            exc = ConnectionError(exc)
        self._isolation.discard(self)
        self._receiver.lost(exc)


class LoopNetwork:
    """TCP on the running event loop."""

    def __init__(self, pool: Pool, isolation: Isolation) -> None:
        """Nothing is opened yet.

        Args:
            pool: For look-ups of names; asyncio would use one of its own.
            isolation: While this process is cut off, no connection exists.
        """
        self._pool, self._isolation = pool, isolation

    def connect(
        self, address: Address, tls: SSLContext | None, receiver: Receiver
    ) -> Callable[[], None]:
        """Begin to open a TCP connection; the returned function cancels that."""
        opening = self._open(address, tls, receiver)
        task = asyncio.get_running_loop().create_task(opening)
        return lambda: _cancel(task)

    async def _open(self, address: Address, tls: SSLContext | None, receiver: Receiver) -> None:
        host, port = address
        try:
            if self._isolation.is_cut:
                raise ConnectionError("this process is cut off by a test")
            await asyncio.get_running_loop().create_connection(
                lambda: _Stream(receiver, self._isolation),
                sock=await _connected(host, await self._places(host, port)),
                ssl=tls,
                server_hostname=None if tls is None else host,
            )
        except (UnicodeError, RuntimeError) as error:  # not a name, or the pool is shut down
            receiver.lost(OSError(str(error)))
        except OSError as error:
            receiver.lost(error)

    async def _places(self, host: str, port: int) -> list[Any]:
        try:
            ip_address(host)
        except ValueError:
            return await self._pool.run(socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM)
        return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)


async def _connected(host: str, places: list[Any]) -> socket.socket:
    """A socket connected to one of a host's addresses: a listener may have only one of them.

    Raises:
        OSError: None accepts the connection.
    """
    failure = OSError(f"{host} has no address")
    for place in places:
        try:
            async with asyncio.timeout(None if place is places[-1] else _ATTEMPT_S):
                return await _connect(*place)
        except OSError as error:
            failure = error
    raise failure


async def _connect(family: int, kind: int, protocol: int, _: str, place: Any) -> socket.socket:
    stream = socket.socket(family, kind, protocol)
    try:
        stream.setblocking(False)
        await asyncio.get_running_loop().sock_connect(stream, place)
    except BaseException:
        stream.close()
        raise
    return stream


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
