"""The keys of Kafka that change nothing here: known, checked and described, from a table.

`keys_without_effect.toml` has a line a key. Whatever gets an effect moves from there to the module
of its section, beside the rules that use it.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from broker.config.key import ConfigType, Dynamic, Key


def keys_without_effect() -> dict[str, tuple[Key, ...]]:
    """The keys of the table by section, in the order of the table."""
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
