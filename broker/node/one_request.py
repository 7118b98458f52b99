"""One request over a connection of its own, in the clear: to another node of the cluster.

    async with Conversation(("127.0.0.1", 9093), b"broker-1", pool) as talk:
        answer = await talk.ask(ApiKey.DESCRIBE_CLUSTER, 1, question)

For what is asked seldom; whoever asks all the time keeps a connection (`metadata_topic.quorum`).
"""

import asyncio
import socket
from struct import Struct
from typing import Any, Final, Self

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.primitives import skip_tags
from runtime.executors import Pool

_ANSWER_BYTES_MAX: Final = 32 << 20
_HEAD: Final = Struct(">ihhih")
_SIZE: Final = Struct(">i")
_CORRELATION: Final = Struct(">i")
_FLEXIBLE_HEADER: Final = 2
NO_ANSWER: Final = (OSError, asyncio.IncompleteReadError, TimeoutError, MalformedMessageError)
"""What a conversation raises where there is no answer."""


class Conversation:
    """Requests to one address, one after the other; the connection ends with the block."""

    def __init__(self, address: tuple[str, int], client_id: bytes, pool: Pool) -> None:
        """Nothing is opened yet.

        Args:
            address: host and port.
            client_id: in every request's header.
            pool: looks the host up; asyncio would do so on a pool of its own.
        """
        self._address, self._client_id, self._pool = address, client_id, pool
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asked = 0

    async def __aenter__(self) -> Self:
        """Connect to the first of the host's addresses where somebody listens.

        Raises:
            OSError: nobody listens there.
        """
        host, port = self._address
        found = await self._pool.run(socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM)
        failure = OSError(f"{host} has no address")
        for info in found:
            try:
                self._streams = await asyncio.open_connection(*info[4][:2])
            except OSError as error:
                failure = error
            else:
                return self
        raise failure

    async def __aexit__(self, *_: object) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()

    async def ask(self, api_key: ApiKey, version: int, question: Any) -> Any:
        """Send a request and decode its answer; the caller limits the time.

        Raises:
            NO_ANSWER: the connection ended, or what came is no answer to this request.
        """
        assert self._streams is not None
        reader, writer = self._streams
        request_header, response_header = header_versions(api_key, version)
        body = codec.request(api_key).encode(question, version)
        tags = b"\0" if request_header == _FLEXIBLE_HEADER else b""
        size = _HEAD.size - _SIZE.size + len(self._client_id) + len(tags) + len(body)
        self._asked += 1
        head = _HEAD.pack(size, api_key, version, self._asked, len(self._client_id))
        writer.write(head + self._client_id + tags + body)
        (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        if not _CORRELATION.size <= size <= _ANSWER_BYTES_MAX:
            raise MalformedMessageError(f"an answer of {size} bytes")
        frame = await reader.readexactly(size)
        (answered,) = _CORRELATION.unpack_from(frame)
        if answered != self._asked:
            raise MalformedMessageError(f"an answer to request {answered}, not {self._asked}")
        position = _CORRELATION.size
        if response_header == 1:
            try:
                position = skip_tags(frame, position)
            except IndexError:
                raise MalformedMessageError("an answer that ends within its header") from None
        return codec.response(api_key).decode(frame, version, position)[0]
