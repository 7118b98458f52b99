"""Spark's types as Arrow types of decoded values."""

import pyarrow as pa
import pytest

from pipeline.errors import OptionError
from pipeline.jobs.json_schema import value_type_of

types = pytest.importorskip("pyspark.sql.types")


def struct(*fields: tuple[str, object]) -> object:
    return types.StructType([types.StructField(name, kind) for name, kind in fields])


def test_each_type_has_its_arrow_type() -> None:
    kind = struct(
        ("a", types.LongType()),
        ("b", types.ArrayType(struct(("c", types.StringType())))),
        ("d", types.DecimalType(9, 2)),
        ("t", types.TimestampType()),
        ("n", types.TimestampNTZType()),
        ("x", types.DoubleType()),
    )
    inner = pa.struct([("c", pa.string())])
    assert value_type_of(kind) == pa.struct(
        [
            ("a", pa.int64()),
            ("b", pa.list_(pa.field("element", inner))),
            ("d", pa.decimal128(9, 2)),
            ("t", pa.timestamp("us", tz="UTC")),
            ("n", pa.timestamp("us")),
            ("x", pa.float64()),
        ]
    )


def test_a_map_is_refused_by_its_place() -> None:
    inner = struct(("m", types.MapType(types.StringType(), types.StringType())))
    with pytest.raises(OptionError, match=r"value\.s\.m of the JSON schema is of type map"):
        value_type_of(struct(("s", inner)))
    with pytest.raises(OptionError, match="no list of columns"):
        value_type_of(types.LongType())
