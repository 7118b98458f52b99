"""Old names of settings, from the KIPs, are translated to Kafka's current names when they are read.

An old name is never stored and never described. If both names have different values, the
configuration is refused and the error names both: the intended one cannot be known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from broker.config.key import ConfigError, Key
from broker.config.keys import BROKER_KEYS, METADATA_MANAGER_KEYS, TOPIC_KEYS

_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Alias:
    """Current name of a setting, and the factor from its old unit to its current one."""

    name: str
    factor: int = 1


BROKER_ALIASES: Final[Mapping[str, Alias]] = MappingProxyType(
    {
        "remote.storage.system.enable": Alias("remote.log.storage.system.enable"),
        "local.log.retention.ms": Alias("log.local.retention.ms"),
        "local.log.retention.bytes": Alias("log.local.retention.bytes"),
        "remote.log.index.file.cache.total.size.mb": Alias(
            "remote.log.index.file.cache.total.size.bytes", _MEBIBYTE
        ),
        "remote.log.manager.task.retry.interval.ms": Alias(
            "remote.log.manager.task.retry.backoff.ms"
        ),
        "remote.log.metadata.manager.listener": Alias("remote.log.metadata.manager.listener.name"),
        "quorum.voters": Alias("controller.quorum.voters"),
        "quorum.election.timeout.ms": Alias("controller.quorum.election.timeout.ms"),
        "quorum.fetch.timeout.ms": Alias("controller.quorum.fetch.timeout.ms"),
        "quorum.election.backoff.max.ms": Alias("controller.quorum.election.backoff.max.ms"),
        "quorum.append.linger.ms": Alias("controller.quorum.append.linger.ms"),
        "quorum.request.timeout.ms": Alias("controller.quorum.request.timeout.ms"),
        "quorum.retry.backoff.ms": Alias("controller.quorum.retry.backoff.ms"),
    }
)
TOPIC_ALIASES: Final[Mapping[str, Alias]] = MappingProxyType(
    {
        "remote.log.storage.enable": Alias("remote.storage.enable"),
        "local.log.retention.ms": Alias("local.retention.ms"),
        "local.log.retention.bytes": Alias("local.retention.bytes"),
    }
)
# Settings of the KIPs without a successor: the reason, and the replacement.
RETIRED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "quorum.retry.backoff.max.ms": "there is no such limit any more",
        "metadata.snapshot.min.changed_records.ratio": "use metadata.log.max.snapshot.interval.ms",
        "metadata.start.offset.lag.time.max.ms": "use metadata.max.retention.ms",
        "controller.snapshot.minimum.records": (
            "use metadata.log.max.record.bytes.between.snapshots"
        ),
    }
)
_MANAGER_RENAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"remote.log.metadata.topic.partitions": "remote.log.metadata.topic.num.partitions"}
)
_STORAGE_PREFIX: Final = "remote.log.storage."


def translate_topic(entries: Mapping[str, str]) -> dict[str, str]:
    """Replace old names of topic settings by current ones.

    Raises:
        ConfigError: Both names are set, with different values.
    """
    return _translate(entries, TOPIC_ALIASES.get, TOPIC_KEYS)


def topic_name_of(name: str) -> str:
    """Return the current name of a topic setting; a name that is no alias is returned unchanged."""
    alias = TOPIC_ALIASES.get(name)
    return alias.name if alias else name


def translate_broker(entries: Mapping[str, str]) -> dict[str, str]:
    """Replace old names of broker settings, and old prefixes of plugin settings, by current ones.

    `remote.log.storage.x` becomes `rsm.config.x`. The metadata manager's settings get the prefix
    `rlmm.config.`, or the prefixes in `...impl.prefix`.

    Raises:
        ConfigError: Both names are set with different values, or a value cannot be scaled.
    """
    storage = _prefix(entries, "remote.log.storage.manager.impl.prefix")
    manager = _prefix(entries, "remote.log.metadata.manager.impl.prefix")

    def today(name: str) -> Alias | None:
        if name in BROKER_ALIASES:
            return BROKER_ALIASES[name]
        if name in BROKER_KEYS:
            return None
        inner = name.removeprefix(manager)
        renamed = _MANAGER_RENAMES.get(inner, inner)
        if renamed in METADATA_MANAGER_KEYS or renamed.startswith(CLIENT_PREFIXES):
            return Alias(manager + renamed) if manager + renamed != name else None
        if name.startswith(_STORAGE_PREFIX) and name != "remote.log.storage.enable":
            return Alias(storage + name.removeprefix(_STORAGE_PREFIX))
        return None

    return _translate(entries, today, BROKER_KEYS)


CLIENT_PREFIXES: Final = tuple(
    f"remote.log.metadata.{who}." for who in ("common.client", "producer", "consumer", "admin")
)


def _prefix(entries: Mapping[str, str], name: str) -> str:
    value = BROKER_KEYS[name].parse(entries.get(name, BROKER_KEYS[name].default))
    assert isinstance(value, str)
    return value


def _translate(
    entries: Mapping[str, str], today: Callable[[str], Alias | None], keys: Mapping[str, Key]
) -> dict[str, str]:
    result: dict[str, str] = {}
    written_as: dict[str, str] = {}
    for name, text in entries.items():
        alias = today(name)
        current = alias.name if alias else name
        value = _scaled(name, text, alias.factor) if alias and alias.factor != 1 else text
        if current in result and not _same(result[current], value, keys.get(current)):
            raise ConfigError(
                name,
                text,
                f"{written_as[current]}={entries[written_as[current]]} means the same "
                "setting with another value; set only one of the two",
            )
        result[current] = value
        written_as[current] = name
    return result


def _scaled(name: str, text: str, factor: int) -> str:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ConfigError(name, text, "must be a whole number, 0 or more")
    return str(int(digits) * factor)


def _same(one: str, other: str, key: Key | None) -> bool:
    if key is None:
        return one.strip() == other.strip()
    return key.parse(one) == key.parse(other)
