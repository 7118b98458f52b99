"""From text to values, key by key: types are checked, required keys and unknown keys are found.

Rules between keys are in `rules`.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.config.aliases import CLIENT_PREFIXES, RETIRED
from broker.config.key import ConfigError, Key, Value
from broker.config.keys import BROKER_KEYS, METADATA_MANAGER_KEYS, SERVER_FALLBACKS, TOPIC_KEYS

_LISTENER_PREFIX: Final = "listener.name."
_CLOSE_ENOUGH: Final = 0.75
_NAME_MAX: Final = 200  # no key is longer; comparing a long text is slow


@dataclass(frozen=True, slots=True)
class Resolved:
    """The values of all broker keys, and remarks on the text.

    Attributes:
        values: Parsed value of every broker key, defaults included.
        warnings: One sentence for each unknown or retired key.
        without_effect: Keys that were set and have no effect here, sorted.
        unknown: Unknown keys that were set, sorted.
    """

    values: Mapping[str, Value]
    warnings: tuple[str, ...]
    without_effect: tuple[str, ...]
    unknown: tuple[str, ...]


def resolve(entries: Mapping[str, str]) -> Resolved:
    """Parse all entries and fill in the defaults.

    Args:
        entries: Text by current names (aliases are already translated).

    Raises:
        ConfigError: A value is not allowed, or a required key is missing.
    """
    _refuse_zookeepers(entries)
    values: dict[str, Value] = {}
    for name, key in BROKER_KEYS.items():
        if name in entries:
            values[name] = key.parse(entries[name])
        elif key.required:
            raise ConfigError(name, None, f"is required and has no default; {key.allowed()}")
        else:
            values[name] = key.parse(key.default)
    _check_node_id(values)
    for name, sources in SERVER_FALLBACKS.items():
        values[effective_name(name)] = _first_set(values, sources)
    return _remarks(entries, values)


def effective_name(name: str) -> str:
    """Return the name in `Resolved.values` for the effective value of several keys."""
    return f"{name} (effective)"


def manager_key(name: str, prefix: str) -> Key | None:
    """Return the metadata manager's key for `name`, if it begins with `prefix`."""
    if not name.startswith(prefix):
        return None
    return METADATA_MANAGER_KEYS.get(name.removeprefix(prefix))


def nearest(name: str, known: list[str]) -> str | None:
    """Return the known name most similar to `name`; None: none is similar."""
    if len(name) > _NAME_MAX:
        return None
    matches = difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE_ENOUGH)
    return matches[0] if matches else None


def _refuse_zookeepers(entries: Mapping[str, str]) -> None:
    """Refuse a file of a Kafka with ZooKeeper; the error says how to change it."""
    text = entries.get("zookeeper.connect")
    if text is None or entries.get("process.roles", "").strip():
        return
    node = entries.get("node.id", entries.get("broker.id", "1")).strip()
    raise ConfigError(
        "zookeeper.connect",
        text,
        "there is no ZooKeeper here, as in Kafka from 4.0 on: metadata are in a Raft quorum. Take "
        f"the zookeeper keys out and set process.roles=broker,controller, node.id={node}, "
        f"controller.listener.names=CONTROLLER, controller.quorum.voters={node}@localhost:9093 and "
        "one more listener, CONTROLLER://localhost:9093; then run `tidemark format` and `tidemark "
        "start` with new log.dirs: directories of that time cannot be taken over, copy the topics",
    )


def _check_node_id(values: Mapping[str, Value]) -> None:
    """Refuse different values of `broker.id` and `node.id`."""
    old, new = values["broker.id"], values["node.id"]
    if old not in (-1, new):
        raise ConfigError("broker.id", old, f"node.id={new} is set too; the two must be equal")


def _first_set(values: Mapping[str, Value], sources: tuple[tuple[str, int], ...]) -> Value:
    for name, factor in sources:
        value = values[name]
        if value is not None:
            assert isinstance(value, int)
            return value if value < 0 else min(value * factor, (1 << 63) - 1)
    return None


def _remarks(entries: Mapping[str, str], values: Mapping[str, Value]) -> Resolved:
    storage = str(values["remote.log.storage.manager.impl.prefix"])
    manager = str(values["remote.log.metadata.manager.impl.prefix"])
    warnings: list[str] = []
    without_effect: list[str] = []
    unknown: list[str] = []
    for name, text in entries.items():
        key = BROKER_KEYS.get(name)
        base = name[len(_LISTENER_PREFIX) :].partition(".")[2]
        if key is not None:
            if not key.effect:
                without_effect.append(name)
        elif manager_key(name, manager) is not None:
            settings_key = manager_key(name, manager)
            assert settings_key is not None
            _parse_as(name, settings_key, text)
        elif name.startswith((storage, *(manager + prefix for prefix in CLIENT_PREFIXES))):
            pass  # the plugin and the clients validate their own settings
        elif name.startswith(_LISTENER_PREFIX) and base in BROKER_KEYS:
            without_effect.append(name)
        else:
            unknown.append(name)
            warnings.append(_unknown_sentence(name, manager))
    return Resolved(values, tuple(warnings), tuple(sorted(without_effect)), tuple(sorted(unknown)))


def _parse_as(name: str, key: Key, text: str) -> Value:
    try:
        return key.parse(text)
    except ConfigError as error:
        raise ConfigError(name, error.value, error.allowed) from None


def _unknown_sentence(name: str, manager_prefix: str) -> str:
    if name in RETIRED:
        return f"key {name} has no effect: {RETIRED[name]}"
    if name in TOPIC_KEYS:
        server = TOPIC_KEYS[name].server_key
        hint = f"its default for all topics is {server}" if server else "set it on the topic"
        return f"unknown key {name}: it is a setting of topics; {hint}"
    known = [*BROKER_KEYS, *(manager_prefix + inner for inner in METADATA_MANAGER_KEYS)]
    close = nearest(name, known)
    return f"unknown key {name}" + (f": did you mean {close}?" if close else "; it is ignored")
