"""Rows of a DataFrame as records."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from pipeline.columns import HEADERS
from pipeline.errors import OptionError
from pipeline.spark.sink_rows import (
    Record,
    RowError,
    RowShape,
    records_of_batches,
    records_of_rows,
    row_shape,
)

VALUE = ("value", "binary")
TOPIC = ("topic", "string")
HEADERS_SPARK = ("headers", "array<struct<key:string,value:binary>>")


def test_the_topic_option_wins_over_the_column() -> None:
    assert row_shape([TOPIC, VALUE], "t") == RowShape("t", {"value": 1})
    assert row_shape([TOPIC, VALUE], None) == RowShape(None, {"topic": 0, "value": 1})


def test_other_columns_are_not_looked_at() -> None:
    fields = [("offset", "bigint"), ("value", "string"), ("Key", "int"), ("VALUE", "int")]
    assert row_shape(fields, "t").columns == {"value": 1}
    assert row_shape([VALUE, ("Key", "string")], "t").columns == {"value": 0}
    assert row_shape([VALUE, ("topic", "binary")], "t").columns == {"value": 0}


@pytest.mark.parametrize(
    ("fields", "topic", "said"),
    [
        ([("key", "binary")], "t", "no column `value`"),
        ([VALUE], None, "no topic"),
        ([("value", "int")], "t", "cast it to string or binary"),
        ([VALUE, ("partition", "bigint")], "t", "cast it to int"),
        ([VALUE, ("topic", "binary")], None, "cast it to string"),
        ([("Value", "binary")], "t", "no column `value` \\(`Value` is another name"),
        ([VALUE, ("Topic", "string")], None, "no topic: .*`Topic` is another name"),
        ([VALUE, ("headers", "map<string,string>")], "t", "headers is of type"),
        ([VALUE, ("value", "string")], "t", "there twice"),
    ],
)
def test_a_wrong_column_is_an_error_before_the_job(
    fields: Sequence[tuple[str, str]], topic: str | None, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        row_shape(fields, topic)


def test_batches_become_records() -> None:
    batch = pa.record_batch(
        {
            "topic": ["a", "b"],
            "key": pa.array([None, b"k"], pa.binary()),
            "value": ["v", None],
            "headers": pa.array([[("h", b"1"), ("h", None)], None], HEADERS),
            "partition": pa.array([3, None], pa.int32()),
        }
    )
    fields = [TOPIC, ("key", "binary"), ("value", "string"), HEADERS_SPARK, ("partition", "int")]
    assert list(records_of_batches([batch], row_shape(fields, None))) == [
        Record("a", 3, None, "v", [("h", b"1"), ("h", None)]),
        Record("b", -1, b"k", None, None),
    ]


def test_rows_become_the_same_records() -> None:
    shape = row_shape([VALUE, HEADERS_SPARK], "t")
    assert list(records_of_rows([(b"v", [{"key": "h", "value": b"1"}]), (None, None)], shape)) == [
        Record("t", -1, None, b"v", [("h", b"1")]),
        Record("t", -1, None, None, None),
    ]


def test_the_bytearrays_of_pyspark_400_become_bytes() -> None:
    shape = row_shape([("key", "binary"), VALUE, HEADERS_SPARK], "t")
    row = (bytearray(b"k"), bytearray(b"v"), [{"key": "h", "value": bytearray(b"1")}])
    (record,) = records_of_rows([row], shape)
    assert record == Record("t", -1, b"k", b"v", [("h", b"1")])
    assert record.headers is not None
    found = (record.key, record.value, record.headers[0][1])
    assert {type(one) for one in found} == {bytes}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((None, 0, []), "null topic"),
        (("t", -1, []), "partition -1"),
        (("t", 0, [{"key": None, "value": b""}]), "header without a key"),
    ],
)
def test_a_row_that_cannot_be_produced_is_an_error(row: tuple[object, ...], said: str) -> None:
    shape = row_shape([TOPIC, ("partition", "int"), HEADERS_SPARK, VALUE], None)
    with pytest.raises(RowError, match=said):
        list(records_of_rows([(*row, b"v")], shape))
