"""The batch reader: plans on the driver, reads splits on executors.

A reader holds options and columns only, so it can be sent anywhere; the log is opened and closed
within `partitions`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.errors import DataLossError, without_stack
from pipeline.opening import open_log
from pipeline.shipping import Shipped
from pipeline.spark.driver_log import driver_log, log_plan
from pipeline.spark.filters import RowBounds, bounds_of, prune
from pipeline.spark.options import ReadOptions
from pipeline.spark.options_bounds import AtOffsets
from pipeline.spark.partition import SplitPartition, tasks_of
from pipeline.spark.ranges import batch_ranges, loss_sentence, resolve
from pipeline.spark.topics import find_all
from pipeline.values import Plan


def read_rows(partition: InputPartition, columns: Sequence[str]) -> Iterator[Any]:
    """RecordBatches of one task; none where Spark makes a task out of no partition at all."""
    if isinstance(partition, SplitPartition):
        from pipeline.read.split import read_split

        yield from read_split(partition.split, partition.source, columns)


class BatchReader(Shipped, DataSourceReader):
    """Reads what is there now, once."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        """Take options and columns; nothing is opened yet."""
        self._options, self._columns = options, tuple(columns)
        self._wanted = RowBounds()

    @without_stack
    def partitions(self) -> list[InputPartition]:
        """Runs on the driver, once a query.

        Raises:
            PipelineError: the log cannot be read as asked.
        """
        log = driver_log()
        for warning in self._options.warnings:
            log.warning("%s", warning)
        with closing(open_log(self._options.where)) as tiered:
            plan, source = self._plan(tiered), tiered.source
        log_plan("batch", len(plan.splits), plan.facts)
        return tasks_of(plan.splits, source)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs on an executor."""
        return read_rows(partition, self._columns)

    def _plan(self, tiered: Any) -> Plan:
        options = self._options
        partitions = find_all(tiered, options.topics)
        start = resolve(tiered, options.starting, partitions, "starting")
        end = resolve(tiered, options.ending, partitions, "ending")
        ranges, losses = batch_ranges(
            start, end, start_is_named=isinstance(options.starting, AtOffsets)
        )
        if losses and options.where.fail_on_data_loss:
            raise DataLossError(loss_sentence(losses))
        for loss in losses:
            driver_log().warning("batch: %s; skipped (failOnDataLoss=false)", loss)
        limits = replace(options.limits, timestamp_from_ms=self._wanted.time_from_ms)
        plan: Plan = tiered.plan(prune(ranges, self._wanted), limits)
        return plan


class FilteringBatchReader(BatchReader):
    """The same, for `pushFilters=true`.

    A class of its own: Spark fails a query whose reader has `pushFilters` while its own switch
    `spark.sql.python.filterPushdown.enabled` is off.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Note what can be pruned; Spark applies all filters again."""
        self._wanted = bounds_of(filters)
        yield from filters
