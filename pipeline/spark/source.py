"""The data source `tidemark`, as Spark makes it: one class for reading and writing.

Nothing heavy is imported here: Spark imports this module while it looks for sources of any name.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from pipeline.errors import without_stack
from pipeline.shipping import Shipped
from runtime.override import override

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class TidemarkSource(Shipped, DataSource):
    """`format("tidemark")`.

    Options are checked as early as it can be said that something is to be read: by the constructor
    where one of them says what, else by `schema` or `reader`.
    """

    @without_stack
    def __init__(self, options: Any) -> None:
        """Take and check the options.

        Raises:
            OptionError: one is unknown, wrong, or contradicts another one.
        """
        from pipeline.spark.options import check_any, looks_like_reading

        super().__init__(options)
        if looks_like_reading(options):
            check_any(options)

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return "tidemark"

    @without_stack
    def schema(self) -> "StructType":
        """The columns of Spark's Kafka source, or those of the option `columns`."""
        from pipeline.spark.options import check_any
        from pipeline.spark.schema import schema_of

        options = check_any(self.options)
        return schema_of(options.columns, include_headers=options.include_headers)

    @without_stack
    def reader(self, schema: "StructType") -> DataSourceReader:
        """Make a reader of a snapshot.

        Raises:
            OptionError: an option or the schema is wrong, or filters cannot be pushed here.
        """
        from pipeline.spark.reading import batch_reader

        return batch_reader(self.options, schema)

    @override
    @without_stack
    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802
        from pipeline.spark.reading import stream_reader

        return stream_reader(self.options, schema)

    @without_stack
    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        """Make a writer of one batch.

        Raises:
            OptionError: an option or a column is wrong, or the mode is overwrite.
        """
        from pipeline.spark.sink import writer

        return writer(self.options, schema, overwrite)

    @without_stack
    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: "StructType", overwrite: bool
    ) -> DataSourceStreamWriter:
        """Make a writer of a stream, one batch after the other.

        Raises:
            OptionError: an option or a column is wrong.
        """
        from pipeline.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def register(spark: "SparkSession") -> None:
    """Make `format("tidemark")` known to a session that does not find `pyspark_tidemark`."""
    spark.dataSource.register(TidemarkSource)
