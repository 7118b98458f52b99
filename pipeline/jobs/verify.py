"""Compares the rows of the source with those of a consumer, partition by partition."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pipeline.jobs.consume_task import ConsumeTask, bounds, consume_task
from pipeline.jobs.record_hash import Digest, digests_of_batches
from pipeline.jobs.spark_job import run_job
from pipeline.jobs.values import new_run_name
from pipeline.values import OffsetRange

Say = Callable[[str], None]
_RESULT = "partition int, rows long, total string"


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The options of a comparison.

    Attributes:
        client: properties of the consumer, `bootstrap.servers` among them. May hold secrets.
        source: more options of the source (`tidemark.bucket`, ...). May hold secrets.
        ranges: offsets by partition; None: all that there is when it begins.
    """

    topic: str
    client: Mapping[str, str] = field(repr=False)
    source: Mapping[str, str] = field(default_factory=dict, repr=False)
    ranges: Mapping[int, OffsetRange] | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One partition within fixed offsets (start inclusive, end exclusive)."""

    partition: int
    range: OffsetRange
    source: Digest
    consumer: Digest

    @property
    def is_equal(self) -> bool:
        """Whether both gave the same records."""
        return self.source == self.consumer


def verify(spark: Any, options: VerifyOptions, say: Say | None = None) -> list[Compared]:
    """Read the same offsets twice, by the source and by a consumer, and compare count and hash.

    Raises:
        ConsumerError: the consumer failed.
        JobFailedError: a task failed.
    """
    tell = say or (lambda _line: None)
    ranges = dict(options.ranges or bounds(options.topic, options.client))
    label = f"Tidemark verify of {options.topic}, {new_run_name()}"

    def watch(done: int, total: int) -> None:
        tell(f"consumer: {done} of {total} partitions")

    tasks = [
        ConsumeTask(options.topic, number, one, options.client) for number, one in ranges.items()
    ]
    consumed = dict(run_job(spark, f"{label}, consumer", tasks, consume_task, watch))
    tell("source: reading the same offsets")
    read = _digests_of_source(spark, options, ranges, f"{label}, source")
    return [
        Compared(number, one, read.get(number, Digest()), consumed[number])
        for number, one in sorted(ranges.items())
    ]


def _digests_of_source(
    spark: Any, options: VerifyOptions, ranges: Mapping[int, OffsetRange], label: str
) -> dict[int, Digest]:
    topic = options.topic
    starts = {topic: {str(number): one.start for number, one in ranges.items()}}
    ends = {topic: {str(number): one.end for number, one in ranges.items()}}
    given = {
        **{f"kafka.{name}": value for name, value in options.client.items()},
        **options.source,
        "subscribe": topic,
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
    }
    frame = spark.read.format("tidemark").options(**given).load()
    spark.sparkContext.setJobDescription(label)
    found: dict[int, Digest] = {}
    try:
        for row in frame.mapInArrow(_digest_rows, _RESULT).collect():
            found.setdefault(row.partition, Digest()).join(Digest(row.rows, int(row.total, 16)))
    finally:
        spark.sparkContext.setJobDescription(None)
    return found


def _digest_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = sorted(digests_of_batches(batches).items())
    yield pa.record_batch(
        {
            "partition": pa.array([number for number, _ in found], pa.int32()),
            "rows": pa.array([one.count for _, one in found], pa.int64()),
            "total": pa.array([f"{one.total:x}" for _, one in found], pa.string()),
        }
    )
