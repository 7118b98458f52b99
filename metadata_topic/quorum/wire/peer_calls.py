"""A request to another controller from its sending to its one answer: bytes out, bytes in."""

from collections.abc import Callable, Mapping
from struct import Struct, error
from typing import Final

from kafka_protocol.errors import MalformedMessageError, TidemarkError
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.codec import request as request_codec
from kafka_protocol.wire.codec import response as response_codec
from kafka_protocol.wire.primitives import skip_tags
from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.log.fetched import NO_DATA, checked_prefix
from metadata_topic.quorum.wire.requests import write_request
from metadata_topic.quorum.wire.responses import UnreadableAnswer, read_answer, records_of
from metadata_topic.quorum.wire.rpc import VERSIONS, WireIdentity, api_of
from metadata_topic.raft.messages import FetchRequest, Request, Response
from runtime.scheduler import Scheduler, Timer

Done = Callable[[Response | None], None]
"""Gets the answer of a request, or None if there will be none."""

CORRELATION_ID_MAX: Final = 2**31 - 1
_HANDSHAKE: Final = 3
"""Version of ApiVersions that is asked: all that have a quorum know it."""
_SOFTWARE: Final = ("tidemark", "unknown")
_SIZE_AND_HEADER: Final = Struct(">ihhih")
_SIZE_BYTES: Final = 4
_CORRELATION: Final = Struct(">i")


class UnsayableRequest(TidemarkError):
    """The request is not sent; it ends without an answer."""


class Call:
    """One request that waits for its answer.

    Attributes:
        version: of the request as sent; -1 before.
        is_done: `done` was called, or is about to be.
    """

    __slots__ = ("_done", "_scheduler", "_timer", "is_done", "request", "version")

    def __init__(self, request: Request, done: Done, scheduler: Scheduler) -> None:
        self.request, self.version, self.is_done = request, -1, False
        self._done, self._scheduler = done, scheduler
        self._timer: Timer | None = None

    def expire_after(self, timeout_ms: int, expired: Callable[[], None]) -> None:
        """Call `expired` if there is no answer by then."""
        self._timer = self._scheduler.call_later(max(timeout_ms, 0), expired)

    def finish(self, response: Response | None) -> None:
        """Hand the answer over, in a turn of its own; only the first counts."""
        if self.is_done:
            return
        self.is_done = True
        if self._timer is not None:
            self._timer.cancel()
        done = self._done
        self._scheduler.call_soon(lambda: done(response))


def common_version(request: Request, theirs: Mapping[int, Versions]) -> int | None:
    """The highest version of a request's API that both know."""
    api_key = api_of(request)
    ours, known = VERSIONS[api_key], theirs.get(api_key)
    if known is None:
        return None
    highest = min(ours.last, known.last)
    return highest if highest >= max(ours.first, known.first) else None


def request_frame(
    request: Request, version: int, identity: WireIdentity, correlation_id: int, client_id: bytes
) -> bytes:
    """The frame of a request, with its size.

    Raises:
        UnsayableRequest: a value in it does not fit in its field.
    """
    api_key = api_of(request)
    try:
        body = request_codec(api_key).encode(write_request(request, version, identity), version)
    except (error, OverflowError, ValueError) as cause:
        raise UnsayableRequest(f"{api_key.name} {version} cannot be encoded: {cause}") from cause
    return _frame(api_key, version, correlation_id, client_id, body)


def handshake_frame(correlation_id: int, client_id: bytes) -> bytes:
    """The frame of ApiVersions, the first request of a connection."""
    codec = request_codec(ApiKey.API_VERSIONS)
    name, version = _SOFTWARE
    body = codec.cls(client_software_name=name, client_software_version=version)
    encoded = codec.encode(body, _HANDSHAKE)
    return _frame(ApiKey.API_VERSIONS, _HANDSHAKE, correlation_id, client_id, encoded)


def _frame(
    api_key: ApiKey, version: int, correlation_id: int, client_id: bytes, body: bytes
) -> bytes:
    tags = b"\0" if header_versions(api_key, version)[0] == 2 else b""
    size = _SIZE_AND_HEADER.size - _SIZE_BYTES + len(client_id) + len(tags) + len(body)
    head = _SIZE_AND_HEADER.pack(size, api_key, version, correlation_id, len(client_id))
    return head + client_id + tags + body


def correlation_id_of(frame: bytes) -> int:
    """Which request a frame (without its size) answers.

    Raises:
        UnreadableAnswer: it is too short for an answer.
    """
    try:
        return int(_CORRELATION.unpack_from(frame)[0])
    except error:
        raise UnreadableAnswer(f"a frame of {len(frame)} bytes") from None


def read_handshake(frame: bytes) -> dict[int, Versions]:
    """Which versions of which APIs the answer of ApiVersions names.

    Raises:
        UnreadableAnswer: it names none.
    """
    try:
        body, _ = response_codec(ApiKey.API_VERSIONS).decode(frame, _HANDSHAKE, _CORRELATION.size)
    except MalformedMessageError as cause:
        raise UnreadableAnswer(f"ApiVersions: {cause}") from cause
    if body.error_code or not body.api_keys:
        raise UnreadableAnswer(f"ApiVersions: error {body.error_code}")
    return {
        one.api_key: Versions(one.min_version, one.max_version)
        for one in body.api_keys
        if 0 <= one.min_version <= one.max_version
    }


def read_response(request: Request, version: int, frame: bytes) -> Response:
    """Decode the answer to `request`; records in it are checked. Safe for any thread.

    Raises:
        UnreadableAnswer: it means nothing to us.
    """
    api_key = api_of(request)
    position = _CORRELATION.size
    try:
        if header_versions(api_key, version)[1] == 1:
            position = skip_tags(frame, position)
        body, _ = response_codec(api_key).decode(frame, version, position)
    except (MalformedMessageError, IndexError) as cause:
        raise UnreadableAnswer(f"{api_key.name} {version}: {cause}") from cause
    is_fetch = isinstance(request, FetchRequest)
    return read_answer(request, body, checked_prefix(records_of(body)) if is_fetch else NO_DATA)
