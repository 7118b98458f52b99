"""A plugin's setting as data: name, default, allowed values and one line of help.

One entry gives the parser, the error message and the page in `docs/configuration.md`. A plugin
lists its settings in `SETTINGS` and calls `read_settings` in `configure`. Messages name keys as the
user wrote them, with `rsm.config.`. A wrong value is an error. An unknown name is a warning with
the nearest known one, so that settings for another plugin do not prevent a start.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

log = logging.getLogger(__name__)

PREFIX = "rsm.config."
FROM_BROKER = frozenset({"node.id", "broker.id", "cluster.id"})
"""Settings that the broker adds for every plugin."""

_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a plugin.

    Attributes:
        name: Without `rsm.config.`.
        default: Text, parsed like a user's value; None: no value (None for the plugin).
        doc: One line of help.
        allowed: The allowed values, for messages and the docs page.
        parse: From text to value; raises ValueError for a value that is not allowed.
        required: It must be set.
        secret: Its value is never shown.
    """

    name: str
    default: str | None
    doc: str
    allowed: str
    parse: Callable[[str], Any]
    required: bool = False
    secret: bool = False


def text(
    name: str,
    doc: str,
    *,
    default: str | None = None,
    allowed: str = "text",
    required: bool = False,
    secret: bool = False,
) -> Setting:
    """A setting of any text that is not empty."""
    return Setting(name, default, doc, allowed, str, required, secret)


def integer(name: str, doc: str, *, default: int, low: int, high: int) -> Setting:
    """A whole number in [low, high]."""

    def parse(value: str) -> int:
        number = int(value)
        if not low <= number <= high:
            raise ValueError(value)
        return number

    return Setting(name, str(default), doc, f"{low} to {high}", parse)


def boolean(name: str, doc: str, *, default: bool) -> Setting:
    """`true` or `false`."""

    def parse(value: str) -> bool:
        return {"true": True, "false": False}[value.lower()]

    return Setting(name, str(default).lower(), doc, "true or false", parse)


def choice(name: str, doc: str, words: Sequence[str], *, default: str | None = None) -> Setting:
    """Return a setting whose value is one of `words`."""

    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(value)
        return value

    return Setting(name, default, doc, "one of " + ", ".join(words), parse)


def read_settings(settings: Sequence[Setting], configs: Mapping[str, str]) -> dict[str, Any]:
    """Values by name, of every setting in `settings`.

    Args:
        settings: The settings of the plugin.
        configs: The user's values, prefix removed, and those that the broker added.

    Raises:
        ValueError: Names key, value and the allowed values.
    """
    names = {setting.name for setting in settings}
    unknown = sorted(configs.keys() - names - FROM_BROKER)
    values = {one.name: _value(one, configs.get(one.name), unknown) for one in settings}
    for name in unknown:
        near = get_close_matches(name, names, 1)
        hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
        log.warning("unknown setting is ignored: %s%s%s", PREFIX, name[:_SHOWN_MAX], hint)
    return values


def public_names(plugin: object) -> list[str]:
    """Names of the settings that a plugin declares in `SETTINGS` and that are not secret.

    A plugin that declares none may have secrets under any name.
    """
    declared = getattr(plugin, "SETTINGS", ())
    return [one.name for one in declared if isinstance(one, Setting) and not one.secret]


def _value(setting: Setting, given: str | None, unknown: Sequence[str]) -> Any:
    written = (given or "").strip() or setting.default
    if written is None:
        if setting.required:
            near = get_close_matches(setting.name, unknown, 1)
            hint = f"; is {PREFIX}{near[0][:_SHOWN_MAX]} meant to be it?" if near else ""
            raise ValueError(
                f"{PREFIX}{setting.name} is missing: allowed is {setting.allowed}{hint}"
            )
        return None
    try:
        return setting.parse(written)
    except (ValueError, KeyError):
        shown = "(hidden)" if setting.secret else written[:_SHOWN_MAX]
        raise ValueError(f"{PREFIX}{setting.name}={shown}: allowed is {setting.allowed}") from None
