"""Turns a Java regular expression, as `subscribePattern` takes it, into one of Python.

What both read alike is kept, what only Java spells so is translated, and what Python would read
differently is refused, so that no pattern silently means other topics. A pattern must match a whole
name. Must not know: topics, Spark.

Source: java.util.regex.Pattern of Java 17.
"""

import re
import warnings
from typing import Final

from pipeline.errors import OptionError

_POSIX: Final = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9",
    "Alnum": "a-zA-Z0-9", "XDigit": "0-9a-fA-F", "IsAlphabetic": "a-zA-Z", "IsDigit": "0-9",
    "L": "a-zA-Z", "IsL": "a-zA-Z", "Lu": "A-Z", "IsLu": "A-Z", "Ll": "a-z", "IsLl": "a-z",
    "N": "0-9", "IsN": "0-9", "Nd": "0-9", "IsNd": "0-9",
    "Punct": r"!-/:-@\[-`{-~",
}  # fmt: skip
"""Classes as far as names of topics can tell: they are ASCII letters, digits, `.`, `_` and `-`."""

_SAME_ESCAPES: Final = frozenset("dDwWsSbBntrfa0123456789xu")
_SAME_GROUP: Final = re.compile(r"\(\?(?:[:=!>]|<=|<!)")
_REPEAT: Final = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])")
_NAMED: Final = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_BACK: Final = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_CLASS: Final = re.compile(r"\\([pP])(?:\{(\w+)\}|(\w))")


def compile_java_pattern(text: str) -> re.Pattern[str]:
    """The pattern, to be used with `fullmatch`.

    Raises:
        OptionError: it is empty, is no pattern, or Python reads it differently.
    """
    pattern = text.strip()
    if not pattern:
        raise OptionError("option subscribePattern is empty: give a Java regular expression")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python may read differently some day
            return re.compile(_Translation(pattern).run(), re.ASCII)
    except (re.error, FutureWarning, DeprecationWarning, OverflowError, RecursionError) as error:
        raise _refused(pattern, f"cannot be read: {error}") from None


class _Translation:
    """One walk over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at, self._in_class = pattern, 0, False
        self._out: list[str] = []

    def run(self) -> str:
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            if char == "\\":
                self._escape()
            elif self._in_class:
                self._class_char(char)
            elif char == "[":
                self._open_class()
            elif char == "(" and self._pattern.startswith("(?", self._at):
                self._group()
            elif char == "{" and not _REPEAT.match(self._pattern, self._at):
                raise self._no("a { that is no {n}, {n,} or {n,m} must be written \\{")
            else:
                self._keep(char)
        if self._in_class:
            raise self._no("a [ is not closed")
        return "".join(self._out)

    def _keep(self, text: str, length: int | None = None) -> None:
        self._out.append(text)
        self._at += len(text) if length is None else length

    def _escape(self) -> None:
        follower = self._pattern[self._at + 1 : self._at + 2]
        if follower == "Q":
            end = self._pattern.find(r"\E", self._at)
            end = len(self._pattern) if end < 0 else end
            quoted = self._pattern[self._at + 2 : end]
            self._keep(re.escape(quoted), min(end + 2, len(self._pattern)) - self._at)
        elif follower in ("p", "P"):
            self._property()
        elif follower == "k" and (back := _BACK.match(self._pattern, self._at)):
            self._keep(f"(?P={back[1]})", len(back[0]))
        elif follower == "z" and not self._in_class:
            self._keep(r"\Z", 2)
        elif follower == "A" and not self._in_class:
            self._keep(r"\A")
        elif follower == "x" and self._pattern.startswith(r"\x{", self._at):
            raise self._no(r"write \xhh or \uhhhh instead of \x{h..h}")
        elif follower.isalnum() and follower not in _SAME_ESCAPES:
            raise self._no(rf"\{follower} is not supported")
        elif follower == "0":
            raise self._no(r"write \xhh instead of octal numbers")
        else:
            self._keep("\\" + follower)

    def _property(self) -> None:
        found = _CLASS.match(self._pattern, self._at)
        members = _POSIX.get(found[2] or found[3]) if found else None
        if found is None or members is None or (self._in_class and found[1] == "P"):
            raise self._no("that class is not supported; name the characters in [...]")
        inverted = "^" if found[1] == "P" else ""
        self._keep(members if self._in_class else f"[{inverted}{members}]", len(found[0]))

    def _open_class(self) -> None:
        self._in_class = True
        head = "[^" if self._pattern.startswith("[^", self._at) else "["
        if self._pattern.startswith("]", self._at + len(head)):
            raise self._no(r"write \] for a ] inside [...]")
        self._keep(head)

    def _class_char(self, char: str) -> None:
        if char == "[":
            raise self._no("a union of classes [a[b]] is not supported; write [ab]")
        if self._pattern.startswith("&&", self._at):
            raise self._no("an intersection of classes [a&&b] is not supported; use (?=...)")
        if char == "]":
            self._in_class = False
        repeated = char in "-~|" and self._out[-1:] == [char]
        self._keep("\\" + char if repeated else char, 1)

    def _group(self) -> None:
        named = _NAMED.match(self._pattern, self._at)
        flags = _FLAGS.match(self._pattern, self._at)
        if named:
            self._keep(f"(?P<{named[1]}>", len(named[0]))
        elif same := _SAME_GROUP.match(self._pattern, self._at):
            self._keep(same[0])
        elif flags and set(flags[1] + (flags[2] or "-")[1:]) <= set("ims"):
            self._keep(flags[0])
        elif flags:
            raise self._no(f"the flags {flags[0]} are not supported, only i, m and s")
        else:
            raise self._no(f"{self._pattern[self._at : self._at + 4]} is not Java's syntax")

    def _no(self, why: str) -> OptionError:
        return _refused(self._pattern, why)


def _refused(pattern: str, why: str) -> OptionError:
    return OptionError(f"option subscribePattern={pattern[:200]}: {why}")
