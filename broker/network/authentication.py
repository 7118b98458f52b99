"""SASL authentication of connections (KIP-43, KIP-152). Pure.

A listener has one authenticator, or none: then every peer is `ANONYMOUS`. A connection to a
listener with one begins without a principal. Its session then allows only ApiVersions,
SaslHandshake and SaslAuthenticate. A connection never changes its principal.

A peer without a principal can make the broker send a bounded number of answers, so it cannot fill
the connection's memory by not reading.

DIFFERS: Kafka takes a second ApiVersions only where the version of the first is unknown (KIP-511);
here it is always taken. A request after the handshake that is neither a message nor a second
handshake closes the connection at once, where Kafka answers ILLEGAL_SASL_STATE first. The fixed
texts are Kafka's.
"""

from _operator import _compare_digest as compare_digest  # that of hmac, which loads OpenSSL
from collections.abc import Generator
from typing import Final, NamedTuple, Protocol

from kafka_protocol.errors import ErrorCode, TidemarkError
from kafka_protocol.wire.api_keys import ApiKey

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a peer that did not authenticate."""

_API_VERSIONS_MAX: Final = 2


AUTHENTICATION_FAILED: Final = "authentication failed"
"""Reason in the log line of a connection that closes after a failed authentication."""


class AuthenticationRefusedError(TidemarkError):
    """A peer failed to authenticate; the text goes to it, and contains no detail of the cause."""


class Authenticator(Protocol):
    """One SASL mechanism for the one user of a listener.

    Attributes:
        mechanism: SASL name.
        principal: Principal of a peer that passed the exchange.
    """

    @property
    def mechanism(self) -> str: ...  # noqa: D102 (see the class)

    @property
    def principal(self) -> str: ...  # noqa: D102

    def exchange(self) -> Generator[bytes, bytes, bytes]:
        """Begin the exchange with one peer.

        The caller sends the peer's messages into the generator, which yields an answer to each. It
        yields once before the first message. It returns the last answer, after which the peer is
        authenticated.

        Raises:
            AuthenticationRefusedError: In place of an answer.
        """
        ...


class PlainAuthenticator:
    """SASL/PLAIN (RFC 4616) for the one user of a listener.

    The comparison takes constant time. An authorization identity is refused.

    Attributes:
        mechanism: SASL name.
        principal: Principal of a peer that sent the right password.
    """

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str, principal: str) -> None:
        self._message = f"\0{user}\0{password}".encode()
        self.principal = principal

    def exchange(self) -> Generator[bytes, bytes, bytes]:
        r"""Take the only message of the mechanism, `\0user\0password`."""
        if not compare_digest((yield b""), self._message):
            raise AuthenticationRefusedError("Authentication failed: Invalid username or password")
        return b""


class Authenticated(NamedTuple):
    """Answer to a SaslAuthenticate request: error, its text, and the mechanism's message."""

    error: ErrorCode = ErrorCode.NONE
    text: str = ""
    message: bytes = b""


class Session:
    """Authentication state of one connection.

    Attributes:
        principal: None until the peer is authenticated.
        refusal: Reason to close the connection once the answer is sent; None while it may continue.
    """

    __slots__ = ("_authenticator", "_exchange", "_versions_asked", "principal", "refusal")

    def __init__(self, authenticator: Authenticator | None = None) -> None:
        self._authenticator, self._versions_asked = authenticator, 0
        self._exchange: Generator[bytes, bytes, bytes] | None = None  # since the handshake
        self.principal = ANONYMOUS if authenticator is None else None
        self.refusal: str | None = None

    def allows(self, api_key: int) -> bool:
        """True if a peer without a principal may have this request served; counts ApiVersions."""
        if self._exchange is not None:
            return api_key in (ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE)
        if api_key == ApiKey.API_VERSIONS:
            self._versions_asked += 1
            return self._versions_asked <= _API_VERSIONS_MAX
        return api_key == ApiKey.SASL_HANDSHAKE

    def handshake(self, mechanism: str) -> tuple[ErrorCode, list[str]]:
        """Choose a mechanism; returns the error and the names of the offered mechanisms."""
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
        """Take the peer's next message; a failed attempt ends the connection."""
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
