"""A request to another node from its call to its end: frames, ApiVersions, errors.

Bytes and values only. `exchange` orders the bytes, `transport` has the sockets.
"""

from collections.abc import Callable, Mapping
from struct import Struct, error
from typing import Any, Final

from kafka_protocol.errors import MalformedMessageError, TidemarkError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.primitives import Buffer, skip_tags
from kafka_protocol.wire.schema import Versions

GREETING: Final = Versions(3, 3)
"""Of ApiVersions, the first request of a connection: all nodes since Kafka 2.4 serve it."""
CORRELATION_BYTES: Final = 4
CORRELATION_ID_MAX: Final = 2**31 - 1
_SOFTWARE: Final = ("tidemark", "unknown")
_SIZE_AND_HEADER: Final = Struct(">ihhih")
_SIZE_BYTES: Final = 4
_FLEXIBLE: Final = 2


class ClientError(TidemarkError):
    """A request has no usable answer; the cause is an OSError if the network is the reason."""


class NotSentError(ClientError):
    """The request was not sent: nothing of it is carried out."""


class UnsupportedError(NotSentError):
    """The node does not serve the version, or it lacks a field's value: a retry does not help."""


class NoAnswerError(ClientError):
    """The request was sent, and may have been carried out."""


class UnreadableAnswerError(NoAnswerError):
    """The answer cannot be decoded; the connection continues."""


class Answer:
    """The frame of an answer, in memory that belongs to its receiver until `release`.

    Attributes:
        frame: Without its size; begins with the correlation id.
    """

    __slots__ = ("_release", "api_key", "frame", "version")

    def __init__(
        self, api_key: ApiKey, version: int, frame: Buffer, release: Callable[[], None]
    ) -> None:
        self.api_key, self.version, self.frame = api_key, version, frame
        self._release: Callable[[], None] | None = release

    def body_position(self) -> int:
        """Position of the body in the frame.

        Raises:
            MalformedMessageError: The frame ends within its header.
        """
        if header_versions(self.api_key, self.version)[1] == 0:
            return CORRELATION_BYTES
        try:
            return skip_tags(self.frame, CORRELATION_BYTES)
        except IndexError:
            raise MalformedMessageError("an answer that ends within its header") from None

    def decode(self) -> Any:
        """The body; record data in it are views into the frame.

        Raises:
            MalformedMessageError: The body is no answer to this request.
        """
        message = codec.response(self.api_key)
        return message.decode(self.frame, self.version, self.body_position())[0]

    def release(self) -> None:
        """Let the connection continue to read: the frame no longer counts as held. May be repeated.

        Called on the connection's thread; views of the frame stay valid.
        """
        release, self._release = self._release, None
        if release is not None:
            release()


