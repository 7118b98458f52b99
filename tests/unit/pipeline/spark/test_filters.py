"""What filters leave to be planned; Spark applies them again to the rows."""

from datetime import UTC, datetime

import pytest

datasource = pytest.importorskip("pyspark.sql.datasource", reason="needs pyspark")
if not hasattr(datasource, "Filter"):
    pytest.skip("filters come with PySpark 4.1", allow_module_level=True)

from pyspark.sql.datasource import (  # noqa: E402 - after the skip
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kafka_protocol.types import TopicPartition  # noqa: E402
from pipeline.spark.filters import RowBounds, bounds_of, prune  # noqa: E402
from pipeline.values import OffsetRange  # noqa: E402

O, P, T, K, S = ("offset",), ("partition",), ("topic",), ("key",), ("timestamp",)  # noqa: E741
NOON = datetime(2026, 1, 1, 12, 0, 0, 1500, tzinfo=UTC)
NOON_MS = 1_767_268_800_001


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([], RowBounds()),
        ([IsNotNull(O), EqualTo(K, b"x"), StringStartsWith(T, "a")], RowBounds()),
        ([Not(EqualTo(P, 1))], RowBounds()),
        ([EqualTo(T, "a")], RowBounds(topics=frozenset({"a"}))),
        ([In(P, (0, 2))], RowBounds(partitions=frozenset({0, 2}))),
        ([In(P, (0, 2)), EqualTo(P, 2)], RowBounds(partitions=frozenset({2}))),
        ([GreaterThan(O, 5), LessThan(O, 9)], RowBounds(offset_first=6, offset_last=8)),
        (
            [GreaterThanOrEqual(O, 5), LessThanOrEqual(O, 9)],
            RowBounds(offset_first=5, offset_last=9),
        ),
        ([EqualTo(O, 7)], RowBounds(offset_first=7, offset_last=7)),
        ([In(O, (9, 4))], RowBounds(offset_first=4, offset_last=9)),
        ([GreaterThanOrEqual(S, NOON)], RowBounds(time_from_ms=NOON_MS)),
        ([LessThan(S, NOON)], RowBounds()),
        ([GreaterThan(S, NOON.replace(tzinfo=None))], RowBounds()),
    ],
)
def test_filters_say_what_is_wanted(filters: list[object], wanted: RowBounds) -> None:
    assert bounds_of(filters) == wanted


def test_ranges_shrink_to_what_is_wanted() -> None:
    a0, a1, b0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
    ranges = {a0: OffsetRange(0, 100), a1: OffsetRange(50, 60), b0: OffsetRange(0, 100)}
    assert prune(ranges, RowBounds()) == ranges
    assert prune(ranges, RowBounds(topics=frozenset({"b"}))) == {b0: OffsetRange(0, 100)}
    assert prune(ranges, RowBounds(partitions=frozenset({1}))) == {a1: OffsetRange(50, 60)}
    assert prune(ranges, RowBounds(offset_first=55, offset_last=70)) == {
        a0: OffsetRange(55, 71),
        a1: OffsetRange(55, 60),
        b0: OffsetRange(55, 71),
    }
