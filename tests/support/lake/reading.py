"""Reads a log through the pipeline as Spark's source does, but in this process: plan, then read."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

import pyarrow as pa

from kafka_protocol.types import TopicPartition
from pipeline.columns import TYPES
from pipeline.log import TieredLog
from pipeline.opening import open_log
from pipeline.read.split import read_split
from pipeline.values import OffsetRange, Plan, SplitLimits, Where
from tests.support.lake.rows import Row, rows_of_arrow

Ranges = Mapping[TopicPartition, OffsetRange]
WHOLE = SplitLimits()


def whole_ranges(log: TieredLog, topics: Iterable[str]) -> dict[TopicPartition, OffsetRange]:
    """All that is there now of these topics."""
    partitions = log.partitions(topics)
    starts, ends = log.earliest(partitions), log.latest(partitions)
    return {one: OffsetRange(starts[one], ends[one]) for one in partitions}


def batches_of_plan(log: TieredLog, plan: Plan) -> Iterator[pa.RecordBatch]:
    """Every split's batches; rows of a split must ascend, and splits must not overlap."""
    last: dict[TopicPartition, int] = {}
    for split in plan.splits:
        for batch in read_split(split, log.source, tuple(TYPES)):
            offsets = batch.column("offset").to_pylist()
            for offset in offsets:
                known = last.get(split.partition, -1)
                assert offset > known, f"{split.partition}: offset {offset} after {known}"
                last[split.partition] = offset
            yield batch


def rows_of_log(
    where: Where,
    *topics: str,
    ranges: Ranges | None = None,
    limits: SplitLimits = WHOLE,
) -> list[Row]:
    """All rows of these topics, or of the ranges alone."""
    with closing(open_log(where)) as log:
        plan = log.plan(ranges or whole_ranges(log, topics), limits)
        return list(rows_of_arrow(batches_of_plan(log, plan)))
