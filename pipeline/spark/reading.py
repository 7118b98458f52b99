"""Makes the readers out of a source's options and schema."""

from collections.abc import Mapping

import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pipeline.errors import OptionError
from pipeline.spark.options import batch_options
from pipeline.spark.reader import BatchReader, FilteringBatchReader
from pipeline.spark.schema import columns_of
from pipeline.spark.stream_reader import PlainStreamReader


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of `spark.read.format("tidemark")`.

    Raises:
        OptionError: an option or the schema is wrong, or filters cannot be pushed here.
    """
    read = batch_options(options)
    columns = columns_of(schema, read.columns)
    if not read.push_filters:
        return BatchReader(read, columns)
    if not hasattr(DataSourceReader, "pushFilters"):
        raise OptionError(
            f"option pushFilters=true needs PySpark 4.1 or newer, here is {pyspark.__version__}:"
            " leave it out or upgrade"
        )
    return FilteringBatchReader(read, columns)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """The reader of `spark.readStream.format("tidemark")`; it checks all itself."""
    return stream_reader_class()(options, schema)


def stream_reader_class() -> type[PlainStreamReader]:
    """The reader for the PySpark that is installed."""
    if not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        return PlainStreamReader
    from pipeline.spark.stream_reader_42 import LimitedStreamReader

    return LimitedStreamReader
