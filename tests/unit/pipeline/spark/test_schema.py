"""The schema that Spark sees, and what a user's own schema may ask for."""

import pickle
from inspect import signature

import pytest

pytest.importorskip("pyspark", reason="needs pyspark")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

from pipeline import columns
from pipeline.errors import OptionError
from pipeline.spark.schema import TYPES, columns_of, schema_of


def field(name: str, kind: object = None, nullable: bool = True) -> StructType:
    return StructType([StructField(name, kind or TYPES[name], nullable)])  # type: ignore[arg-type]


def test_spark_and_arrow_mean_the_same_types() -> None:
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    spark = to_arrow_schema(schema_of(None, include_headers=True), **zone)
    arrow = columns.schema_of(list(columns.TYPES))
    assert spark.names == arrow.names
    for one in arrow:
        if zone or one.name != "timestamp":  # before 4.1 the session's zone is in the type
            assert spark.field(one.name).type == one.type


def test_headers_are_there_where_they_are_asked_for() -> None:
    assert schema_of(None, include_headers=False).names == list(columns.DEFAULT_COLUMNS)
    assert schema_of(None, include_headers=True).names == list(columns.TYPES)
    assert schema_of(("headers", "key"), include_headers=False).names == ["headers", "key"]


def test_a_schema_asks_for_its_columns_in_its_order() -> None:
    schema = StructType([*field("offset").fields, *field("key").fields])
    assert columns_of(schema, None) == ("offset", "key")
    assert columns_of(schema, ("offset", "key")) == ("offset", "key")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType([]), "names no column"),
        (field("ofset", LongType()), "there is no column 'ofset'.*did you mean offset"),
        (field("Key", StringType()), "did you mean key"),
        (field("value", StringType()), "column value is binary, not string"),
        (field("partition", LongType()), "column partition is int, not bigint"),
        (field("timestampType", ByteType()), "column timestampType is int, not tinyint"),
        (field("offset", nullable=False), "column offset is not null there"),
        (StructType(field("key").fields * 2), "column key is named twice"),
    ],
)
def test_a_schema_that_is_none_of_ours_is_refused(schema: StructType, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        columns_of(schema, None)


@pytest.mark.parametrize("named", [("ofset",), ("key", "key")])
def test_columns_that_are_not_there_are_refused(named: tuple[str, ...]) -> None:
    with pytest.raises(OptionError, match="option columns"):
        schema_of(named, include_headers=False)


def test_columns_and_a_schema_must_agree() -> None:
    with pytest.raises(OptionError, match="give one of the two"):
        columns_of(field("key"), ("value",))


def test_an_error_travels() -> None:
    error = pickle.loads(pickle.dumps(OptionError("one line")))
    assert str(error) == "one line"
