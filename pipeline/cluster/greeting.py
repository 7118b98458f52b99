"""Says ApiVersions to several addresses at once, and hands out those that answer, the first first.

A process that hangs still takes connections: only an answer shows that somebody is there. What is
asked then goes to one address alone, so that a change is never asked for twice.
"""

import os
import selectors
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey

Address = tuple[str, int]

_CORRELATION_ID: Final = (0x67726565).to_bytes(4, "big")
_ANSWER_BYTES_MAX: Final = 1 << 20


class Answered(NamedTuple):
    """What came of one address.

    Attributes:
        connection: blocking, nothing is under way on it; or why there is none.
    """

    address: Address
    connection: socket.socket | OSError


def answering(
    kept: Mapping[Address, socket.socket | None], client_id: bytes, timeout_s: float
) -> Iterator[Answered]:
    """Greet all, and yield each when it answers or fails; those left at the end have timed out.

    Args:
        kept: the addresses, each with a connection that is open already. They are this function's
            now; those that are not handed out are closed.
        client_id: in the greeting's header.
        timeout_s: for all of them.
    """
    deadline = time.monotonic() + timeout_s
    frame = _frame(client_id)
    with selectors.DefaultSelector() as selector:
        waiting = {address: _Guest(address, one, frame) for address, one in kept.items()}
        try:
            for guest in waiting.values():
                guest.begin(selector)
            while waiting:
                found = [one.found for one in waiting.values() if one.found is not None]
                for one in found:
                    del waiting[one.address]
                    yield one
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                if not found:
                    for key, _ in selector.select(left_s):
                        key.data.goes_on(selector)
            for address in list(waiting):
                waiting.pop(address).close()
                yield Answered(address, TimeoutError("timed out"))
        finally:
            for guest in waiting.values():
                guest.close()


class _Guest:
    """One address: its connection on the way from a name to an answer."""

    def __init__(self, address: Address, kept: socket.socket | None, frame: bytes) -> None:
        self.address = address
        self._frame, self._kept = frame, kept
        self._places: Iterator[Any] = iter(())
        self._socket: socket.socket | None = None
        self._is_connected = False
        self._received = b""
        self.found: Answered | None = None

    def begin(self, selector: selectors.BaseSelector) -> None:
        """Greet on the connection that is open, or open one."""
        try:
            self._places = iter(socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM))
        except OSError as error:
            self.found = Answered(self.address, error)
            if self._kept is not None:
                self._kept.close()
            return
        if self._kept is None:
            self._next_place(selector, OSError("the name has no address"))
        else:
            self._kept.setblocking(False)
            self._watch(selector, self._kept)

    def close(self) -> None:
        """Nobody wants it any more."""
        for one in (self._socket, self.found and self.found.connection):
            if isinstance(one, socket.socket):
                one.close()

    def goes_on(self, selector: selectors.BaseSelector) -> None:
        """Do what its socket is ready for."""
        assert self._socket is not None
        try:
            if self._is_connected:
                self._read(selector)
            else:
                self._greet(selector)
        except BlockingIOError:
            pass
        except OSError as error:
            selector.unregister(self._socket)
            self._socket.close()
            self._next_place(selector, error)

    def _next_place(self, selector: selectors.BaseSelector, error: OSError) -> None:
        self._socket, self._is_connected, self._received = None, False, b""
        for family, kind, protocol, _, place in self._places:
            try:
                opened = socket.socket(family, kind, protocol)
            except OSError as failure:
                error = failure
                continue
            opened.setblocking(False)
            try:
                with suppress(BlockingIOError):
                    opened.connect(place)
            except OSError as failure:
                error = failure
                opened.close()
                continue
            self._watch(selector, opened)
            return
        self.found = Answered(self.address, error)

    def _watch(self, selector: selectors.BaseSelector, opened: socket.socket) -> None:
        self._socket = opened
        selector.register(opened, selectors.EVENT_WRITE, self)

    def _greet(self, selector: selectors.BaseSelector) -> None:
        assert self._socket is not None
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))
        self._socket.sendall(self._frame)  # far shorter than any socket's buffer
        self._is_connected = True
        selector.modify(self._socket, selectors.EVENT_READ, self)

    def _read(self, selector: selectors.BaseSelector) -> None:
        assert self._socket is not None
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the connection was closed; is this a Kafka listener?")
        self._received += data
        size = int.from_bytes(self._received[:4], "big") if len(self._received) >= 4 else 4
        if size > _ANSWER_BYTES_MAX:
            raise ConnectionError(f"an answer of {size} bytes; is this a Kafka listener?")
        if len(self._received) < 4 + size:
            return
        if self._received[4:8] != _CORRELATION_ID or len(self._received) > 4 + size:
            raise ConnectionError("it answers another question")
        selector.unregister(self._socket)
        self._socket.setblocking(True)
        self.found, self._socket = Answered(self.address, self._socket), None


def _frame(client_id: bytes) -> bytes:
    body = codec.request(ApiKey.API_VERSIONS)
    head = int(ApiKey.API_VERSIONS).to_bytes(2, "big") + b"\0\0" + _CORRELATION_ID
    head += len(client_id).to_bytes(2, "big") + client_id
    frame = head + body.encode(body.cls(), 0)
    return len(frame).to_bytes(4, "big") + frame
