"""The schema of JSON values, written as Spark's DDL, as an Arrow type.

Spark's own conversion has changed its parameters between versions, so this is ours.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from pipeline.errors import OptionError
from pipeline.jobs.json_values import JsonValues

_SIMPLE: Final[Mapping[str, pa.DataType]] = MappingProxyType(
    {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
)


def value_type_of(schema: Any) -> pa.StructType:
    """The type of a DDL text (needs a SparkSession) or of a StructType.

    Raises:
        OptionError: it is no DDL, or has types that JSON values are not decoded to.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        spark_type = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except (PySparkException, ValueError) as error:
        said = (str(error).strip().splitlines() or [""])[0][:200]
        raise OptionError(f"--schema is no DDL like 'id BIGINT, name STRING': {said}") from error
    if not isinstance(spark_type, StructType):
        raise OptionError(f"--schema is one type, no list of columns: {spark_type}")
    kind = _arrow(spark_type, "value")
    JsonValues(kind)
    return kind


def _arrow(spark_type: Any, name: str) -> pa.DataType:
    kind = spark_type.typeName().split(" ")[0]
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind.startswith("decimal"):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    if kind == "array":
        inner = _arrow(spark_type.elementType, f"{name}.element")
        return pa.list_(pa.field("element", inner))
    if kind == "struct":
        fields = [
            pa.field(one.name, _arrow(one.dataType, f"{name}.{one.name}")) for one in spark_type
        ]
        return pa.struct(fields)
    raise OptionError(
        f"{name} of the JSON schema is of type {spark_type.simpleString()}: allowed are booleans,"
        " numbers, strings, binary (base64), dates, timestamps, arrays and structs"
    )
