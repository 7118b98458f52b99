"""Records of a seed: JSON lines, an object each, or CSV with a header.

The fields are the same in both: key, value, headers, timestamp, partition; none must be there.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kafka_protocol.errors import TidemarkError


class SeedError(TidemarkError):
    """A seed cannot be used; the message names file, line, field and what is allowed."""


def wrong(path: Path, line: int, text: str) -> SeedError:
    """An error at a line of a file, counted from 1."""
    return SeedError(f"{path}:{line}: {text}")


FIELDS: Final = ("key", "value", "headers", "timestamp", "partition")
FORMATS: Final = (".jsonl", ".ndjson", ".json", ".csv")
_TIMESTAMP_MAX: Final = 2**63 - 1
_AGO: Final = re.compile(r"-(\d{1,12})(ms|[smhdw])", re.ASCII)
_UNITS_MS: Final = {
    "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One record, and the line where it ends.

    Attributes:
        timestamp_ms: None: when it is written.
        partition: None: by its key, as Java's clients do it.
    """

    line: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def read_records(path: Path, partitions: int, now_ms: int) -> Iterator[Record]:
    """Read a file of records, one after the other.

    Args:
        path: its ending says what it is: .jsonl, .ndjson or .json for JSON lines, .csv for CSV.
        partitions: of their topic.
        now_ms: since 1970; what times such as `-2h` are counted from.

    Raises:
        SeedError: it cannot be read; names the line and the field.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise SeedError(f"{path}: the ending says what it is: allowed are {', '.join(FORMATS)}")
    try:
        # A byte order mark is what spreadsheets put in front of CSV.
        with path.open(encoding="utf-8-sig", newline="" if suffix == ".csv" else None) as file:
            lines = _csv(path, file) if suffix == ".csv" else _json_lines(path, file)
            for number, fields in lines:
                yield _record(path, number, fields, (partitions, now_ms))
    except OSError as error:
        raise SeedError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SeedError(f"{path}: not UTF-8: {error}") from None


def _json_lines(path: Path, file: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise wrong(path, number, f"not JSON: {error}") from None
        if not isinstance(found, dict):
            raise wrong(path, number, "each line must be a JSON object with fields such as value")
        yield number, found


def _csv(path: Path, file: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(file, strict=True)
    try:
        names = next(reader, None)
        if names is None:
            raise wrong(path, 1, f"the first line must name columns of {', '.join(FIELDS)}")
        _check_names(path, 1, names)
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                text = f"{len(row)} cells, and the first line names {len(names)} columns"
                raise wrong(path, reader.line_num, text)
            yield reader.line_num, _cells(path, reader.line_num, dict(zip(names, row, strict=True)))
    except csv.Error as error:
        raise wrong(path, reader.line_num, f"not CSV: {error}") from None


def _cells(path: Path, line: int, row: dict[str, str]) -> dict[str, Any]:
    """The cells of a row as the fields of a JSON line; an empty one is null."""
    fields: dict[str, Any] = {name: cell or None for name, cell in row.items()}
    for name in ("timestamp", "partition"):
        cell = row.get(name, "").strip()
        if cell.lstrip("-").isdecimal():
            fields[name] = int(cell)
    if fields.get("headers") is not None:
        try:
            fields["headers"] = json.loads(fields["headers"])
        except (ValueError, RecursionError) as error:
            raise wrong(path, line, f"headers: not JSON: {error}") from None
    return fields


def _check_names(path: Path, line: int, names: list[str]) -> None:
    for name in names:
        if name not in FIELDS:
            text = f"{name}: no such field; there are {', '.join(FIELDS)}"
            raise wrong(path, line, text)
        if names.count(name) > 1:
            raise wrong(path, line, f"{name}: is there twice")


def _record(path: Path, line: int, fields: dict[str, Any], of_topic: tuple[int, int]) -> Record:
    partitions, now_ms = of_topic
    _check_names(path, line, list(fields))
    try:
        return Record(
            line,
            key=_bytes(fields.get("key")),
            value=_bytes(fields.get("value")),
            headers=_headers(fields.get("headers")),
            timestamp_ms=_timestamp(fields.get("timestamp"), now_ms),
            partition=_partition(fields.get("partition"), partitions),
        )
    except ValueError as error:
        raise wrong(path, line, str(error)) from None


def _bytes(value: Any) -> bytes | None:
    """Text as UTF-8, anything else of JSON as JSON, null as nothing."""
    if value is None:
        return None
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
    return text.encode("utf-8", "surrogatepass")


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, dict) else value
    is_list = isinstance(pairs, list) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in pairs
    )
    if not is_list:
        raise ValueError('headers: allowed is {"name": "value"} or [["name", "value"], ...]')
    return tuple((name, _bytes(content)) for name, content in pairs)


def _timestamp(value: Any, now_ms: int) -> int | None:
    if value is None:
        return None
    found: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif isinstance(value, str):
        ago = _AGO.fullmatch(value)
        found = now_ms - int(ago[1]) * _UNITS_MS[ago[2]] if ago else _iso_ms(value)
    if found is None or not 1 <= found <= _TIMESTAMP_MAX:
        raise ValueError(
            f"timestamp={value!r}: allowed are milliseconds since 1970, from 1 on, a date with"
            " time and zone such as 2026-01-31T12:00:00Z, or a time ago such as -2h (units: "
            f"{', '.join(_UNITS_MS)})"
        )
    return found


def _iso_ms(text: str) -> int | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else round(at.timestamp() * 1000)


def _partition(value: Any, partitions: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < partitions:
        raise ValueError(f"partition={value!r}: allowed is 0 to {partitions - 1}")
    return value
