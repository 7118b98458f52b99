"""The connection to one address: opened when needed; first ApiVersions, then requests.

Answers come in the order of the requests. Whatever goes wrong ends the connection and all requests
on it, also a request that is not answered in time: the peer may be gone without a word, and a new
connection finds out. Nothing here tries again; that is the core's decision, at the core's pace.
"""

import asyncio
import logging
import socket
from collections import deque
from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct
from typing import Final

from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.wire.peer_calls import (
    CORRELATION_ID_MAX,
    Call,
    UnsayableRequest,
    common_version,
    correlation_id_of,
    handshake_frame,
    read_handshake,
    read_response,
    request_frame,
)
from metadata_topic.quorum.wire.requests import is_sayable
from metadata_topic.quorum.wire.responses import UnreadableAnswer, without_pre_vote
from metadata_topic.quorum.wire.rpc import WireIdentity, api_of
from metadata_topic.raft.messages import Response, VoteRequest
from runtime.executors import Pool
from runtime.log_context import escape
from runtime.scheduler import Scheduler, Timer

log = logging.getLogger(__name__)

_SIZE: Final = Struct(">i")
_FRAME_MIN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """What all connections to peers share.

    Attributes:
        identity: of this replica's quorum.
        client_id: in every request's header.
        answer_bytes_max: a longer answer ends the connection. The leader sends 8 MiB of records at
            most, or one batch.
        at_once_bytes: a longer answer is decoded and checked by a thread.
        idle_ms_max: a connection that was not used for so long is closed.
    """

    identity: WireIdentity
    client_id: str
    answer_bytes_max: int = 32 << 20
    at_once_bytes: int = 64 << 10
    idle_ms_max: int = 540_000


class _Stream(asyncio.Protocol):
    """One connection of a link; an ended one is no longer heard."""

    def __init__(self, link: "Link") -> None:
        self.link: Link | None = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self.link is None:
            transport.abort()
        else:
            self.link.opened(transport)

    def data_received(self, data: bytes) -> None:
        if self.link is not None:
            self.link.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.link is not None:
            self.link.end(f"connection lost: {exc or 'closed by the peer'}")


