"""Properties of Kafka's clients as the settings of librdkafka, which `confluent_kafka` is. Pure.

Most have the same names. Those of a file for Kafka's own tools that are named otherwise there are
translated, so that one `--command-config` serves both. Source: librdkafka's list of settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.config.key import ConfigError
from kafka_client.security import FAMILIES, WITHOUT_EFFECT, translated_security
from pipeline.client_names import CLIENT_IDLE

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
        *WITHOUT_EFFECT,
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
        ConfigError: a number is none.
        ClientSettingError: a value is for Java alone.
    """
    found: dict[str, str] = translated_security(given)
    idle: list[str] = []
    for name, value in given.items():
        if name in _OURS or (name in CLIENT_IDLE and name not in (*_KEPT, *_SAME_MEANING)):
            idle += [] if name == API_TIMEOUT else [name]
        elif not name.startswith(FAMILIES):
            found[_SAME_MEANING.get(name, name)] = value
    return Translated(found, _timeout(given), tuple(idle))


def _timeout(given: Mapping[str, str]) -> int | None:
    text = given.get(API_TIMEOUT)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise ConfigError(API_TIMEOUT, text, "must be a number of milliseconds, 1 or more")
    return int(text)
