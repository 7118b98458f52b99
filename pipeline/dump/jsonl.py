"""Rows as lines of JSON: one object a row, with the fields of `json_fields`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.dump.json_fields import put_bytes, put_headers, put_time

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


def _put_headers(found: dict[str, Any], name: str, value: list[Mapping[str, Any]] | None) -> None:
    pairs = None if value is None else [(one["key"], one["value"]) for one in value]
    put_headers(found, name, pairs)


_PUT: Mapping[str, Callable[[dict[str, Any], str, Any], None]] = {
    "key": put_bytes,
    "value": put_bytes,
    "timestamp": put_time,
    "headers": _put_headers,
}
