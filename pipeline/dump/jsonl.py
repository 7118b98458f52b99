"""Rows as lines of JSON: one object a row, text where bytes are UTF-8, base64 where they are not.

Base64 stands under another name (`value_base64` in place of `value`), so that no reader takes it
for text. Times are ISO 8601 in UTC with milliseconds, as many as Kafka keeps.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = msgspec.json.Encoder()


def lines_of(batch: pa.RecordBatch) -> bytes:
    """All rows of a batch, each with a newline at its end."""
    names = batch.schema.names
    columns = [_python_values(name, column) for name, column in zip(names, batch, strict=True)]
    put = [_PUT.get(name, _put_plain) for name in names]
    out = []
    for row in zip(*columns, strict=True):
        found: dict[str, Any] = {}
        for name, value, put_one in zip(names, row, put, strict=True):
            put_one(found, name, value)
        out.append(found)
    return _ENCODER.encode_lines(out)


def write_lines(batches: Iterable[pa.RecordBatch], write: Callable[[bytes], Any]) -> Iterator[int]:
    """Write all batches; yields the number of rows of each as it was written."""
    for batch in batches:
        write(lines_of(batch))
        yield batch.num_rows


def _python_values(name: str, column: pa.Array) -> list[Any]:
    if name == "timestamp":  # as numbers: Python's datetime ends with the year 9999
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _put_plain(found: dict[str, Any], name: str, value: Any) -> None:
    found[name] = value


def _put_bytes(found: dict[str, Any], name: str, value: bytes | None) -> None:
    if value is None:
        found[name] = None
        return
    try:
        found[name] = value.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = b64encode(value).decode()


def _put_time(found: dict[str, Any], name: str, value: int | None) -> None:
    if value is None:
        found[name] = None
        return
    try:
        at = _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        found[f"{name}_ms"] = value // 1_000
        return
    found[name] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put_headers(found: dict[str, Any], name: str, value: list[Mapping[str, Any]] | None) -> None:
    if value is None:
        found[name] = None
        return
    found[name] = []
    for header in value:
        shown: dict[str, Any] = {"key": header["key"]}
        _put_bytes(shown, "value", header["value"])
        found[name].append(shown)


_PUT: Mapping[str, Callable[[dict[str, Any], str, Any], None]] = {
    "key": _put_bytes,
    "value": _put_bytes,
    "timestamp": _put_time,
    "headers": _put_headers,
}
