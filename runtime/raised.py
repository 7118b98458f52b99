"""Names errors of plugins: one that the interface does not have, with its class and place.

A plugin may raise anything. The text of a `KeyError` alone does not help its author.
"""

import sys
import traceback
from typing import Final

_NO_AUTHORS: Final = sys.stdlib_module_names | {
    "broker", "kafka_client", "kafka_protocol", "local_log", "metadata_topic", "rlm", "rlmm",
    "rsm_plugins", "runtime", "tenacity", "tidemark",
}  # fmt: skip
"""Packages whose frames do not belong to a third party's plugin."""


def described(error: BaseException) -> str:
    """Class and message of an error, and for one outside the interface the place in the plugin."""
    text = str(error)
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if _is_declared(error, "rsm_plugins") else text + raised_at(error)


def named(error: BaseException) -> str:
    """The text of an error of ours or of the system; of any other its class and place, too."""
    is_plain = isinstance(error, OSError) or _is_declared(error, "kafka_protocol")
    return str(error) or repr(error) if is_plain and not raised_at(error) else described(error)


def raised_at(error: BaseException) -> str:
    """` (FILE:LINE)` of the plugin: of foreign frames, the last one of the first package; or ""."""
    frames = [
        (frame.f_globals.get("__name__", "").partition(".")[0], frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    others = [one for one in frames if one[0] not in _NO_AUTHORS]
    if not others:
        return ""
    _, frame, line = [one for one in others if one[0] == others[0][0]][-1]
    return f" ({frame.f_code.co_filename}:{line})"


def _is_declared(error: BaseException, package: str) -> bool:
    """Whether the error's class, or one that it extends, is of a package of ours."""
    return any(one.__module__.partition(".")[0] == package for one in type(error).__mro__)
