"""The stream readers: one for PySpark 4.0 and 4.1, one for those with admission control (4.2).

Spark sends a reader to the executors, and keeps another one on the driver in a process that lives
as long as the query; only that one ever makes a `Stream`. Its constructor must not fail: Spark
would hide the reason, so options are checked by the first question.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.errors import OptionError, without_stack
from pipeline.opening import open_log
from pipeline.shipping import Shipped
from pipeline.spark.driver_log import driver_log
from pipeline.spark.limits import Rates
from pipeline.spark.options import stream_options
from pipeline.spark.options_values import from_map, to_map
from pipeline.spark.partition import tasks_of
from pipeline.spark.reader import read_rows
from pipeline.spark.schema import columns_of
from pipeline.spark.stream import Stream
from runtime.clock import SystemClock
from runtime.override import override

_StreamOffsets = dict[str, dict[str, int]]


class PlainStreamReader(Shipped, DataSourceStreamReader):
    """The part of all Spark versions: every micro-batch takes all that is there."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Take options and schema; nothing is checked or opened yet."""
        self._options, self._schema = dict(options), schema
        self._stream: Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what is open."""
        return {**self.__dict__, "_stream": None}

    @override
    @without_stack
    def initialOffset(self) -> _StreamOffsets:  # noqa: N802 - Spark's name
        return to_map(self._driver().initial())

    @without_stack
    def latestOffset(self) -> _StreamOffsets:  # type: ignore[override]  # noqa: N802
        """Before 4.2 there is no start and no limit."""
        return to_map(self._driver().latest(None, limited=False))

    @without_stack
    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[InputPartition]:
        """Also called with one offset twice, when a query continues."""
        found = self._driver().plan(from_map(start), from_map(end))
        if found is None:
            return []
        plan, source = found
        return tasks_of(plan.splits, source)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs on an executor."""
        return read_rows(partition, columns_of(self._schema, None))

    def stop(self) -> None:
        """It need not be called."""
        if self._stream is not None:
            self._stream.close()

    def _driver(self) -> Stream:
        if self._stream is None:
            options = stream_options(self._options)
            columns_of(self._schema, options.columns)
            self._check_version(options.rates)
            for warning in options.warnings:
                driver_log().warning("%s", warning)
            self._stream = Stream(options, open_log, SystemClock().monotonic_ms)
        return self._stream

    def _check_version(self, rates: Rates) -> None:
        if rates:
            raise OptionError(
                "options maxOffsetsPerTrigger and minOffsetsPerTrigger need PySpark 4.2 or newer"
                f" (admission control), here is {pyspark.__version__}: leave them out or upgrade"
            )
