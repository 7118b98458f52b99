"""Writes DataFrames and streams to topics: the writers that Spark's data source hands out.

At least once: a task that is tried again writes its rows again. The producer is idempotent, so the
client's own retries write nothing twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pipeline.errors import OptionError
from pipeline.shipping import Shipped
from pipeline.spark.driver_log import driver_log
from pipeline.spark.sink_options import SinkSettings, sink_settings, sink_warnings
from pipeline.spark.sink_producer import check_client, produce
from pipeline.spark.sink_rows import RowShape, records_of_batches, records_of_rows, row_shape
from runtime.override import override


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The message of a task whose records are all acknowledged."""

    records: int


class _Sink(Shipped):
    """Settings and shape of a job; travels to executors."""

    def __init__(self, settings: SinkSettings, shape: RowShape) -> None:
        self._settings, self._shape = settings, shape


class BatchSink(_Sink, DataSourceArrowWriter):
    """Writes the rows of a DataFrame once (or, after failed attempts, more often)."""

    @override
    def write(self, iterator: Iterator[Any]) -> Written:
        return Written(produce(records_of_batches(iterator, self._shape), self._settings))


_ARROW_STREAM: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
"""Streams write Arrow, without an object a row, from Spark 4.1 on; 4.0 offers rows."""


class StreamSink(_Sink, _ARROW_STREAM or DataSourceStreamWriter):  # type: ignore[misc]
    """Writes the rows of each micro-batch."""

    @override
    def write(self, iterator: Iterator[Any]) -> Written:
        read = records_of_rows if _ARROW_STREAM is None else records_of_batches
        return Written(produce(read(iterator, self._shape), self._settings))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: tasks end when their records are acknowledged."""

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing can be taken back: what was written stays, and is written again."""


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """The writer of `df.write.format("tidemark")`.

    Raises:
        OptionError: options or columns are wrong, or the mode is overwrite.
    """
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode append")
    checked = _checked(options, schema)
    for warning in sink_warnings(options):
        driver_log().warning("%s", warning)
    return BatchSink(*checked)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamWriter:
    """The writer of `df.writeStream.format("tidemark")`: Arrow from Spark 4.1 on.

    Args:
        options: of the user, and Spark's own.
        schema: of the rows.
        overwrite: the output mode is complete. As with Spark's Kafka sink, each micro-batch then
            appends all rows of the result again; nothing is taken out of a topic.

    Raises:
        OptionError: options or columns are wrong.
    """
    checked = _checked(options, schema)
    for warning in sink_warnings(options):
        _warn_once(warning)
    return StreamSink(*checked)


@cache
def _warn_once(warning: str) -> None:
    """Spark asks for the writer of a stream in each micro-batch, mostly in the same process."""
    driver_log().warning("%s", warning)


def _checked(options: Mapping[str, str], schema: StructType) -> tuple[SinkSettings, RowShape]:
    settings = sink_settings(options)
    check_client(settings)
    fields = [(one.name, one.dataType.simpleString()) for one in schema.fields]
    return settings, row_shape(fields, settings.topic)
