"""How much of a backlog one micro-batch takes, as Spark's Kafka source decides it.

Offsets: starts are inclusive, ends exclusive. Must not know: clocks, brokers, Spark.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Rates:
    """Bounds of a micro-batch, in offsets over all partitions.

    Attributes:
        least: wait until so many are there, but no longer than `delay_ms` after the last batch.
        most: take no more.
    """

    least: int | None = None
    most: int | None = None
    delay_ms: int = 15 * 60 * 1000

    def __bool__(self) -> bool:
        return self.least is not None or self.most is not None


def backlog(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Offsets between start and end, over all partitions that have a start."""
    return sum(max(0, end[one] - start[one]) for one in end if one in start)


def waits(rates: Rates, available: int, since_last_ms: float) -> bool:
    """Whether too little is there yet for a batch.

    Args:
        rates: the bounds.
        available: offsets of the backlog.
        since_last_ms: milliseconds since the last batch; infinite before the first.
    """
    if rates.least is None or since_last_ms >= rates.delay_ms:
        return False
    return available < rates.least


def take(
    most: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Ends that share `most` offsets among partitions in proportion to their backlogs.

    Every partition with a backlog gets at least one offset, so that small ones do not starve; a
    partition without a start, or one that starts behind its end, keeps its end.
    """
    sizes = {one: end[one] - start[one] for one in end if one in start and end[one] > start[one]}
    total = sum(sizes.values())
    taken = dict(end)
    for one, size in sizes.items():
        share = most * (size / total)
        whole = math.ceil(share) if share < 1 else math.floor(share)
        taken[one] = min(end[one], start[one] + whole)
    return taken
