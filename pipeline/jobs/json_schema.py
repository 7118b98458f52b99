"""The schema of JSON values, written as Spark's DDL, as an Arrow type."""

from typing import Any

import pyarrow as pa

from pipeline.errors import OptionError
from pipeline.jobs.json_values import JsonValues


def value_type_of(schema: Any) -> pa.StructType:
    """The type of a DDL text or of a StructType; needs a SparkSession for the former.

    Raises:
        OptionError: it is no DDL, or has types that JSON values are not decoded to.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        spark_type = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        kind = pa.struct(list(to_arrow_schema(spark_type, timestamp_utc=True)))
    except (PySparkException, ValueError, TypeError, AttributeError) as error:
        said = str(error).strip().splitlines()[0][:200]
        raise OptionError(f"--schema is no DDL like 'id BIGINT, name STRING': {said}") from error
    JsonValues(kind)  # refuses types that have no form in JSON
    return kind
