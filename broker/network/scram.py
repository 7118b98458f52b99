"""SCRAM-SHA-256 (RFC 5802, RFC 7677) for the one user of a listener: the server's side. Pure.

Both sides prove that they have the password, and no byte of it is sent. The module accepts the same
messages as Kafka's own server. The channel binding flag must be `n`. An authorization identity must
be the user's own name. Extensions of the first message have no effect.

No library is used: scramp refuses other messages than Kafka's server does. It also depends on a
parser of certificates for channel binding, which Kafka's protocol does not have.

DIFFERS: Kafka does not compare the channel binding of the last message with the flag of the first.
It also leaves extensions of the last one out of the proof. The RFC requires both. A mandatory
extension ends here in the first message, in Kafka by a proof that does not fit.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from broker.network.authentication import AuthenticationRefusedError

ITERATIONS_MIN: Final = 4_096
"""The minimum of RFC 7677; clients refuse fewer."""
_HASH: Final = "sha256"

_NAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE: Final = rb"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = rb"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rb"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_CLIENT_FIRST: Final = re.compile(
    rb"(?P<gs2>n,(?:a=(?P<identity>%b))?,)(?P<bare>n=(?P<user>%b),r=(?P<nonce>%b)%b)"
    % (_NAME, _NAME, _NONCE, _EXTENSIONS)
)
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<bare>c=(?P<binding>%b),r=(?P<nonce>%b)%b),p=(?P<proof>%b)"
    % (_BASE64, _NONCE, _EXTENSIONS, _BASE64)
)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A server's credential for one password; it cannot be used to log in as the client."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of(cls, password: bytes, salt: bytes, iterations: int) -> "ScramCredential":
        """Derive the keys, which takes some milliseconds of CPU time.

        Args:
            password: ASCII, so that it is its own normal form (SASLprep).
            salt: Different for each password and cluster; not secret.
            iterations: At least `ITERATIONS_MIN`.
        """
        assert iterations >= ITERATIONS_MIN
        salted = hashlib.pbkdf2_hmac(_HASH, password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", _HASH)
        stored_key = hashlib.sha256(client_key).digest()
        return cls(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", _HASH))


class ScramAuthenticator:
    """SCRAM-SHA-256 for the one user of a listener.

    Attributes:
        mechanism: SASL name.
        principal: Principal of a peer that has proven the password.
    """

    mechanism = "SCRAM-SHA-256"

    def __init__(
        self, user: str, credential: ScramCredential, principal: str, nonce: Callable[[], str]
    ) -> None:
        """`nonce` returns printable ASCII without a comma, different at each call."""
        self._user, self._credential = user.encode(), credential
        self._nonce, self.principal = nonce, principal

    def exchange(self) -> Generator[bytes, bytes, bytes]:
        """Take the client's first and final message."""
        first = _CLIENT_FIRST.fullmatch((yield b""))
        if first is None or _plain(first["user"]) != self._user:
            raise self._refused()
        if first["identity"] is not None and _plain(first["identity"]) != self._user:
            raise AuthenticationRefusedError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        known = self._credential
        nonce = first["nonce"] + self._nonce().encode()
        challenge = b"r=%b,s=%b,i=%d" % (nonce, b64encode(known.salt), known.iterations)
        final = _CLIENT_FINAL.fullmatch((yield challenge))
        if final is None or final["nonce"] != nonce or b64decode(final["binding"]) != first["gs2"]:
            raise self._refused()
        spoken = b",".join([first["bare"], challenge, final["bare"]])
        proof, signature = b64decode(final["proof"]), hmac.digest(known.stored_key, spoken, _HASH)
        if len(proof) != len(signature):
            raise self._refused()
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), known.stored_key):
            raise self._refused()
        return b"v=" + b64encode(hmac.digest(known.server_key, spoken, _HASH))

    def _refused(self) -> AuthenticationRefusedError:
        """Kafka's text, the same for each cause."""
        return AuthenticationRefusedError(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self.mechanism}"
        )


def _plain(name: bytes) -> bytes:
    return name.replace(b"=2C", b",").replace(b"=3D", b"=")
