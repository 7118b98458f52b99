"""Who speaks on a connection, and how its listener comes to know it. Pure.

A listener has one authenticator, or none: then every peer is `ANONYMOUS`. With one, a connection
begins without a principal and is served only what its session allows, which leads to one by
SaslHandshake and SaslAuthenticate (KIP-43, KIP-152). A second principal is never taken on a
connection.

What a peer is answered before that is bounded: nobody need read it. DIFFERS: Kafka takes a second
ApiVersions only where the version of the first is unknown (KIP-511), here it is always taken.
A request after the handshake that is neither a message nor a second handshake closes the
connection at once, where Kafka answers ILLEGAL_SASL_STATE first. The fixed texts are Kafka's.
"""

from _operator import _compare_digest as compare_digest  # that of hmac, which loads OpenSSL
from collections.abc import Generator
from typing import Final, NamedTuple, Protocol

from kafka_protocol.errors import ErrorCode, TidemarkError
from kafka_protocol.wire.api_keys import ApiKey

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's name of a peer that nobody asked who it is."""

_API_VERSIONS_MAX: Final = 2


AUTHENTICATION_FAILED: Final = "authentication failed"
"""Why a connection was closed, as logs say it."""


class AuthenticationRefusedError(TidemarkError):
    """A peer did not prove who it is; the text is for it, and gives nothing away."""


class Authenticator(Protocol):
    """One SASL mechanism for the one user of a listener.

    Attributes:
        mechanism: its name.
        principal: of a peer that has proven that it is this user.
    """

    @property
    def mechanism(self) -> str: ...  # noqa: D102 (see the class)

    @property
    def principal(self) -> str: ...  # noqa: D102

    def exchange(self) -> Generator[bytes, bytes, bytes]:
        """Begin with one peer: it is sent the peer's messages, and yields what answers them.

        It yields once before the first message. It returns the last answer when the peer is known.

        Raises:
            AuthenticationRefusedError: in place of an answer.
        """
        ...


class PlainAuthenticator:
    """SASL/PLAIN (RFC 4616) for the one user of a listener.

    A comparison takes as long for a wrong password as for the right one. An authorization identity
    is refused.

    Attributes:
        mechanism: the only one.
        principal: of a peer that knows the password.
    """

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str, principal: str) -> None:
        self._message = f"\0{user}\0{password}".encode()
        self.principal = principal

    def exchange(self) -> Generator[bytes, bytes, bytes]:
        """Take the one message; see `Authenticator`."""
        if not compare_digest((yield b""), self._message):
            raise AuthenticationRefusedError("Authentication failed: Invalid username or password")
        return b""


class Authenticated(NamedTuple):
    """What answers a message of a mechanism."""

    error: ErrorCode = ErrorCode.NONE
    text: str = ""
    message: bytes = b""


class Session:
    """What is known of who speaks on a connection.

    Attributes:
        principal: None until its listener knows.
        refusal: why the connection ends when the answer is sent; None while it may continue.
    """

    __slots__ = ("_authenticator", "_exchange", "_versions_asked", "principal", "refusal")

    def __init__(self, authenticator: Authenticator | None = None) -> None:
        self._authenticator, self._versions_asked = authenticator, 0
        self._exchange: Generator[bytes, bytes, bytes] | None = None  # since the handshake
        self.principal = ANONYMOUS if authenticator is None else None
        self.refusal: str | None = None

    def allows(self, api_key: int) -> bool:
        """Whether a request may be served now, while there is no principal."""
        if self._exchange is not None:
            return api_key in (ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE)
        if api_key == ApiKey.API_VERSIONS:
            self._versions_asked += 1
            return self._versions_asked <= _API_VERSIONS_MAX
        return api_key == ApiKey.SASL_HANDSHAKE

    def handshake(self, mechanism: str) -> tuple[ErrorCode, list[str]]:
        """Choose a mechanism: error, and names of those that there are."""
        if self.principal is not None or self._authenticator is None:
            return ErrorCode.ILLEGAL_SASL_STATE, []
        if self._exchange is not None:
            self.refusal = "a second handshake"
            return ErrorCode.ILLEGAL_SASL_STATE, []
        offered = self._authenticator.mechanism
        if mechanism != offered:
            self.refusal = "an unsupported SASL mechanism"
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, [offered]
        self._exchange = self._authenticator.exchange()
        next(self._exchange)
        return ErrorCode.NONE, [offered]

    def authenticate(self, message: bytes) -> Authenticated:
        """Take the next of the client's messages. There is one attempt."""
        exchange, authenticator = self._exchange, self._authenticator
        is_over = self.principal is not None or self.refusal is not None
        if is_over or exchange is None or authenticator is None:
            return Authenticated(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication",
            )
        try:
            return Authenticated(message=exchange.send(message))
        except StopIteration as end:
            self.principal = authenticator.principal
            return Authenticated(message=end.value)
        except AuthenticationRefusedError as error:
            self.refusal = AUTHENTICATION_FAILED
            return Authenticated(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))


NO_AUTHENTICATION: Final = Session()
"""Shared by all connections of listeners without an authenticator."""
