"""The blocking client: requests to the brokers of one cluster, without an event loop.

For tools and for Spark's workers; belongs to one thread. It uses the same exchange as `connection`,
on a socket that is polled. With several brokers, the first that answers ApiVersions gets the
request: a process that hangs still accepts connections, and costs no time.
"""

import os
import select
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ssl import SSLSocket, SSLWantReadError, SSLWantWriteError
from typing import Any, Final, Self

from kafka_client.exchange import ConnectionSettings, Exchange
from kafka_client.requests import (
    Call,
    ClientError,
    UnreadableAnswerError,
    UnsupportedError,
    encoder,
    greeting,
)
from kafka_client.transport import Address
from kafka_protocol.errors import TidemarkError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from runtime.clock import SystemClock

_TIMEOUT_S: Final = 30.0
_ANSWER_BYTES_MAX: Final = 100 << 20
_RECEIVED_BYTES: Final = 1 << 20
_CLOCK: Final = SystemClock()
_LATER: Final = (BlockingIOError, SSLWantReadError, SSLWantWriteError)


class ClusterError(TidemarkError):
    """The cluster cannot be reached, or refuses a request."""


class UnreachableError(ClusterError):
    """No broker answers in time; a later try may succeed."""


class BlockingClient:
    """Connections to the brokers of one cluster; use it in a `with` block.

    Attributes:
        bootstrap: The given addresses.
        others: Known brokers beside the bootstrap servers.
        timeout_s: Longest time of a request, with its connection and all of its answer.
    """

    def __init__(self, bootstrap: str, client_id: str = "tidemark", **security: Any) -> None:
        """Parse the addresses; nothing is opened yet.

        Args:
            bootstrap: `host:port`, several with commas between.
            client_id: The tool's name.
            security: `tls` and `authenticate` of `ConnectionSettings`.
        """
        self.timeout_s = _TIMEOUT_S
        self.bootstrap = tuple(_address(one) for one in bootstrap.split(",") if one.strip())
        if not self.bootstrap:
            raise ClusterError("no bootstrap server is named: give host:port[,host:port]")
        self._settings = ConnectionSettings(
            client_id=client_id, answer_bytes_max=_ANSWER_BYTES_MAX, **security
        )
        self.others: Sequence[Address] = ()
        self._connections: dict[Address, _Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections; a later request opens them again."""
        while self._connections:
            self._connections.popitem()[1].end(ConnectionError("closed"))

    def ask_any(self, api_key: ApiKey, version: int, body: object) -> Any:
        """Send to the bootstrap server that answers first, or else to another broker.

        Raises:
            ClusterError: None answers; its cause is that of the last.
        """
        errors: list[ClusterError] = []
        for found in self.present((*self.bootstrap, *self.others), self.timeout_s, errors):
            try:
                return self.ask(found, api_key, version, body)
            except ClusterError as error:
                errors.append(error)
        away = all(isinstance(error, UnreachableError) for error in errors)
        kind = UnreachableError if away else ClusterError
        raise kind("; ".join(map(str, errors))) from errors[-1].__cause__

    def present(
        self, addresses: Iterable[Address], timeout_s: float, problems: list[ClusterError]
    ) -> Iterator[Address]:
        """Addresses whose node answers ApiVersions, the fastest first; a single one is not asked.

        Connections to the others continue; a later request uses them.

        Args:
            addresses: Asked at the same time.
            timeout_s: For all of them; it stands still while the caller uses one that was found.
            problems: Gets an error for each address without an answer. Its cause is a
                `TimeoutError` where a node may still be there.
        """
        names = dict.fromkeys(addresses)
        if len(names) == 1:
            yield from names
            return
        waiting = {one: self._connection(one) for one in names}
        for connection in waiting.values():
            connection.greet()
        ends_ms = _CLOCK.monotonic_ms() + round(timeout_s * 1000)
        while waiting:
            found = [address for address, connection in waiting.items() if connection.is_settled]
            if not found and not _move(waiting.values(), ends_ms):
                for connection in waiting.values():
                    connection.end(TimeoutError("timed out"))
            for address in found:
                failure = waiting.pop(address).failure
                if failure is not None:
                    problems.append(_unreachable(address, failure))
                    continue
                found_ms = _CLOCK.monotonic_ms()
                yield address
                ends_ms += _CLOCK.monotonic_ms() - found_ms

    def versions(self, address: Address) -> Mapping[int, Versions]:
        """The versions that the node serves, by API key.

        Raises:
            ClusterError: It does not answer.
        """
        connection = self._connection(address)
        self._wait(connection, lambda: connection.exchange.is_ready)
        if connection.failure is not None and not connection.exchange.is_ready:
            raise _unreachable(address, connection.failure)
        return connection.exchange.versions

    def ask(self, address: Address, api_key: ApiKey, version: int, body: object) -> Any:
        """Send one request and wait for its answer.

        Raises:
            ClusterError: The broker is not there, does not answer, or ends the connection.
        """
        connection = self._connection(address)
        if connection.failure is not None:
            raise _unreachable(address, connection.failure)
        ended: list[Any] = []
        encode, timeout_ms = encoder(api_key, body), round(self.timeout_s * 1000)
        call = Call(api_key, encode, ended.append, versions=version, timeout_ms=timeout_ms)
        connection.exchange.add(call)
        self._wait(connection, lambda: call.is_done)
        (result,) = ended
        if not isinstance(result, ClientError):
            return result
        if isinstance(result.__cause__, OSError):
            raise _unreachable(address, result.__cause__)
        if isinstance(result, UnreadableAnswerError):
            connection.end(ConnectionError("closed"))
            raise ClusterError(f"{_text(address)}: the answer cannot be read: {result}") from result
        hint = ""
        if (
            isinstance(result, UnsupportedError)
            and ApiKey.METADATA not in connection.exchange.versions
        ):
            hint = "; is this the controllers' listener?"  # no broker can do without Metadata
        raise ClusterError(f"{_text(address)}: {result}{hint}") from result

    def _wait(self, connection: "_Connection", is_done: Callable[[], bool]) -> None:
        """Return when the call is done, or the connection has failed."""
        ends_ms = _CLOCK.monotonic_ms() + round(self.timeout_s * 1000)
        while not is_done() and connection.failure is None:
            if not _move((connection,), ends_ms):
                connection.end(TimeoutError("timed out"))

    def _connection(self, address: Address) -> "_Connection":
        """The connection to an address: a new one if the last has ended, noticed or not."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = _Connection(address, self._settings)
            return connection
        if connection.failure is None:
            connection.look(round(self.timeout_s * 1000))
        if connection.failure is not None:
            connection.begin()
        return connection


class _Connection:
    """The connection to one address, from its name to its answers.

    Attributes:
        failure: Reason why the connection has ended.
    """

    def __init__(self, address: Address, settings: ConnectionSettings) -> None:
        self._address, self._settings = address, settings
        self.begin()

    def begin(self) -> None:
        """Open it, or open it again after its end."""
        self.exchange = Exchange(self._settings, _CLOCK)
        self.failure: OSError | None = None
        self._greeting: Call | None = None
        self._socket: socket.socket | None = None
        self._attempt_ends_ms: int | None = None
        self._is_connected = self._is_open = False
        self._unsent = b""
        self._asked_ms = _CLOCK.monotonic_ms()  # when ApiVersions was sent
        try:
            self._places = deque(socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM))
        except OSError as error:
            self.end(error)
        except UnicodeError as error:
            self.end(OSError(f"no host can have this name: {error}"))
        else:
            self._next_place(OSError("the name has no address"))

    @property
    def is_settled(self) -> bool:
        """True if the node has answered ApiVersions, or will not."""
        greeted = self.exchange.is_ready and (self._greeting is None or self._greeting.is_done)
        return self.failure is not None or greeted

    def greet(self) -> None:
        """Request ApiVersions again, if it was answered before."""
        if self.failure is None and self.is_settled:
            self._asked_ms = _CLOCK.monotonic_ms()
            self._greeting = greeting(lambda _: None, 0)
            self.exchange.add(self._greeting)

    def look(self, silence_ms_max: int) -> None:
        """Receive arrived bytes; without an answer for `silence_ms_max` the connection ends."""
        _wait_for((self,), 0)
        silence_ms = _CLOCK.monotonic_ms() - self._asked_ms
        if not self.is_settled and silence_ms > silence_ms_max:
            self.end(TimeoutError("timed out"))

    def end(self, reason: OSError) -> None:
        """Close; requests end without an answer."""
        if self.failure is None:
            self.failure = reason
            if self._socket is not None:
                self._socket.close()
            self.exchange.end(reason)

    def wanted(self) -> tuple[int, int]:
        """The socket's descriptor and the events that it waits for."""
        assert self._socket is not None
        self._unsent += self.exchange.take_outgoing()
        return self._socket.fileno(), self._events | (select.POLLOUT if self._unsent else 0)

    def attempt_ms(self, left_ms: int) -> int:
        """Part of the remaining time for the address that is being tried."""
        if self._is_connected or not self._places:
            return left_ms
        now_ms = _CLOCK.monotonic_ms()
        if self._attempt_ends_ms is None:
            self._attempt_ends_ms = now_ms + left_ms // (1 + len(self._places))
        return min(left_ms, max(self._attempt_ends_ms - now_ms, 0))

    def next_attempt(self) -> None:
        """Continue to the next address if this one has had its time."""
        if self._is_connected or not self._places or self._attempt_ends_ms is None:
            return
        if self._attempt_ends_ms <= _CLOCK.monotonic_ms():
            self._next_place(TimeoutError("timed out"))

    def continues(self) -> None:
        """Connect, send and receive as far as the socket is ready."""
        try:
            if not self._is_open:
                self._open()
            with suppress(*_LATER):
                self._send()
            self._receive()
        except _LATER:
            pass
        except OSError as error:
            if not self._is_connected:
                self._next_place(error)
            elif self._greeting is not None and not self._greeting.is_done:
                self.end(error)
                self.begin()  # it was open from before: the node may have restarted
            else:
                self.end(error)

    def _next_place(self, error: OSError) -> None:
        """Begin to connect to the next of the name's addresses."""
        if self._socket is not None:
            self._socket.close()
        while self._places:
            family, kind, protocol, _, place = self._places.popleft()
            try:
                self._socket = socket.socket(family, kind, protocol)
                self._socket.setblocking(False)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                with suppress(BlockingIOError):
                    self._socket.connect(place)
            except OSError as failure:
                error = failure
                if self._socket is not None:
                    self._socket.close()
            else:
                self._events, self._attempt_ends_ms = select.POLLOUT, None
                return
        self.end(error)

    def _open(self) -> None:
        assert self._socket is not None
        if not self._is_connected:
            number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number))
            self._is_connected, self._events = True, select.POLLIN
            tls = self._settings.tls
            if tls is not None:
                self._socket = tls.wrap_socket(
                    self._socket, server_hostname=self._address[0], do_handshake_on_connect=False
                )
        if isinstance(self._socket, SSLSocket):
            self._socket.do_handshake()
        self._is_open = True
        self.exchange.opened()
        self._unsent += self.exchange.take_outgoing()

    def _send(self) -> None:
        assert self._socket is not None
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def _receive(self) -> None:
        assert self._socket is not None
        while True:
            count = self._socket.recv_into(self.exchange.buffer(_RECEIVED_BYTES))
            if not count:
                raise self.exchange.closed()
            found = self.exchange.received(count)
            if found is not None:
                call, answer = found
                result = call.result_of(answer)
                answer.release()
                call.finish(result)


def _move(connections: Collection[_Connection], ends_ms: int) -> bool:
    """Wait for any of the sockets and handle the ready ones; False: the time is over."""
    left_ms = ends_ms - _CLOCK.monotonic_ms()
    if left_ms <= 0:
        return False
    _wait_for(connections, min(connection.attempt_ms(left_ms) for connection in connections))
    return True


def _wait_for(connections: Collection[_Connection], wait_ms: int) -> None:
    poll, waiting = select.poll(), {}
    for connection in connections:
        descriptor, events = connection.wanted()
        poll.register(descriptor, events)
        waiting[descriptor] = connection
    ready = {descriptor for descriptor, _ in poll.poll(wait_ms)}
    for descriptor, connection in waiting.items():
        if descriptor in ready:
            connection.continues()
        else:
            connection.next_attempt()


def _unreachable(address: Address, reason: OSError) -> UnreachableError:
    error = UnreachableError(f"{_text(address)}: {reason.strerror or reason}")
    error.__cause__ = reason
    return error


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _address(text: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterError(f"bootstrap server {text.strip()!r}: must be host:port")
    return host.strip("[]"), int(port)
