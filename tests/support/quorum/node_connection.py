"""Requests to controllers over the wire, one at a time on a connection."""

import asyncio
import struct
from typing import Any

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from tests.support.brokers.raw_client import build, header
from tests.support.quorum.links import HOST

VERSIONS = {
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.BROKER_REGISTRATION: 4,
    ApiKey.BROKER_HEARTBEAT: 1,
    ApiKey.DESCRIBE_QUORUM: 2,
}
"""The newest that both kinds of controllers serve."""
NO_ANSWER = (OSError, asyncio.IncompleteReadError, TimeoutError)
"""What became of the request is not known."""


class NodeConnection:
    """One connection to one controller; opened by the first request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, api: ApiKey, fields: dict[str, Any], *, timeout_s: float, version: int | None = None
    ) -> Any:
        """Send a request, in the newest version if none is named, and decode its answer.

        Raises:
            NO_ANSWER: there was none in time; the connection is closed.
        """
        message, version = codec.request(api), VERSIONS[api] if version is None else version
        frame = header(api, version) + message.encode(build(message.cls, fields), version)
        try:
            async with asyncio.timeout(timeout_s):
                data = await self._exchange(frame)
        except BaseException:  # also a cancelled one: its answer must not be the next one's
            self.close()
            raise
        position = 4 + header_versions(api, version)[1]
        return codec.response(api).decode(data, version, position)[0]

    async def _exchange(self, frame: bytes) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self.port)
        reader, writer = self._streams
        writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)

    def close(self) -> None:
        """End the connection; the next request opens another."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
