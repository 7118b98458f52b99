"""A record as `tidemark consume` prints it: an object of JSON, its bytes, or their digits. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from pipeline.dump.json_fields import put_bytes, put_headers, put_time

JSON, RAW, HEX = "json", "raw", "hex"
KINDS: Final = (JSON, RAW, HEX)
_NULL: Final = b"null"
"""A null key or value of a line that is no JSON, as Kafka's console consumer prints it."""
_ENCODER: Final = msgspec.json.Encoder()


class Consumed(NamedTuple):
    """A record that a consumer got.

    Attributes:
        timestamp_ms: since 1970; None: the record has none.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Form:
    """How records are printed.

    Attributes:
        kind: one of `KINDS`.
        is_value_json: values are JSON and stand in the object as such.
        key_separator: of lines that are no JSON: the key and this stand before the value.
    """

    kind: str = RAW
    is_value_json: bool = False
    key_separator: bytes | None = None


def line_maker(form: Form) -> Callable[[Consumed], bytes]:
    """A function that makes a line of a record, with a newline at its end."""
    if form.kind == JSON:
        return _json_values if form.is_value_json else _json_line
    shown = _digits if form.kind == HEX else _plain
    separator = form.key_separator
    if separator is None:
        return lambda record: shown(record.value) + b"\n"
    return lambda record: b"%b%b%b\n" % (shown(record.key), separator, shown(record.value))


def _plain(value: bytes | None) -> bytes:
    return _NULL if value is None else value


def _digits(value: bytes | None) -> bytes:
    return _NULL if value is None else value.hex().encode()


def _json_line(record: Consumed) -> bytes:
    found = _head(record)
    put_bytes(found, "value", record.value)
    put_headers(found, "headers", record.headers)
    return _ENCODER.encode(found) + b"\n"


def _json_values(record: Consumed) -> bytes:
    """The value as JSON; one that does not parse is null, and its bytes stand in `value_raw`."""
    found, value = _head(record), record.value
    parsed = None if value is None else _parsed(value)
    found["value"] = parsed
    if value is not None and parsed is None:
        put_bytes(found, "value_raw", value)
    put_headers(found, "headers", record.headers)
    return _ENCODER.encode(found) + b"\n"


def _parsed(value: bytes) -> msgspec.Raw | None:
    """The bytes again where they are JSON: no number loses a digit. In one line."""
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    in_one_line = b"\n" not in value and b"\r" not in value
    return msgspec.Raw(value if in_one_line else msgspec.json.format(value, indent=-1))


def _head(record: Consumed) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }
    at = record.timestamp_ms
    put_time(found, "timestamp", None if at is None else at * 1_000)
    put_bytes(found, "key", record.key)
    return found
