"""Fields of a record in a JSON object: text where bytes are UTF-8, base64 where they are not.

Base64 stands under another name (`value_base64` in place of `value`), so that no reader takes it
for text. Times are ISO 8601 in UTC with milliseconds, as many as Kafka keeps. Must not know: Arrow;
`tidemark consume` writes the same objects without it.
"""

from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def put_bytes(found: dict[str, Any], name: str, value: bytes | None) -> None:
    """Add a key or a value; null stays null."""
    if value is None:
        found[name] = None
        return
    try:
        found[name] = value.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = b64encode(value).decode()


def put_time(found: dict[str, Any], name: str, value_us: int | None) -> None:
    """Add a time, given in microseconds since 1970; one after the year 9999 in milliseconds.

    That one stands under another name, `timestamp_ms` in place of `timestamp`.
    """
    if value_us is None:
        found[name] = None
        return
    try:
        at = _EPOCH + timedelta(microseconds=value_us)
    except OverflowError:
        found[f"{name}_ms"] = value_us // 1_000
        return
    found[name] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def put_headers(
    found: dict[str, Any], name: str, headers: Iterable[tuple[str, bytes | None]] | None
) -> None:
    """Add headers in their order, an object each; a name may come twice."""
    if headers is None:
        found[name] = None
        return
    found[name] = []
    for key, value in headers:
        shown: dict[str, Any] = {"key": key}
        put_bytes(shown, "value", value)
        found[name].append(shown)