class Call:
    """One request that waits for its end.

    Attributes:
        version: Version in which it was sent; -1 before.
        ends_ms: Time at which it ends without an answer; set by the exchange, on its clock.
        is_done: Its end was delivered, or it was cancelled.
    """

    __slots__ = (
        "_done", "_read", "api_key", "encode", "ends_ms", "is_done", "timeout_ms", "version",
        "versions",
    )  # fmt: skip

    def __init__(
        self,
        api_key: ApiKey,
        encode: Callable[[int], bytes],
        done: Callable[[Any], None],
        *,
        versions: Versions | int | None = None,
        read: Callable[[Answer], Any] | None = Answer.decode,
        timeout_ms: int,
    ) -> None:
        """Nothing is sent yet.

        Args:
            api_key: Of the request.
            encode: Makes the body in the agreed version; may raise `NotSentError`.
            done: Called once with the result of `read`, or with a `ClientError`.
            versions: Versions of this side; the highest one that both sides support is used. None:
                all that have a schema.
            read: Decodes the answer, on any thread; its error fails the request. None: `done` gets
                the `Answer`, and releases it.
            timeout_ms: For all of it: name, connection, answer.
        """
        known = codec.request(api_key)
        if versions is None:
            versions = Versions(known.min_version, known.max_version)
        elif isinstance(versions, int):
            versions = Versions(versions, versions)
        self.api_key, self.encode, self.versions = api_key, encode, versions
        self.timeout_ms, self.ends_ms, self.version, self.is_done = timeout_ms, 0, -1, False
        self._done, self._read = done, read

    @property
    def is_raw(self) -> bool:
        """True if the answer is delivered as received."""
        return self._read is None

    def result_of(self, answer: Answer) -> Any:
        """The argument of `done` for this answer; safe for any thread."""
        if self._read is None:
            return answer
        try:
            return self._read(answer)
        except Exception as cause:  # noqa: BLE001 - the request has to end on any error
            reason = str(cause) or type(cause).__name__
            failure = UnreadableAnswerError(f"{self.api_key.name} {self.version}: {reason}")
            failure.__cause__ = cause
            return failure

    def finish(self, result: Any) -> None:
        """Deliver its end; only the first counts."""
        if not self.is_done:
            self.is_done = True
            self._done(result)

    def cancel(self) -> None:
        """Drop its end: `done` is not called, and the request is not sent if it was not yet."""
        self.is_done = True

    def fail(self, kind: type[ClientError], reason: OSError) -> None:
        """End it without an answer."""
        failure = kind(reason.strerror or str(reason))
        failure.__cause__ = reason
        self.finish(failure)

    def frame(self, served: Versions | None, correlation_id: int, client_id: bytes) -> bytes:
        """The request with its size, in the highest version that both sides support.

        Raises:
            UnsupportedError: There is none, or a value does not fit in its field.
        """
        ours, name = self.versions, codec.request(self.api_key).name
        version = min(ours.last, -1 if served is None else served.last)
        if served is None or version < max(ours.first, served.first):
            known = "none" if served is None else f"{served.first} to {served.last}"
            raise UnsupportedError(
                f"{name} {ours.first} to {ours.last} is asked; served is {known}"
            )
        try:
            body = self.encode(version)
        except (error, OverflowError, ValueError) as cause:
            raise UnsupportedError(f"{name} {version} cannot be encoded: {cause}") from cause
        self.version = version
        tags = b"\0" if header_versions(self.api_key, version)[0] == _FLEXIBLE else b""
        size = _SIZE_AND_HEADER.size - _SIZE_BYTES + len(client_id) + len(tags) + len(body)
        numbers = size, self.api_key, version, correlation_id, len(client_id)
        return b"".join((_SIZE_AND_HEADER.pack(*numbers), client_id, tags, body))


def encoder(api_key: ApiKey, body: Any) -> Callable[[int], bytes]:
    """The encoder of a body whose fields are the same in all versions."""
    return lambda version: codec.request(api_key).encode(body, version)


def api_versions_body() -> Any:
    """An ApiVersions request of any version."""
    name, version = _SOFTWARE
    cls = codec.request(ApiKey.API_VERSIONS).cls
    return cls(client_software_name=name, client_software_version=version)


def greeting(done: Callable[[Any], None], timeout_ms: int) -> Call:
    """An ApiVersions call; `served_versions` reads its answer."""
    encode = encoder(ApiKey.API_VERSIONS, api_versions_body())
    return Call(
        ApiKey.API_VERSIONS, encode, done, versions=GREETING, read=None, timeout_ms=timeout_ms
    )


def served_versions(answer: Answer) -> Mapping[int, Versions]:
    """The versions that the node serves, by API key.

    Raises:
        ConnectionError: The answer has none.
    """
    try:
        body = answer.decode()
    except MalformedMessageError as cause:
        raise ConnectionError(f"ApiVersions: {cause}; is this a Kafka listener?") from cause
    if body.error_code or not body.api_keys:
        raise ConnectionError(f"ApiVersions: error {body.error_code}")
    return {
        one.api_key: Versions(one.min_version, one.max_version)
        for one in body.api_keys
        if 0 <= one.min_version <= one.max_version
    }
