"""The options of the sink, checked before a job starts.

Option names are those of Spark's Kafka sink and are case-insensitive. Must not know: Arrow, Spark,
sockets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from pipeline.errors import OptionError
from pipeline.spark.options_names import spelled

_PREFIX: Final = "kafka."
_BOOTSTRAP: Final = "bootstrap.servers"
_OWN: Final = ("topic",)
_BY_SPARK: Final = ("checkpointlocation", "queryname", "path")
"""Given by Spark itself."""

_REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "key.serializer": "keys are sent as the bytes of the column",
        "value.serializer": "values are sent as the bytes of the column",
        "transactional.id": "the sink writes at least once, without transactions",
        "interceptor.classes": "the client has no interceptors",
        "partitioner.class": "name partitions by the column `partition`, or give kafka.partitioner",
    }
)
_JAVA_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"max.request.size": "message.max.bytes", "metadata.max.age.ms": "metadata.max.age.ms"}
)
_NAMES: Final = (
    "acks", "batch.num.messages", "batch.size", "bootstrap.servers", "broker.address.family",
    "buffer.memory", "client.dns.lookup", "client.id", "client.rack", "compression.level",
    "compression.type", "connections.max.idle.ms", "debug", "delivery.timeout.ms",
    "enable.idempotence", "linger.ms", "log_level", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.request.size", "message.max.bytes",
    "message.send.max.retries", "metadata.max.age.ms", "partitioner",
    "queue.buffering.max.kbytes", "queue.buffering.max.messages", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.timeout.ms", "retries", "retry.backoff.max.ms",
    "retry.backoff.ms", "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms",
    "sasl.oauthbearer.config", "sasl.password", "sasl.username", "security.protocol",
    "socket.connection.setup.timeout.ms", "socket.keepalive.enable", "socket.timeout.ms",
    "ssl.ca.location", "ssl.certificate.location", "ssl.endpoint.identification.algorithm",
    "ssl.key.location", "ssl.key.password", "ssl.keystore.location", "ssl.keystore.password",
)  # fmt: skip
"""Properties of a producer that are likely to be meant; the client knows more."""

_MAX_BLOCK: Final = "max.block.ms"
_BUFFER: Final = "buffer.memory"
_MAX_BLOCK_MS: Final = 60_000
_DELIVERY_MS: Final = 120_000
_OURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "acks": "all",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",  # the same key goes where the Java client sends it
        "linger.ms": "20",
    }
)


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How a task produces.

    Attributes:
        topic: of all rows; None: each row names its own.
        client: properties of the producer. May hold secrets: never shown.
        delivery_ms: a record that is not acknowledged after so long is an error.
        block_ms: how long a full queue may stay full.
    """

    topic: str | None
    client: Mapping[str, str] = field(repr=False)
    delivery_ms: int
    block_ms: int

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the read-only view, which cannot be."""
        return SinkSettings, (self.topic, dict(self.client), self.delivery_ms, self.block_ms)


def sink_settings(options: Mapping[str, str]) -> SinkSettings:
    """Read the options of a write.

    `acks` below `all` is the user's choice: idempotence, which would contradict it, is then off.

    Raises:
        OptionError: one is unknown, refused or missing.
    """
    given = {name.lower(): value for name, value in options.items()}
    client: dict[str, str] = {}
    for name, value in given.items():
        if name.startswith(_PREFIX):
            client[_client_name(name)] = value
        elif name not in (*_OWN, *_BY_SPARK) and _reading_name(name) is None:
            raise OptionError(_unknown(name))
    if not client.get(_BOOTSTRAP, "").strip():
        raise OptionError(
            "option kafka.bootstrap.servers is missing: give it as host:port[,host:port]"
        )
    topic = given["topic"].strip() if "topic" in given else None
    if topic == "":
        raise OptionError("option topic is empty: name a topic, or use a column `topic`")
    block_ms = _milliseconds(client, _MAX_BLOCK, _MAX_BLOCK_MS)
    client.pop(_MAX_BLOCK, None)
    for alias in ("message.timeout.ms", "delivery.timeout.ms"):
        if alias in client:
            client["delivery.timeout.ms"] = client.pop(alias)
    delivery_ms = _milliseconds(client, "delivery.timeout.ms", _DELIVERY_MS)
    client["delivery.timeout.ms"] = str(delivery_ms)
    _buffer_in_kbytes(client)
    return SinkSettings(topic, _with_ours(client), delivery_ms, block_ms)


def sink_warnings(options: Mapping[str, str]) -> tuple[str, ...]:
    """Sentences for the driver's log: options of the source, which change nothing in a write."""
    names = sorted(filter(None, map(_reading_name, options)))
    return tuple(f"option {name} has no effect in a write: it is for reading" for name in names)


def nearest(client_name: str) -> str:
    """The option that is likely to be meant by a property the client does not have, or ""."""
    near = get_close_matches(client_name, _NAMES, n=1)
    return f"; did you mean {_PREFIX}{near[0]}?" if near else ""


def _reading_name(option: str) -> str | None:
    """The proper name of an option of the source, None for all others."""
    if option.strip().lower().startswith(_PREFIX):
        return None
    try:
        return next(iter(spelled({option: ""})))
    except OptionError:
        return None


def _client_name(option: str) -> str:
    name = option.removeprefix(_PREFIX)
    if name in _REFUSED:
        raise OptionError(f"option {option} is not allowed: {_REFUSED[name]}")
    return _JAVA_NAMES.get(name, name)


def _with_ours(client: Mapping[str, str]) -> dict[str, str]:
    ours = dict(_OURS)
    acks = client.get("acks", client.get("request.required.acks", "all")).strip().lower()
    if acks not in ("all", "-1"):
        ours["enable.idempotence"] = "false"
    if "request.required.acks" in client:
        del ours["acks"]
    return {**ours, **client}


def _buffer_in_kbytes(client: dict[str, str]) -> None:
    given = client.pop(_BUFFER, None)
    if given is not None:
        if not _is_number(given.strip()) or int(given) < 1024:
            raise OptionError(
                f"option kafka.{_BUFFER}={given[:40]!r}: must be bytes, at least 1024"
            )
        client["queue.buffering.max.kbytes"] = str(int(given) // 1024)


def _milliseconds(client: Mapping[str, str], name: str, default: int) -> int:
    text = client.get(name, str(default)).strip()
    if not _is_number(text) or int(text) == 0:
        raise OptionError(f"option kafka.{name}={text[:40]!r}: must be milliseconds above 0")
    return int(text)


def _is_number(text: str) -> bool:
    """Of digits alone, and within 64 bits; `isdigit` takes a superscript, too."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def _unknown(name: str) -> str:
    near = get_close_matches(name, (*_OWN, f"{_PREFIX}{_BOOTSTRAP}"), n=1)
    meant = f"; did you mean {near[0]}?" if near else ": allowed are topic and kafka.*"
    return f"there is no option {name[:100]!r} for writing{meant}"
