"""Rows of a DataFrame as records to be produced: which column is what, and its checks.

The columns are those of Spark's Kafka sink: `value` is required; `key`, `headers`, `topic` and
`partition` are optional; others are not looked at. Names are exact, as they are there: `Key` is
another column, whatever `spark.sql.caseSensitive` says.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pipeline.errors import OptionError, PipelineError

_BYTES: Final = ("string", "binary")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": _BYTES,
    "value": _BYTES,
    "headers": (_HEADERS,),
    "partition": ("int",),
}

Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record; `partition` is -1 where the producer's partitioner decides."""

    topic: str
    partition: int
    key: bytes | str | None
    value: bytes | str | None
    headers: Headers | None


class RowError(PipelineError):
    """A row cannot be produced as it is."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """Where a record's parts are in a row.

    Attributes:
        topic: of all rows; None: the column names it.
        columns: position of each column that is there.
    """

    topic: str | None
    columns: Mapping[str, int]


def row_shape(fields: Sequence[tuple[str, str]], topic: str | None) -> RowShape:
    """Find the columns; the option `topic` wins over a column of that name.

    Args:
        fields: name and type (Spark's simple string) of each column.
        topic: the option.

    Raises:
        OptionError: a column is missing or of a wrong type.
    """
    columns: dict[str, int] = {}
    for position, (name, kind) in enumerate(fields):
        if name not in _TYPES or (name == "topic" and topic is not None):
            continue
        if name in columns:
            raise OptionError(f"column {name} is there twice: keep one of them")
        if kind not in _TYPES[name]:
            raise OptionError(
                f"column {name} is of type {kind}: cast it to {' or '.join(_TYPES[name])}"
            )
        columns[name] = position
    if "value" not in columns:
        near = _in_another_case("value", fields)
        raise OptionError(f"there is no column `value`{near}: it is required, as string or binary")
    if topic is None and "topic" not in columns:
        near = _in_another_case("topic", fields)
        raise OptionError(
            f"no topic: give the option topic, or a column `topic` of type string{near}"
        )
    return RowShape(topic, columns)


def _in_another_case(wanted: str, fields: Sequence[tuple[str, str]]) -> str:
    near = [name for name, _ in fields if name.lower() == wanted]
    return f" (`{near[0]}` is another name, case counts)" if near else ""


def records_of_batches(batches: Iterable[Any], shape: RowShape) -> Iterator[Record]:
    """Records of Arrow batches, in their order.

    Raises:
        RowError: a row has no topic, a negative partition, or a header without a name.
    """
    for batch in batches:
        parts = {name: batch.column(at).to_pylist() for name, at in shape.columns.items()}
        nothing = [None] * batch.num_rows
        yield from _records(
            shape.topic,
            parts.get("topic", nothing),
            parts.get("partition", nothing),
            parts.get("key", nothing),
            parts["value"],
            parts.get("headers", nothing),
        )


def records_of_rows(rows: Iterable[Sequence[Any]], shape: RowShape) -> Iterator[Record]:
    """The same of Spark's rows, for versions whose streams write no Arrow (below 4.1)."""
    at = shape.columns
    names = ("topic", "partition", "key", "value", "headers")
    for row in rows:
        parts = ([row[at[name]] if name in at else None] for name in names)
        yield from _records(shape.topic, *parts)


def _records(fixed: str | None, *parts: Sequence[Any]) -> Iterator[Record]:
    for topic, partition, key, value, headers in zip(*parts, strict=True):
        name = topic if fixed is None else fixed
        if name is None:
            raise RowError("a row has a null topic: fill the column, or give the option topic")
        if partition is not None and partition < 0:
            raise RowError(f"a row for {name} has partition {partition}: give 0 or more, or null")
        at = -1 if partition is None else partition
        yield Record(name, at, _as_bytes(key), _as_bytes(value), _headers(name, headers))


def _as_bytes(given: Any) -> Any:
    """The client takes no bytearray, which is what PySpark 4.0 makes of a binary column."""
    return bytes(given) if isinstance(given, bytearray) else given


def _headers(topic: str, headers: Sequence[Any] | None) -> Headers | None:
    if headers is None:
        return None
    named = []
    for header in headers:
        if header is None or header["key"] is None:
            raise RowError(f"a row for {topic} has a header without a key: name it or leave it out")
        named.append((header["key"], _as_bytes(header["value"])))
    return named
