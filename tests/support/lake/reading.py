"""Reads a log through the pipeline as Spark's source does, but in this process: plan, then read."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

import pyarrow as pa

from kafka_protocol.types import TopicPartition
from pipeline.columns import TYPES
from pipeline.log import TieredLog
from pipeline.opening import open_log
from pipeline.read.split import read_split
from pipeline.values import Isolation, OffsetRange, Plan, SplitLimits, Where
from tests.support.lake.bucket import Bucket
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


def where_alone(bucket: Bucket, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> Where:
    """A bucket without its brokers; where logs start is told, for the store does not know it."""
    starts = {each.id.topic_partition: each.log_start for each in bucket.partitions}
    return Where(store=bucket.address, isolation=isolation, log_starts=starts)


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


def check_rows(bucket: Bucket, limits: SplitLimits = WHOLE) -> None:
    """All topics of a bucket alone give the rows that are expected, for both isolations."""
    topics = {each.id.topic for each in bucket.partitions}
    for isolation in Isolation:
        rows = rows_of_log(where_alone(bucket, isolation), *topics, limits=limits)
        assert sorted(rows) == sorted(bucket.rows(isolation, alone=True))
