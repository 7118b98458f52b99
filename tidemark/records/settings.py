"""Properties of Kafka's clients as the settings of librdkafka, which `confluent_kafka` is. Pure.

Most have the same names. Those of a file for Kafka's own tools that are named otherwise there are
translated, so that one `--command-config` serves both. Source: Apache Kafka 4.3, SslConfigs,
SaslConfigs; librdkafka's list of settings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.config.key import ConfigError
from pipeline.client_names import CLIENT_IDLE

_JAAS: Final = "sasl.jaas.config"
_JAAS_ENTRY: Final = re.compile(r"""(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]+)""")
_TRUST_TYPE, _TRUST_FILE = "ssl.truststore.type", "ssl.truststore.location"
_KEY_TYPE, _KEY_FILE = "ssl.keystore.type", "ssl.keystore.location"
_ENDPOINT: Final = "ssl.endpoint.identification.algorithm"
_RENAMED: Final[Mapping[str, str]] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_KEPT: Final = frozenset(
    (
        "group.instance.id", "group.protocol", "group.remote.assignor", "max.poll.interval.ms",
        "session.timeout.ms", "heartbeat.interval.ms", "client.dns.lookup", "client.rack",
        "metadata.max.age.ms", "auto.commit.interval.ms", "max.partition.fetch.bytes",
        "fetch.min.bytes", "fetch.max.bytes", "reconnect.backoff.ms", "reconnect.backoff.max.ms",
        "retry.backoff.ms", "retry.backoff.max.ms", "check.crcs", "enable.metrics.push",
        "connections.max.idle.ms", "request.timeout.ms",
    )
)  # fmt: skip
"""Names of Kafka's consumer that librdkafka has, too."""
_SAME_MEANING: Final[Mapping[str, str]] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
_OURS: Final = frozenset(
    (
        "bootstrap.servers", "key.serializer", "value.serializer", "key.deserializer",
        "value.deserializer", "auto.offset.reset", "enable.partition.eof", "interceptor.classes",
        "enable.auto.offset.store", "buffer.memory", "max.block.ms", "max.request.size",
        "partitioner.class", "partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable",
        "ssl.truststore.password", "ssl.protocol", "ssl.enabled.protocols", "ssl.provider",
        "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
    )
)  # fmt: skip
"""Names that are right in such a file, and change nothing here: what they say is said otherwise."""
API_TIMEOUT: Final = "default.api.timeout.ms"


@dataclass(frozen=True, slots=True)
class Translated:
    """Settings for librdkafka.

    Attributes:
        settings: by its names.
        api_timeout_ms: how long a broker may take to answer the first question; None: not said.
        without_effect: names that were given and change nothing here.
    """

    settings: Mapping[str, str]
    api_timeout_ms: int | None
    without_effect: tuple[str, ...]


def translated(given: Mapping[str, str]) -> Translated:
    """Translate the properties of a file or of options.

    A name that is in neither list goes to librdkafka as it is, which refuses those that it does not
    know.

    Raises:
        ConfigError: a value is none, or is for Java alone.
    """
    found: dict[str, str] = {}
    idle: list[str] = []
    for name, value in given.items():
        if name in _OURS or (name in CLIENT_IDLE and name not in (*_KEPT, *_SAME_MEANING)):
            idle += [] if name == API_TIMEOUT else [name]
        elif name in (_TRUST_FILE, _KEY_FILE):
            found |= _store(given, name)
        elif name == _JAAS:
            found |= _credentials(value)
        elif name == _ENDPOINT:
            found[name] = value.strip().lower() or "none"
        elif name not in (_TRUST_TYPE, _KEY_TYPE):
            found[_RENAMED.get(name) or _SAME_MEANING.get(name) or name] = value
    return Translated(found, _timeout(given), tuple(idle))


def _timeout(given: Mapping[str, str]) -> int | None:
    text = given.get(API_TIMEOUT)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise ConfigError(API_TIMEOUT, text, "must be a number of milliseconds, 1 or more")
    return int(text)


def _store(given: Mapping[str, str], name: str) -> dict[str, str]:
    """A file of certificates or keys: PEM, and for keys also PKCS12."""
    is_trust = name == _TRUST_FILE
    kind = given.get(_TRUST_TYPE if is_trust else _KEY_TYPE, "JKS").strip().upper()
    if kind == "PEM":
        certificate, key = "ssl.certificate.location", "ssl.key.location"
        return dict.fromkeys(("ssl.ca.location",) if is_trust else (certificate, key), given[name])
    if kind == "PKCS12" and not is_trust:
        return {name: given[name]}
    wanted = "PEM" if is_trust else "PEM or PKCS12"
    type_name = _TRUST_TYPE if is_trust else _KEY_TYPE
    raise ConfigError(name, given[name], f"is a file for Java ({kind}): give {type_name}={wanted}")


def _credentials(jaas: str) -> dict[str, str]:
    """User and password of a line for Java's login modules."""
    found = {name: _unquoted(value) for name, value in _JAAS_ENTRY.findall(jaas)}
    if found.keys() != {"username", "password"}:
        problem = "must have username=... and password=...; else give sasl.username, sasl.password"
        raise ConfigError(_JAAS, "[hidden]", problem)
    return {f"sasl.{name}": value for name, value in found.items()}


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
