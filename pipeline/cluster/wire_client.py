"""A small client that asks brokers one question after the other.

Where several may be asked, the first that is there is (`greeting`): a hung one costs nothing.

Only for what client libraries cannot ask yet: the offsets of the tiers (ListOffsets -4 and -5) and
topic ids. Blocking, one connection a broker, plain TCP.
"""

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Self

from kafka_protocol.errors import MalformedMessageError, TidemarkError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import header_versions
from pipeline.cluster.greeting import Address, answering

_TIMEOUT_S: Final = 30.0
_FRAME_BYTES_MAX = 100 << 20


class ClusterError(TidemarkError):
    """The cluster cannot be reached, or refuses what a tool asks of it."""


class UnreachableError(ClusterError):
    """No broker is there, or it does not answer in time; perhaps later."""


class WireClient:
    """Connections to the brokers of one cluster; use it in a `with` block.

    Attributes:
        bootstrap: the addresses that were given.
        others: brokers that are known beside the bootstrap servers.
        timeout_s: how long a question may take, with the connection and all of its answer.
    """

    def __init__(self, bootstrap: str, client_id: str = "tidemark") -> None:
        """Take the addresses; nothing is opened yet.

        Args:
            bootstrap: `host:port`, several with commas between.
            client_id: how the tool calls itself.
        """
        self.timeout_s = _TIMEOUT_S
        self.bootstrap = tuple(_address(one) for one in bootstrap.split(",") if one.strip())
        if not self.bootstrap:
            raise ClusterError("no bootstrap server is named: give host:port[,host:port]")
        self._client_id = client_id.encode()
        self.others: Sequence[Address] = ()
        self._sockets: dict[Address, socket.socket] = {}
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections; a later question opens them again."""
        while self._sockets:
            self._sockets.popitem()[1].close()

    def ask_any(self, api_key: int, version: int, body: object) -> Any:
        """Ask whichever bootstrap server is there first, or else another broker.

        Raises:
            ClusterError: none answers.
        """
        errors: list[ClusterError] = []
        for found in self.present((*self.bootstrap, *self.others), self.timeout_s, errors):
            try:
                return self.ask(found, api_key, version, body)
            except ClusterError as error:
                errors.append(error)
        away = all(isinstance(error, UnreachableError) for error in errors)
        kind = UnreachableError if away else ClusterError
        raise kind("; ".join(map(str, errors)))

    def present(
        self, addresses: Iterable[Address], timeout_s: float, problems: list[ClusterError]
    ) -> Iterator[Address]:
        """Those where somebody answers, the first first; a single one is not looked at.

        Args:
            addresses: are greeted at the same time.
            timeout_s: for all of them.
            problems: gets why nobody answers at the others; its cause is a `TimeoutError` where
                somebody may still be there.
        """
        names = dict.fromkeys(addresses)
        if len(names) == 1:
            yield from names
            return
        kept = {one: self._sockets.pop(one, None) for one in names}
        for address, connection in answering(kept, self._client_id, timeout_s):
            if isinstance(connection, OSError):
                problems.append(_unreachable(address, connection))
                problems[-1].__cause__ = connection
            else:
                self._sockets[address] = connection
                yield address

    def ask(self, address: Address, api_key: int, version: int, body: object) -> Any:
        """Send one request and wait for its answer.

        Raises:
            ClusterError: the broker is not there, is silent, or ends the connection.
        """
        self._correlation_id += 1
        request_header, response_header = header_versions(api_key, version)
        frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
        frame += self._correlation_id.to_bytes(4, "big")
        frame += len(self._client_id).to_bytes(2, "big") + self._client_id
        frame += b"\0" * (request_header == 2)
        frame += codec.request(api_key).encode(body, version)
        where = f"{address[0]}:{address[1]}"
        try:
            answer = self._exchange(address, frame)
            value, _ = codec.response(api_key).decode(answer, version, 4 + response_header)
        except MalformedMessageError as error:
            self._drop(address)
            raise ClusterError(f"{where}: the answer cannot be read: {error}") from error
        except OSError as error:
            self._drop(address)
            raise _unreachable(address, error) from error
        return value

    def _exchange(self, address: Address, frame: bytes) -> bytearray:
        deadline = time.monotonic() + self.timeout_s
        connection = self._sockets.get(address)
        if connection is None:
            connection = socket.create_connection(address, self.timeout_s)
            self._sockets[address] = connection
        connection.settimeout(_left_s(deadline))
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(_exactly(connection, 4, deadline), "big")
        if size > _FRAME_BYTES_MAX:
            raise ConnectionError(f"an answer of {size} bytes; is this a Kafka listener?")
        answer = _exactly(connection, size, deadline)
        if int.from_bytes(answer[:4], "big") != self._correlation_id:
            raise ConnectionError("it answers another question")
        return answer

    def _drop(self, address: Address) -> None:
        connection = self._sockets.pop(address, None)
        if connection is not None:
            connection.close()


def _unreachable(address: Address, error: OSError) -> UnreachableError:
    return UnreachableError(f"{address[0]}:{address[1]}: {error.strerror or error}")


def _exactly(connection: socket.socket, size: int, deadline: float) -> bytearray:
    data = bytearray(size)
    left = memoryview(data)
    while left:
        connection.settimeout(_left_s(deadline))
        count = connection.recv_into(left)
        if not count:
            raise ConnectionError("the connection was closed; is this a Kafka listener?")
        left = left[count:]
    return data


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def _address(text: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterError(f"bootstrap server {text.strip()!r}: must be host:port")
    return host.strip("[]"), int(port)
