"""A line of input as the key and the value of a record; options that describe it. Pure."""

from dataclasses import dataclass
from typing import Final

from kafka_protocol.errors import TidemarkError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


class LineError(TidemarkError, ValueError):
    """A line is no record."""


@dataclass(frozen=True, slots=True)
class LineForm:
    """How a line is read.

    Attributes:
        key_separator: the first of these ends the key; None: the line is the value.
        key: of all records; None: they have none, or lines have their own.
        null_marker: a key or a value that is this is null.
    """

    key_separator: bytes | None = None
    key: bytes | None = None
    null_marker: bytes | None = None

    def record_of(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """Key and value.

        Args:
            line: without the newline at its end.

        Raises:
            LineError: there is no key separator.
        """
        key: bytes | None = self.key
        value: bytes | None = line
        if self.key_separator is not None:
            before, separator, after = line.partition(self.key_separator)
            if not separator:
                shown = self.key_separator.decode(errors="backslashreplace")
                raise LineError(f"there is no key separator {shown!r}")
            key, value = self._null(before), after
        return key, self._null(value)

    def _null(self, given: bytes | None) -> bytes | None:
        return None if self.null_marker is not None and given == self.null_marker else given


def unescaped(text: str) -> bytes:
    r"""A separator as it was typed, with `\t` and the like as the characters that they mean.

    Raises:
        LineError: it is empty, or there is no such escape.
    """
    if not text:
        raise LineError("a separator has at least one character")
    out, rest = [], text
    while rest:
        before, backslash, after = rest.partition("\\")
        out.append(before)
        if backslash and after[:1] not in _ESCAPES:
            raise LineError(rf"{text!r}: allowed are \t, \n, \r, \0 and \\")
        if backslash:
            out.append(_ESCAPES[after[0]])
        rest = after[1:]
    return "".join(out).encode("utf-8", "surrogateescape")


def parse_header(text: str) -> tuple[str, bytes | None]:
    """A header from `NAME=VALUE`; `NAME` alone: its value is null.

    Raises:
        LineError: it has no name.
    """
    name, equals, value = text.partition("=")
    if not name:
        raise LineError(f"{text!r}: a header is NAME=VALUE")
    return name, value.encode("utf-8", "surrogateescape") if equals else None
