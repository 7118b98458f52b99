"""TLS and SASL of a client, from properties as Kafka's own tools take them.

One file serves the Java clients, librdkafka and the client here. Names that only Java has are
translated to those of librdkafka, which are accepted as well. Only files that the settings name are
read.

Source: Apache Kafka 4.3, SslConfigs, SaslConfigs; KIP-43, KIP-152; RFC 4616, RFC 5802, RFC 7677.
"""

import hashlib
import hmac
import re
import ssl
from base64 import b64decode, b64encode
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any, Final

from kafka_client.blocking import ClusterError
from kafka_client.exchange import Questions
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from runtime.rng import SystemRng

FAMILIES: Final = ("ssl.", "sasl.", "security.")
WITHOUT_EFFECT: Final = frozenset(
    (
        "ssl.truststore.password", "ssl.protocol", "ssl.enabled.protocols", "ssl.provider",
        "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
    )
)  # fmt: skip
"""Names that may be in such a file, and have no effect here."""
RENAMED: Final[Mapping[str, str]] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS: Final = "sasl.jaas.config"
_JAAS_ENTRY: Final = re.compile(r"""(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]+)""")
_TRUST_TYPE, _TRUST_FILE = "ssl.truststore.type", "ssl.truststore.location"
_KEY_TYPE, _KEY_FILE = "ssl.keystore.type", "ssl.keystore.location"
_ENDPOINT: Final = "ssl.endpoint.identification.algorithm"
_CA_FILE, _CA_TEXT = "ssl.ca.location", "ssl.ca.pem"
_CERTIFICATE, _KEY, _KEY_PASSWORD = (
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)
_KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "ssl.": frozenset((_CA_FILE, _CA_TEXT, _CERTIFICATE, _KEY, _KEY_PASSWORD, _ENDPOINT)),
    "sasl.": frozenset(("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password")),
}
_SCRAM: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS_MAX: Final = 1_000_000
"""Bound of the iterations that a server may demand, so that they take at most a second."""

Messages = Generator[bytes, bytes, None]
"""Yields a mechanism's messages and is sent their answers."""


class ClientSettingError(ClusterError):
    """A setting of a client cannot be met; the message names it, and shows no secret."""


