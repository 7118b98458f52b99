"""What a frame of the source holds, as what a consumer got is told: count and hash a partition."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_protocol.types import TopicPartition
from tests.support.lake.rows import Digest, Row, digests, row_of_mapping, rows_of_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = "topic string, partition int, count bigint, total string"


def source_frame(spark: "SparkSession", **options: str) -> "DataFrame":
    """A batch frame of our source with headers; options have `_` for `.`."""
    named = {key.replace("_", "."): value for key, value in options.items()}
    return spark.read.format("tidemark").options(includeHeaders="true", **named).load()


def frame_rows(frame: "DataFrame") -> list[Row]:
    """All rows, sorted; for small frames."""
    return sorted(row_of_mapping(found) for found in frame.toArrow().to_pylist())


def frame_digests(frame: "DataFrame") -> dict[TopicPartition, Digest]:
    """Count and hash of each partition, made where the rows are."""
    found: dict[TopicPartition, Digest] = {}
    for topic, partition, count, total in frame.mapInArrow(_summed, _COLUMNS).collect():
        place = TopicPartition(topic, partition)
        found[place] = found.get(place, Digest()).plus(Digest(count, int(total)))
    return dict(sorted(found.items()))


def _summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for place, found in digests(rows_of_arrow(batches)).items():
        yield pa.record_batch(
            {
                "topic": pa.array([place.topic]),
                "partition": pa.array([place.partition], pa.int32()),
                "count": pa.array([found.count], pa.int64()),
                "total": pa.array([str(found.total)]),  # above what a bigint holds
            }
        )
