"""Who speaks on a connection, and how its listener comes to know it. Pure.

A listener has one authenticator, or none: then every peer is `ANONYMOUS`. With one, a connection
begins without a principal and is served only what its session allows, which leads to one by
SaslHandshake and SaslAuthenticate (KIP-43, KIP-152). A second principal is never taken on a
connection.

What a peer is answered before that is bounded: nobody need read it. DIFFERS: Kafka takes a second
ApiVersions only where the version of the first is unknown (KIP-511), here it is always taken.
Another request after the handshake closes the connection at once, where Kafka answers
ILLEGAL_SASL_STATE first. The two fixed texts are Kafka's.
"""

from _operator import _compare_digest as compare_digest  # that of hmac, which loads OpenSSL
from typing import Final

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's name of a peer that nobody asked who it is."""

_API_VERSIONS_MAX: Final = 2


class PlainAuthenticator:
    """SASL/PLAIN (RFC 4616) for the one user of a listener.

    A comparison takes as long for a wrong password as for the right one. An authorization identity
    is refused.

    Attributes:
        mechanism: the only one.
    """

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str, principal: str) -> None:
        self._message = f"\0{user}\0{password}".encode()
        self._principal = principal

    def principal_of(self, message: bytes) -> str | None:
        """The principal that a client's message proves, None where it proves nothing."""
        return self._principal if compare_digest(message, self._message) else None


class Session:
    """What is known of who speaks on a connection.

    Attributes:
        principal: None until its listener knows.
        refusal: why the connection ends when the answer is sent; None while it may go on.
    """

    __slots__ = ("_authenticator", "_expected", "_versions_asked", "principal", "refusal")

    def __init__(self, authenticator: PlainAuthenticator | None = None) -> None:
        self._authenticator, self._versions_asked = authenticator, 0
        self._expected = ApiKey.SASL_HANDSHAKE
        self.principal = ANONYMOUS if authenticator is None else None
        self.refusal: str | None = None

    def allows(self, api_key: int) -> bool:
        """Whether a request may be served now, while there is no principal."""
        if api_key == ApiKey.API_VERSIONS and self._expected is ApiKey.SASL_HANDSHAKE:
            self._versions_asked += 1
            return self._versions_asked <= _API_VERSIONS_MAX
        return api_key == self._expected

    @property
    def mechanisms(self) -> list[str]:
        """Names of what may be asked for."""
        return [] if self._authenticator is None else [self._authenticator.mechanism]

    def handshake(self, mechanism: str) -> ErrorCode:
        """Choose a mechanism."""
        if self.principal is not None:
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self.mechanisms:
            self.refusal = "an unsupported SASL mechanism"
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._expected = ApiKey.SASL_AUTHENTICATE
        return ErrorCode.NONE

    def authenticate(self, message: bytes) -> tuple[ErrorCode, str | None]:
        """Take the client's message: error and its text. There is one attempt."""
        if self.principal is not None or self._authenticator is None:
            return (
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication",
            )
        self.principal = self._authenticator.principal_of(message)
        if self.principal is not None:
            return ErrorCode.NONE, None
        self.refusal = "authentication failed"
        return (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Authentication failed: Invalid username or password",
        )


NO_AUTHENTICATION: Final = Session()
"""Shared by all connections of listeners without an authenticator."""
