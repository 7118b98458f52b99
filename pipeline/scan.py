"""The reader for whoever has no Spark: a topic as Arrow record batches, in one process.

    reader = scan("orders", bucket="s3://logs/kafka", columns=["offset", "value"])
    polars.from_arrow(reader)

Partitions come one after the other, each in the order of its offsets. Memory is bounded, whatever
the topic's size; one thread reads ahead.
"""

import logging
import os
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Unpack

import pyarrow as pa

from kafka_protocol.types import TopicPartition
from pipeline.columns import DEFAULT_COLUMNS, schema_of
from pipeline.errors import OptionError, items_without_stack, without_stack
from pipeline.opening import open_log
from pipeline.read.lost import LostOffsets
from pipeline.read.split import BATCH_BYTES, read_split
from pipeline.scan_options import ScanOptions, checked, where_of
from pipeline.scan_range import EARLIEST, LATEST, Places, offset_ranges
from pipeline.values import (
    Plan,
    Source,
    SplitLimits,
    Where,
)

log = logging.getLogger(__name__)

_WHOLE = SplitLimits(target_bytes=1 << 62)
"""One process reads in order: cutting gains nothing."""


@dataclass(slots=True)
class Scan:
    """A scan that is planned; nothing is read yet.

    Attributes:
        lost: filled while batches are read.
    """

    plan: Plan
    source: Source
    columns: tuple[str, ...]
    batch_bytes: int
    lost: LostOffsets = field(default_factory=LostOffsets)

    @property
    def schema(self) -> pa.Schema:
        """Of every batch."""
        return schema_of(self.columns)

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Read. Closing the generator early ends its thread.

        Raises:
            PipelineError, ClusterError: as `pipeline.read.split.read_split`.
        """
        for split in self.plan.splits:
            batches = read_split(
                split, self.source, self.columns, batch_bytes=self.batch_bytes, lost=self.lost
            )
            with closing(batches):
                yield from batches


@without_stack
def scan(
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    bucket: str | os.PathLike[str] | None = None,
    start: Places = EARLIEST,
    end: Places = LATEST,
    columns: Sequence[str] | None = None,
    **options: Unpack[ScanOptions],
) -> pa.RecordBatchReader:
    """Read a topic as Arrow.

    The reader ends its thread when it is used up or dropped.

    Args:
        topic: its name.
        bootstrap_servers: of the cluster; without `bucket` it is asked where the store is.
        bucket: URL or directory of the store; alone, no broker is needed, and the range is what
            the store holds.
        start: first offset (inclusive), `earliest`, `latest`, a datetime, or one by partition.
        end: behind the last offset (exclusive), or as `start`.
        columns: those to build, in this order; default: all but `headers`.
        options: see `ScanOptions`.

    Raises:
        OptionError: an option is wrong.
        PipelineError, ClusterError: the log cannot be opened or planned; the reader raises what
            reading meets.
    """
    planned = plan_scan(
        topic,
        where_of(bootstrap_servers, None if bucket is None else os.fspath(bucket), topic, options),
        (start, end),
        columns,
        options,
    )
    return pa.RecordBatchReader.from_batches(planned.schema, items_without_stack(planned.batches()))


def plan_scan(
    topic: str,
    where: Where,
    span: tuple[Places, Places],
    columns: Sequence[str] | None,
    options: ScanOptions,
) -> Scan:
    """Ask the log what is to be read.

    Args:
        topic: its name.
        where: the log.
        span: start and end, see `scan`.
        columns: None: the default ones.
        options: `partitions` and `batch_bytes` of them.

    Raises:
        OptionError, PipelineError, ClusterError: see `scan`.
    """
    options = checked(options)
    if columns is not None and (isinstance(columns, str) or not columns):
        raise OptionError(f"columns={columns!r}: give a list of one or more names")
    names = tuple(DEFAULT_COLUMNS if columns is None else columns)
    schema_of(names)
    opened = open_log(where)
    with closing(opened):
        partitions = _chosen(opened.partitions([topic]), options.get("partitions"))
        plan = opened.plan(offset_ranges(opened, partitions, *span), _WHOLE)
        source = opened.source
    for note in plan.facts.notes:
        log.info("%s: %s", topic, note)
    for warning in plan.facts.warnings:
        log.warning("%s: %s", topic, warning)
    lost = LostOffsets()
    if plan.facts.lost_offsets:
        lost.add(plan.facts.lost_offsets, f"{topic}: in no tier when the plan was made")
    return Scan(plan, source, names, options.get("batch_bytes", BATCH_BYTES), lost)


def _chosen(
    partitions: list[TopicPartition], numbers: Sequence[int] | None
) -> list[TopicPartition]:
    if numbers is None:
        return partitions
    if isinstance(numbers, int):
        raise OptionError(f"partitions={numbers}: give a list of numbers")
    known = {each.partition for each in partitions}
    for number in numbers:
        if number not in known:
            raise OptionError(f"there is no partition {number!r}: there are {len(known)}")
    return [each for each in partitions if each.partition in set(numbers)]
