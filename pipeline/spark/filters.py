"""Bounds of partitions, offsets and times from Spark's filters, so that less is planned.

Spark applies every filter again to the rows, so leaving one out is never wrong. Filters are known
by the names of their classes: PySpark 4.0 has none. Must not know: segments, Spark.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from kafka_protocol.types import TopicPartition
from pipeline.values import OffsetRange

_T = TypeVar("_T", str, int)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_EQUAL: Final = frozenset({"EqualTo", "EqualNullSafe"})


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Rows that may pass the filters.

    Attributes:
        topics, partitions: None: all.
        offset_first, offset_last: inclusive.
        time_from_ms: rows of earlier milliseconds do not pass.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_first: int = 0
    offset_last: int = (1 << 63) - 2
    time_from_ms: int | None = None


def bounds_of(filters: Iterable[Any]) -> RowBounds:
    """The bounds that all of these filters leave together."""
    wanted = RowBounds()
    for one in filters:
        column = getattr(one, "attribute", None)
        kind = type(one).__name__
        value = getattr(one, "value", None)
        if column == ("topic",):
            wanted = replace(wanted, topics=_narrowed(wanted.topics, kind, value))
        elif column == ("partition",):
            wanted = replace(wanted, partitions=_narrowed(wanted.partitions, kind, value))
        elif column == ("offset",) and isinstance(value, int):
            wanted = _by_offset(wanted, kind, value)
        elif column == ("offset",) and kind == "In" and value and None not in value:
            wanted = _by_offset(wanted, "GreaterThanOrEqual", min(value))
            wanted = _by_offset(wanted, "LessThanOrEqual", max(value))
        elif column == ("timestamp",) and isinstance(value, datetime):
            wanted = _by_time(wanted, kind, value)
    return wanted


def prune(
    ranges: Mapping[TopicPartition, OffsetRange], wanted: RowBounds
) -> dict[TopicPartition, OffsetRange]:
    """The ranges, without what cannot pass."""
    found = {}
    for one, (start, end) in ranges.items():
        if wanted.topics is not None and one.topic not in wanted.topics:
            continue
        if wanted.partitions is not None and one.partition not in wanted.partitions:
            continue
        first, last = max(start, wanted.offset_first), min(end, wanted.offset_last + 1)
        if first < last:
            found[one] = OffsetRange(first, last)
    return found


def _narrowed(before: frozenset[_T] | None, kind: str, value: Any) -> frozenset[_T] | None:
    if kind in _EQUAL and value is not None:
        allowed = frozenset([value])
    elif kind == "In":
        allowed = frozenset(value)
    else:
        return before
    return allowed if before is None else before & allowed


def _by_offset(wanted: RowBounds, kind: str, value: int) -> RowBounds:
    first, last = wanted.offset_first, wanted.offset_last
    if kind in _EQUAL:
        first, last = max(first, value), min(last, value)
    elif kind in ("GreaterThan", "GreaterThanOrEqual"):
        first = max(first, value + (kind == "GreaterThan"))
    elif kind in ("LessThan", "LessThanOrEqual"):
        last = min(last, value - (kind == "LessThan"))
    return replace(wanted, offset_first=first, offset_last=last)


def _by_time(wanted: RowBounds, kind: str, value: datetime) -> RowBounds:
    if kind not in (*_EQUAL, "GreaterThan", "GreaterThanOrEqual") or value.tzinfo is None:
        return wanted
    time_ms = (value - _EPOCH) // _MS
    return replace(wanted, time_from_ms=max(time_ms, wanted.time_from_ms or time_ms))
