"""Describes settings for DescribeConfigs: value, source, synonyms, type and help.

As in Apache Kafka, the synonyms of a topic's setting include the broker settings that give its
default, strongest first. The value of a secret is not shown, and an unknown key counts as a secret.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from broker.config.broker_config import BrokerConfig, Layers
from broker.config.key import ConfigType, Dynamic, Key
from broker.config.keys import BROKER_KEYS, SERVER_FALLBACKS, TOPIC_KEYS
from broker.config.resolve import manager_key
from broker.config.topic_config import effective, normalise

_CREDENTIALS_IN_URL = re.compile("://[^/]*@")
_WITHOUT_DEFAULT: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Throttles that reassignment tools set and remove: without a throttle there is no value."""


class ConfigSource(IntEnum):
    """Source of a value, with the numbers of the protocol."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """One possible source of a value, and its value there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting as DescribeConfigs shows it.

    Attributes:
        name: Current name.
        value: Text; None for no value and for secrets.
        read_only: True if IncrementalAlterConfigs refuses it.
        source: Source of `value`.
        is_sensitive: True if it is a secret.
        synonyms: All sources, strongest first.
        type: Type of the value.
        documentation: One line, None for unknown keys.
    """

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: ConfigType
    documentation: str | None


def describe_topic(
    broker: BrokerConfig,
    overrides: Mapping[str, str],
    names: Collection[str] | None = None,
) -> list[ConfigEntry]:
    """List a topic's settings.

    Args:
        broker: Gives the defaults.
        overrides: Settings of the topic itself.
        names: List only these; None for all. Unknown names are left out, as in Kafka.
    """
    own = normalise(overrides)
    values = effective(broker, own)
    entries: list[ConfigEntry] = []
    for name, key in TOPIC_KEYS.items():
        if (names is not None and name not in names) or (key.internal and name not in own):
            continue
        shown = key.show(values[name])
        synonyms = [Synonym(name, shown, ConfigSource.TOPIC_CONFIG)] if name in own else []
        if key.server_key:
            synonyms += _broker_synonyms(broker.layers, key.server_key)
        entries.append(
            ConfigEntry(
                name=name,
                value=shown,
                read_only=False,
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
                is_sensitive=False,
                synonyms=tuple(synonyms),
                type=key.type,
                documentation=key.doc,
            )
        )
    return entries


def describe_broker(
    broker: BrokerConfig,
    names: Collection[str] | None = None,
    *,
    public_settings: Collection[str] = (),
) -> list[ConfigEntry]:
    """List the settings of this broker, including unknown ones and those of plugins.

    Args:
        broker: With dynamic entries (`BrokerConfig.with_dynamic`).
        names: List only these; None for all.
        public_settings: Settings of the storage plugin that are no secrets, prefix removed.
    """
    given = broker.layers.merged()
    entries: list[ConfigEntry] = []
    for name, key in BROKER_KEYS.items():
        if (names is not None and name not in names) or (key.internal and name not in given):
            continue
        entries.append(
            _broker_entry(broker, name, key, tuple(_broker_synonyms(broker.layers, name)))
        )
    prefix = str(broker.get("remote.log.metadata.manager.impl.prefix"))
    storage_prefix = str(broker.get("remote.log.storage.manager.impl.prefix"))
    shown = {storage_prefix + one for one in public_settings}
    for name in given:
        if name in BROKER_KEYS or (names is not None and name not in names):
            continue
        entry = _foreign_entry(broker, name, manager_key(name, prefix))
        is_public = name in shown and not _CREDENTIALS_IN_URL.search(given[name])
        entries.append(_public(entry, given[name]) if is_public else entry)
    return entries


def describe_broker_default(
    broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """List the dynamic settings for all brokers of the cluster (resource name "")."""
    entries: list[ConfigEntry] = []
    for name in broker.layers.dynamic_default:
        key = BROKER_KEYS.get(name)
        if names is not None and name not in names:
            continue
        if key is None:
            entries.append(_foreign_entry(broker, name, None))
            continue
        synonyms = tuple(
            one
            for one in _broker_synonyms(broker.layers, name)
            if one.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        )
        entries.append(_broker_entry(broker, name, key, synonyms, synonyms[0].value))
    return entries


def _layers(layers: Layers) -> Iterator[tuple[Mapping[str, str], ConfigSource]]:
    yield layers.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG
    yield layers.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    yield layers.static, ConfigSource.STATIC_BROKER_CONFIG


def _broker_synonyms(layers: Layers, name: str) -> list[Synonym]:
    """List the sources of a broker setting, strongest first.

    As in Kafka, sources before the first one of the setting itself are left out. So a weaker unit
    (`log.retention.hours`) is listed only behind a value of the strongest (`log.retention.ms`).
    """
    names = [source for source, _ in SERVER_FALLBACKS.get(name, ((name, 1),))]
    found: list[Synonym] = []
    for entries, source in _layers(layers):
        for each in names:
            if each in entries:
                found.append(Synonym(each, _shown(BROKER_KEYS[each], entries[each]), source))
    for each in names:
        default = BROKER_KEYS[each].default
        if default is not None and each not in _WITHOUT_DEFAULT:
            text = None if BROKER_KEYS[each].is_sensitive else default
            found.append(Synonym(each, text, ConfigSource.DEFAULT_CONFIG))
    while found and found[0].name != name:
        found.pop(0)
    return found


def _shown(key: Key, text: str) -> str | None:
    """Return the text of a synonym as it was written; None for a secret."""
    return None if key.is_sensitive else text


def _broker_entry(
    broker: BrokerConfig,
    name: str,
    key: Key,
    synonyms: tuple[Synonym, ...],
    value: str | None = None,
) -> ConfigEntry:
    shown = value if value is not None else key.show(broker.get(name))
    return ConfigEntry(
        name=name,
        value=None if key.is_sensitive else shown,
        read_only=key.dynamic is Dynamic.READ_ONLY,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms,
        type=key.type,
        documentation=key.doc,
    )


def _foreign_entry(broker: BrokerConfig, name: str, key: Key | None) -> ConfigEntry:
    """Describe a setting of a plugin, or an unknown one: its value may be a secret."""
    source = next(source for entries, source in _layers(broker.layers) if name in entries)
    return ConfigEntry(
        name=name,
        value=None,
        read_only=True,
        source=source,
        is_sensitive=True,
        synonyms=(Synonym(name, None, source),),
        type=ConfigType.UNKNOWN,
        documentation=key.doc if key else None,
    )


def _public(entry: ConfigEntry, value: str) -> ConfigEntry:
    """Show the value of a plugin's setting that is no secret.

    Clients that read the remote tier need it to find the store. DIFFERS: Kafka hides the value of
    each setting that it does not know.
    """
    synonym = replace(entry.synonyms[0], value=value)
    return replace(entry, value=value, is_sensitive=False, synonyms=(synonym,))