def translated_security(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of the families `ssl.`, `sasl.` and `security.` by librdkafka's names.

    Raises:
        ClientSettingError: A value is invalid, or is for Java only.
    """
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in (_TRUST_FILE, _KEY_FILE):
            found |= _store(given, name)
        elif name == _JAAS:
            found |= _credentials(value)
        elif name == _ENDPOINT:
            found[name] = value.strip().lower() or "none"
        elif name.startswith(FAMILIES) and name not in (_TRUST_TYPE, _KEY_TYPE, *WITHOUT_EFFECT):
            found[RENAMED.get(name, name)] = value
    return found


def security_of(given: Mapping[str, str]) -> dict[str, Any]:
    """`tls` and `authenticate` of `ConnectionSettings`; neither for PLAINTEXT.

    Args:
        given: All settings of a client, by the names of Java or librdkafka.

    Raises:
        ClientSettingError: A setting of the protocol in use cannot be met.
    """
    settings = translated_security(given)
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise ClientSettingError(f"security.protocol={protocol}: allowed are {_some(_PROTOCOLS)}")
    found: dict[str, Any] = {}
    if protocol.endswith("SSL"):
        _refuse_unknown(settings, "ssl.")
        found["tls"] = _tls(settings)
    if protocol.startswith("SASL"):
        _refuse_unknown(settings, "sasl.")
        found["authenticate"] = _authentication(settings)
    return found


def _refuse_unknown(settings: Mapping[str, str], family: str) -> None:
    for name in settings:
        if name.startswith(family) and name not in _KNOWN[family]:
            hint = "give a file of PEM: ssl.keystore.type=PEM and ssl.keystore.location"
            hint = hint if name.startswith(("ssl.key", "ssl.certificate")) else "leave it out"
            raise ClientSettingError(f"{name}: this command cannot do what it says; {hint}")


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    name = _CA_FILE
    try:
        tls = ssl.create_default_context(
            cafile=settings.get(_CA_FILE), cadata=settings.get(_CA_TEXT)
        )
        name = _CERTIFICATE
        if _CERTIFICATE in settings:
            tls.load_cert_chain(
                settings[_CERTIFICATE],
                settings.get(_KEY),
                password=settings.get(_KEY_PASSWORD, ""),  # without one OpenSSL asks the terminal
            )
    except OSError as error:
        problem = error.strerror or error
        raise ClientSettingError(f"{name}={settings.get(name)}: {problem}") from None
    tls.check_hostname = settings.get(_ENDPOINT) != "none"
    return tls


def _authentication(settings: Mapping[str, str]) -> Any:
    """The `Authentication` of a connection."""
    mechanism = settings.get("sasl.mechanisms") or settings.get("sasl.mechanism") or "GSSAPI"
    mechanism = mechanism.strip().upper()
    if mechanism != "PLAIN" and mechanism not in _SCRAM:
        known = _some(("PLAIN", *_SCRAM))
        raise ClientSettingError(f"sasl.mechanism={mechanism}: known here are {known}")
    if missing := [one for one in ("sasl.username", "sasl.password") if one not in settings]:
        raise ClientSettingError(f"{_some(missing)}: missing; {_JAAS} may say it, too")
    user, password = settings["sasl.username"], settings["sasl.password"]
    return partial(_authenticate, mechanism, user, password)


def _authenticate(mechanism: str, user: str, password: str) -> Questions:
    cls = codec.request(ApiKey.SASL_HANDSHAKE).cls
    answer = yield ApiKey.SASL_HANDSHAKE, 1, cls(mechanism=mechanism)
    if answer.error_code:
        raise ConnectionError(
            f"sasl.mechanism={mechanism}: the broker takes {_some(answer.mechanisms) or 'none'}"
        )
    if mechanism == "PLAIN":
        messages = _plain(user, password)
    else:
        messages = scram(_SCRAM[mechanism], user, password, SystemRng().uuid().hex())
    cls = codec.request(ApiKey.SASL_AUTHENTICATE).cls
    message = next(messages)
    while True:
        answer = yield ApiKey.SASL_AUTHENTICATE, 1, cls(auth_bytes=message)
        if answer.error_code:
            raise ConnectionError(answer.error_message or f"error {answer.error_code}")
        try:
            message = messages.send(bytes(answer.auth_bytes))
        except StopIteration:
            return


def _plain(user: str, password: str) -> Messages:
    yield f"\0{user}\0{password}".encode()


def scram(hash_name: str, user: str, password: str, nonce: str) -> Messages:
    """The client's side of SCRAM.

    Args:
        hash_name: Name in `hashlib`.
        user: Of any characters.
        password: Its own normal form (SASLprep), as ASCII is.
        nonce: Printable ASCII without a comma, different for each connection.

    Raises:
        ConnectionError: The server's answers are invalid, or it does not know the password.
    """
    name = user.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}".encode()
    challenge = yield b"n,," + bare
    try:
        said = dict(part.split(b"=", 1) for part in challenge.split(b","))
        both, salt, count = said[b"r"], b64decode(said[b"s"]), int(said[b"i"])
    except (KeyError, ValueError):
        both, salt, count = b"", b"", 0
    if not (both.startswith(nonce.encode()) and 0 < count <= _ITERATIONS_MAX):
        raise ConnectionError("the broker's SCRAM message cannot be used")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, count)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    final = b"c=biws,r=" + both
    spoken = b",".join((bare, challenge, final))
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, spoken, hash_name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    verdict = yield final + b",p=" + b64encode(proof)
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    proven = b"v=" + b64encode(hmac.digest(server_key, spoken, hash_name))
    if not hmac.compare_digest(verdict, proven):
        raise ConnectionError("the broker does not prove that it knows the password")


def _store(given: Mapping[str, str], name: str) -> dict[str, str]:
    """A file of certificates or keys: PEM, and for keys also PKCS12."""
    is_trust = name == _TRUST_FILE
    type_name = _TRUST_TYPE if is_trust else _KEY_TYPE
    kind = given.get(type_name, "JKS").strip().upper()
    if kind == "PEM":
        return dict.fromkeys((_CA_FILE,) if is_trust else (_CERTIFICATE, _KEY), given[name])
    if kind == "PKCS12" and not is_trust:
        return {name: given[name]}
    wanted = "PEM" if is_trust else "PEM or PKCS12"
    raise ClientSettingError(
        f"{name}={given[name]}: is a file for Java ({kind}): give {type_name}={wanted}"
    )


def _credentials(jaas: str) -> dict[str, str]:
    """User and password of a line for Java's login modules."""
    found = {name: _unquoted(value) for name, value in _JAAS_ENTRY.findall(jaas)}
    if found.keys() != {"username", "password"}:
        raise ClientSettingError(
            f"{_JAAS}: must have username=... and password=...; else give sasl.username,"
            " sasl.password"
        )
    return {f"sasl.{name}": value for name, value in found.items()}


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _some(names: Any) -> str:
    return ", ".join(names)
