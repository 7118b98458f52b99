r"""Java's `.properties` format, in which `server.properties` is written.

The grammar is that of `java.util.Properties.load`. `#` and `!` begin comments; `=`, `:` or white
space separate key and value. A backslash at the end of a line joins the next one to it, and `\t \n
\r \f \uXXXX` are escapes. The last value of a repeated key wins.
"""

from collections.abc import Mapping
from typing import Final

from kafka_protocol.errors import TidemarkError

_BLANK: Final = " \t\f"
_ESCAPED: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"})
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(TidemarkError, ValueError):
    """The text is not in the format; the message has the line number (from 1)."""


def parse(text: str) -> dict[str, str]:
    r"""Parse properties text into a dict in the order of the file.

    Args:
        text: The whole file, decoded; line ends may be LF, CRLF or CR.

    Raises:
        PropertiesError: A `\u` escape is not followed by four hexadecimal digits.
    """
    entries: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        key = _unescape(line[:key_end], number)
        entries[key] = _unescape(line[value_start:], number)
    return entries


def dump(entries: Mapping[str, str]) -> str:
    """Write properties text for `parse`, one line for each entry, in their order."""
    return "".join(f"{_key(name)}={_value(text)}\n" for name, text in entries.items())


def _key(name: str) -> str:
    escaped = name.translate(_ESCAPED)
    for letter in " =:#!":
        escaped = escaped.replace(letter, f"\\{letter}")
    return escaped


def _value(text: str) -> str:
    escaped = text.translate(_ESCAPED)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def decode(data: bytes) -> str:
    """Decode a properties file: UTF-8, or else Latin-1, which older Java wrote."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Join continued lines, without blank lines and comments: (first line number, text)."""
    found: list[tuple[int, str]] = []
    pending: str | None = None
    first = 0
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(lines, start=1):
        line = raw.lstrip(_BLANK)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            first, pending = number, ""
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending += line[:-1]
            continue
        found.append((first, pending + line))
        pending = None
    if pending:
        found.append((first, pending))
    return found


def _split(line: str) -> tuple[int, int]:
    """Return the end of the key (exclusive) and the start of the value, as indexes into `line`."""
    index, size = 0, len(line)
    while index < size and line[index] not in "=: \t\f":
        index += 2 if line[index] == "\\" else 1
    key_end = min(index, size)
    index = key_end
    while index < size and line[index] in _BLANK:
        index += 1
    if index < size and line[index] in "=:":
        index += 1
        while index < size and line[index] in _BLANK:
            index += 1
    return key_end, index


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    index = 0
    while index < len(text):
        letter = text[index]
        index += 1
        if letter != "\\":
            parts.append(letter)
            continue
        if index >= len(text):
            break
        letter = text[index]
        index += 1
        if letter != "u":
            parts.append(_ESCAPES.get(letter, letter))
            continue
        digits = text[index : index + 4]
        if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise PropertiesError(f"line {line_number}: \\u needs four hexadecimal digits")
        parts.append(chr(int(digits, 16)))
        index += 4
    return "".join(parts)
