"""The text form that Kafka's checkpoints share: version line, count line, one line an entry."""

from collections.abc import Iterable

from kafka_protocol.errors import CorruptFileError

VERSION = "0"


def dump_lines(lines: Iterable[str]) -> bytes:
    """Write version 0, the number of lines, then the lines."""
    entries = list(lines)
    return "\n".join((VERSION, str(len(entries)), *entries, "")).encode()


def parse_lines(data: bytes, fields: int) -> list[list[str]]:
    """Read the entries of a checkpoint, each split at blanks into `fields` words.

    An empty file has no entries, as in Kafka.

    Raises:
        CorruptFileError: Another version, a wrong count, or a line of another shape.
    """
    if not data:
        return []
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise CorruptFileError("no UTF-8 text") from error
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or lines[0] != VERSION:
        raise CorruptFileError(f"no version {VERSION} checkpoint: {lines[0][:40]!r}")
    if not lines[1].isdecimal() or integer(lines[1]) != len(lines) - 2:
        raise CorruptFileError(f"{lines[1][:40]!r} entries announced, {len(lines) - 2} found")
    entries = [line.split() for line in lines[2:]]
    for entry, line in zip(entries, lines[2:], strict=True):
        if len(entry) != fields:
            raise CorruptFileError(f"malformed line {line[:80]!r}")
    return entries


def integer(word: str) -> int:
    """Read a decimal integer.

    Raises:
        CorruptFileError: The word is no decimal integer.
    """
    try:
        return int(word)
    except ValueError as error:
        raise CorruptFileError(f"{word[:40]!r} is no integer") from error
