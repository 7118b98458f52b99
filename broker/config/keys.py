"""All configuration keys by name: of brokers, of topics, of the metadata manager."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from broker.config.key import ConfigType, Dynamic, Key
from broker.config.keys_groups import GROUP_KEYS
from broker.config.keys_log import LOG_KEYS, REPLICATION_KEYS
from broker.config.keys_quorum import QUORUM_KEYS
from broker.config.keys_remote import METADATA_MANAGER_KEYS as _METADATA_MANAGER
from broker.config.keys_remote import REMOTE_KEYS
from broker.config.keys_server import SERVER_KEYS
from broker.config.keys_tidemark import TIDEMARK_KEYS
from broker.config.keys_topic import TOPIC_KEYS as _TOPIC


def keys_without_effect() -> dict[str, tuple[Key, ...]]:
    """Kafka's keys without effect here, by section; they are checked and described.

    `keys_without_effect.toml` has one line for each. A key that gets an effect moves to the module
    of its section, beside the rules that use it.
    """
    text = files("broker.config").joinpath("keys_without_effect.toml").read_text("utf-8")
    return {
        section: tuple(_key(name, fields) for name, fields in keys.items())
        for section, keys in tomllib.loads(text).items()
    }


def _key(name: str, fields: Mapping[str, Any]) -> Key:
    values: dict[str, Any] = {
        field: tuple(value) if isinstance(value, list) else value for field, value in fields.items()
    }
    values |= {"type": ConfigType[values["type"]], "default": values.get("default")}
    values["dynamic"] = Dynamic(values.get("dynamic", Dynamic.READ_ONLY.value))
    return Key(name, effect=False, **values)


def _by_name(*tables: tuple[Key, ...]) -> Mapping[str, Key]:
    found: dict[str, Key] = {}
    for table in tables:
        for key in table:
            assert key.name not in found, key.name
            found[key.name] = key
    return MappingProxyType(found)


_TABLE = keys_without_effect()


def _section(title: str, with_effect: tuple[Key, ...] = ()) -> tuple[Key, ...]:
    """Keys of a section, sorted by name; a section with only Tidemark's keys keeps its order."""
    others = _TABLE.get(title, ())
    return tuple(sorted(with_effect + others, key=lambda key: key.name)) if others else with_effect


_WITH_EFFECT: Final[Mapping[str, tuple[Key, ...]]] = {
    "Node and metadata quorum": QUORUM_KEYS,
    "Listeners, connections, requests": SERVER_KEYS,
    "Local log": LOG_KEYS,
    "Replication": REPLICATION_KEYS,
    "Tiered storage": REMOTE_KEYS,
    "Tidemark's own": TIDEMARK_KEYS,
    "Groups and transactions": GROUP_KEYS,
    "Share groups": (),
    "TLS, tokens, authorization": (),
    "SASL and OAuth": (),
}
SECTIONS: Final[Mapping[str, tuple[Key, ...]]] = MappingProxyType(
    {title: _section(title, keys) for title, keys in _WITH_EFFECT.items()}
)
BROKER_KEYS: Final = _by_name(*SECTIONS.values())
TOPIC_KEYS: Final = _by_name(_section("Topics", _TOPIC))
METADATA_MANAGER_KEYS: Final = _by_name(_METADATA_MANAGER)

# The default of a topic's key is the first of these that is set, in the unit of the topic's key.
SERVER_FALLBACKS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = MappingProxyType(
    {
        "log.retention.ms": (
            ("log.retention.ms", 1),
            ("log.retention.minutes", 60_000),
            ("log.retention.hours", 3_600_000),
        ),
        "log.roll.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
        "log.roll.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
        "log.flush.interval.ms": (
            ("log.flush.interval.ms", 1),
            ("log.flush.scheduler.interval.ms", 1),
        ),
    }
)