class Link:
    """The connection to one address, or none as long as nobody needs it."""

    def __init__(
        self, address: tuple[str, int], settings: LinkSettings, scheduler: Scheduler, pool: Pool
    ) -> None:
        """Nothing is opened before the first `send`.

        Args:
            address: host and port.
            settings: of all links.
            scheduler: timers, and what comes back from threads.
            pool: looks names up, and decodes long answers.
        """
        self._address, self._settings = address, settings
        self._scheduler, self._pool = scheduler, pool
        self._client_id = settings.client_id.encode()
        self._stream: _Stream | None = None
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._versions: dict[int, Versions] | None = None
        self._waiting: deque[Call] = deque()
        self._asked: deque[tuple[int, Call | None]] = deque()
        self._received = bytearray()
        self._correlation_id = 0
        self._idle: Timer | None = None
        self._said = ""

    @property
    def is_in_use(self) -> bool:
        """Whether there is a connection, or an attempt to open one."""
        return self._stream is not None

    # -- requests

    def send(self, call: Call) -> None:
        """Send a request as soon as that can be."""
        self._waiting.append(call)
        if self._versions is not None:
            self._send_waiting()
        elif not self.is_in_use:
            self._stream = _Stream(self)
            self._opening = asyncio.get_running_loop().create_task(self._open(self._stream))

    def expired(self, call: Call, timeout_ms: int) -> None:
        """`call` has no answer in its time."""
        call.finish(None)
        if call in self._waiting or any(asked is call for _, asked in self._asked):
            self.end(f"no answer within {timeout_ms} ms")

    def _send_waiting(self) -> None:
        assert self._versions is not None
        assert self._transport is not None
        while self._waiting:
            call = self._waiting.popleft()
            request = call.request
            version = common_version(request, self._versions)
            if version is None:
                self._say(f"the peer does not serve {api_of(request).name} as we ask it")
                call.finish(None)
            elif isinstance(request, VoteRequest) and not is_sayable(request, version):
                call.finish(without_pre_vote(request))
            else:
                self._write(self._transport, call, version)
        self._watch_idleness()

    def _write(self, transport: asyncio.Transport, call: Call, version: int) -> None:
        identity, number = self._settings.identity, self._correlation_id
        try:
            frame = request_frame(call.request, version, identity, number, self._client_id)
        except UnsayableRequest as reason:
            self._say(str(reason))
            call.finish(None)
            return
        call.version = version
        self._next_number(call)
        transport.write(frame)

    def _next_number(self, call: Call | None) -> int:
        number = self._correlation_id
        self._correlation_id = 0 if number == CORRELATION_ID_MAX else number + 1
        self._asked.append((number, call))
        return number

    # -- connection

    async def _open(self, stream: "_Stream") -> None:
        try:
            await self._connect(stream)
        except (OSError, UnicodeError, RuntimeError) as error:
            if stream is self._stream:
                self.end(f"cannot connect: {error}")

    async def _connect(self, stream: "_Stream") -> None:
        loop = asyncio.get_running_loop()
        host, port = self._address
        failure = OSError(f"{host} has no address")
        for address in [host] if _is_numeric(host) else await self._addresses(host):
            try:
                await loop.create_connection(lambda: stream, address, port)
            except OSError as error:
                failure = error
            else:
                return
        raise failure

    async def _addresses(self, host: str) -> list[str]:
        # asyncio would look names up on a pool of its own.
        found = await self._pool.run(socket.getaddrinfo, host, None, 0, socket.SOCK_STREAM)
        return [str(info[4][0]) for info in found]

    def opened(self, transport: asyncio.Transport) -> None:
        """The connection stands: ask what the peer knows."""
        self._transport, self._opening = transport, None
        transport.write(handshake_frame(self._next_number(None), self._client_id))

    def end(self, reason: str, *, quiet: bool = False) -> None:
        """Close, and let every request end without an answer.

        Args:
            reason: for the log.
            quiet: an ordinary end.
        """
        stream, transport, opening = self._stream, self._transport, self._opening
        self._stream = self._transport = self._opening = self._versions = None
        self._received = bytearray()
        if stream is not None:
            stream.link = None
        if opening is not None:
            opening.cancel()
        if transport is not None:
            transport.abort()
        if self._idle is not None:
            self._idle.cancel()
        calls = [call for _, call in self._asked if call is not None] + list(self._waiting)
        self._asked.clear()
        self._waiting.clear()
        for call in calls:
            call.finish(None)
        if not quiet:
            self._say(reason)

    def _watch_idleness(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self._asked and not self._waiting:
            self._idle = self._scheduler.call_later(
                self._settings.idle_ms_max, lambda: self.end("idle", quiet=True)
            )

    # -- answers

    def received(self, data: bytes) -> None:
        """Take bytes; whole frames are answers."""
        received, position = self._received, 0
        received += data
        stream = self._stream
        while len(received) - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(received, position)
            if not _FRAME_MIN <= size <= self._settings.answer_bytes_max:
                self.end(f"an answer of {size} bytes is announced")
                return
            end = position + _SIZE.size + size
            if end > len(received):
                break
            frame = bytes(memoryview(received)[position + _SIZE.size : end])
            position = end
            try:
                self._answered(frame)
            except UnreadableAnswer as reason:
                self.end(f"unreadable answer: {reason}")
            if self._stream is not stream:
                return
        del received[:position]

    def _answered(self, frame: bytes) -> None:
        if not self._asked:
            raise UnreadableAnswer("nothing was asked")
        number, call = self._asked.popleft()
        if correlation_id_of(frame) != number:
            if call is not None:
                call.finish(None)
            raise UnreadableAnswer(f"to request {correlation_id_of(frame)}, not {number}")
        if call is None:
            self._versions = read_handshake(frame)
            self._said = self._reachable()
            self._send_waiting()
            return
        self._watch_idleness()
        if len(frame) > self._settings.at_once_bytes:
            self._read_beside(call, frame)
        else:
            self._read(call, frame)

    def _read(self, call: Call, frame: bytes) -> None:
        try:
            call.finish(read_response(call.request, call.version, frame))
        except UnreadableAnswer as reason:
            self._unreadable(call, reason)

    def _read_beside(self, call: Call, frame: bytes) -> None:
        def read() -> Response | UnreadableAnswer:
            try:
                return read_response(call.request, call.version, frame)
            except UnreadableAnswer as reason:
                return reason

        def back(answer: Response | UnreadableAnswer) -> None:
            if isinstance(answer, UnreadableAnswer):
                self._unreadable(call, answer)
            else:
                call.finish(answer)

        try:
            reading = self._pool.submit(read)
        except RuntimeError:  # the pool has been shut down
            call.finish(None)
            return
        reading.add_done_callback(
            lambda done: self._scheduler.call_soon(
                lambda: call.finish(None) if done.cancelled() else back(done.result())
            )
        )

    def _unreadable(self, call: Call, reason: UnreadableAnswer) -> None:
        call.finish(None)
        self._say(f"unreadable answer: {reason}")

    # -- log

    def _say(self, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            log.warning(
                "a controller cannot be asked: address=%s:%d reason=%s",
                escape(self._address[0]),
                self._address[1],
                escape(reason, 300),
            )

    def _reachable(self) -> str:
        if self._said:
            log.info(
                "a controller answers again: address=%s:%d",
                escape(self._address[0]),
                self._address[1],
            )
        return ""


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
