"""SCRAM-SHA-256, the server's side: RFC 7677's example, and what Kafka 4.3's server answers."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Generator

import pytest

from broker.network.authentication import AuthenticationRefusedError, Session
from broker.network.scram import ITERATIONS_MIN, ScramAuthenticator, ScramCredential
from kafka_protocol.errors import ErrorCode

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
REFUSED = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    "SCRAM-SHA-256"
)
ANOTHER_IDENTITY = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


def authenticator(user: str = "user", password: bytes = b"pencil") -> ScramAuthenticator:
    credential = ScramCredential.of(password, SALT, ITERATIONS_MIN)
    return ScramAuthenticator(user, credential, "User:user", lambda: NONCE)


def begun(made: ScramAuthenticator) -> Generator[bytes, bytes, bytes]:
    exchange = made.exchange()
    next(exchange)
    return exchange


def final(
    first: bytes,
    challenge: bytes,
    *,
    password: bytes = b"pencil",
    binding: bytes | None = None,
    nonce: bytes | None = None,
    extension: bytes = b"",
) -> bytes:
    """The last message of a client that is right in all that is not given."""
    gs2, bare = first[: first.index(b",", 2) + 1], first[first.index(b",", 2) + 1 :]
    said = dict(part.split(b"=", 1) for part in challenge.split(b","))
    salted = hashlib.pbkdf2_hmac("sha256", password, b64decode(said[b"s"]), int(said[b"i"]))
    head = b"c=%b,r=%b%b" % (b64encode(binding or gs2), nonce or said[b"r"], extension)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    signature = hmac.digest(stored_key, b",".join([bare, challenge, head]), "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return head + b",p=" + b64encode(proof)


def test_the_example_of_rfc_7677() -> None:
    exchange = begun(authenticator())
    assert exchange.send(FIRST) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    with pytest.raises(StopIteration) as end:
        exchange.send(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
    assert end.value.value == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "first",
    [FIRST, b"n,a=user" + FIRST[2:], FIRST + b",x=1"],
    ids=["plain", "own identity", "extension"],
)
def test_what_kafka_takes_is_taken(first: bytes) -> None:
    gs2 = b"n,a=user," if first.startswith(b"n,a=") else b"n,,"
    exchange = begun(authenticator())
    challenge = exchange.send(first)
    bare = first[len(gs2) :]
    with pytest.raises(StopIteration):
        exchange.send(final(b"n,," + bare, challenge, binding=gs2))


def test_a_name_with_comma_and_equals_sign_is_unescaped() -> None:
    exchange = begun(authenticator("a,b=c"))
    assert exchange.send(b"n,,n=a=2Cb=3Dc,r=abc").startswith(b"r=abc" + NONCE.encode())


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff\xfe",
        b"y" + FIRST[1:],
        b"p=tls-unique" + FIRST[1:],
        FIRST.replace(b"user", b"nobody"),
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user",
        b"n,,m=x,n=user,r=abc",
        FIRST + b"\n",
        FIRST + b",",
    ],
)
def test_bad_input_a_first_message_that_kafka_refuses(first: bytes) -> None:
    with pytest.raises(AuthenticationRefusedError) as refusal:
        begun(authenticator()).send(first)
    assert str(refusal.value) == REFUSED


def test_bad_input_another_identity_is_refused_in_kafkas_words() -> None:
    with pytest.raises(AuthenticationRefusedError) as refusal:
        begun(authenticator()).send(b"n,a=other" + FIRST[2:])
    assert str(refusal.value) == ANOTHER_IDENTITY


@pytest.mark.parametrize(
    "changes",
    [
        {"password": b"pencils"},
        {"binding": b"y,,"},
        {"nonce": b"rOprNGfwEbeRWgbNEkqO"},
        {"nonce": b"rOprNGfwEbeRWgbNEkqO" + NONCE.encode() + b"x"},
    ],
    ids=["password", "binding", "nonce cut", "nonce longer"],
)
def test_bad_input_a_last_message_that_proves_nothing(changes: dict[str, bytes]) -> None:
    exchange = begun(authenticator())
    challenge = exchange.send(FIRST)
    with pytest.raises(AuthenticationRefusedError) as refusal:
        exchange.send(final(FIRST, challenge, **changes))
    assert str(refusal.value) == REFUSED


@pytest.mark.parametrize("cut", ["", "x", "no proof", "no base64", "short proof", "first again"])
def test_bad_input_a_last_message_that_is_none(cut: str) -> None:
    exchange = begun(authenticator())
    right = final(FIRST, exchange.send(FIRST))
    head = right[: right.index(b",p=")]
    sent = {
        "": b"",
        "x": b"x",
        "no proof": head,
        "no base64": head + b",p=!!!!",
        "short proof": head + b",p=AAAA",
        "first again": FIRST,
    }
    with pytest.raises(AuthenticationRefusedError):
        exchange.send(sent[cut])


def test_the_order_of_a_session_and_its_answers() -> None:
    session = Session(authenticator())
    assert session.handshake("SCRAM-SHA-256") == (ErrorCode.NONE, ["SCRAM-SHA-256"])
    challenge = session.authenticate(FIRST)
    assert (challenge.error, session.principal) == (ErrorCode.NONE, None)
    proven = session.authenticate(final(FIRST, challenge.message))
    assert (proven.error, proven.text) == (ErrorCode.NONE, "")
    assert proven.message.startswith(b"v=")
    assert session.principal == "User:user"
    assert session.authenticate(FIRST).error == ErrorCode.ILLEGAL_SASL_STATE


def test_another_mechanism_is_told_what_there_is() -> None:
    session = Session(authenticator())
    assert session.handshake("PLAIN") == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ["SCRAM-SHA-256"],
    )


def test_a_credential_shows_no_key() -> None:
    assert "key" not in repr(ScramCredential.of(b"pencil", SALT, ITERATIONS_MIN))
