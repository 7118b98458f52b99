"""Where a query starts and ends, as options say it.

Offsets: a start is inclusive, an end is exclusive; -2 is the earliest, -1 the latest. Must not
know: what a log holds; Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from kafka_protocol.types import TopicPartition
from pipeline.errors import OptionError
from pipeline.spark.options_values import one_of, partition_numbers, whole_number

LATEST: Final = -1
EARLIEST: Final = -2


class Everywhere(IntEnum):
    """The same for all partitions."""

    LATEST = LATEST
    EARLIEST = EARLIEST


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; may be LATEST or EARLIEST."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """A time for each partition: the first offset whose record is not earlier.

    Attributes:
        times_ms: by partition; None: `time_ms` for all.
        or_latest: where nothing is that late, the latest offset is meant; else that is an error.
    """

    times_ms: Mapping[TopicPartition, int] | None
    time_ms: int = 0
    or_latest: bool = field(default=False)


Bound = Everywhere | AtOffsets | AtTimes


def starting(options: Mapping[str, str], default: Everywhere) -> Bound:
    """Where a query starts.

    Raises:
        OptionError: a value cannot be read.
    """
    or_latest: bool = one_of(
        "startingOffsetsByTimestampStrategy",
        options.get("startingOffsetsByTimestampStrategy", "error"),
        {"error": False, "latest": True},
    )
    return _bound("starting", options, default, or_latest=or_latest)


def ending(options: Mapping[str, str]) -> Bound:
    """Where a batch ends; times that nothing reaches mean the latest offset."""
    return _bound("ending", options, Everywhere.LATEST, or_latest=True)


def check_batch(start: Bound, end: Bound) -> None:
    """Refuse bounds that no batch can have.

    Raises:
        OptionError: the start is the latest offset, the end the earliest, they name different
            partitions, or one starts behind its end.
    """
    if start is Everywhere.LATEST:
        raise OptionError("option startingOffsets=latest: a batch cannot start there")
    if end is Everywhere.EARLIEST:
        raise OptionError("option endingOffsets=earliest: a batch cannot end there")
    for bound, wrong, verb in ((start, LATEST, "start"), (end, EARLIEST, "end")):
        if isinstance(bound, AtOffsets):
            for partition, offset in bound.offsets.items():
                if offset == wrong:
                    raise OptionError(
                        f"option {verb}ingOffsets: {partition} cannot {verb} at"
                        f" {Everywhere(wrong).name.lower()} ({wrong}) in a batch"
                    )
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _check_pair(start.offsets, end.offsets, "Offsets")
    if isinstance(start, AtTimes) and isinstance(end, AtTimes):
        if start.times_ms is not None and end.times_ms is not None:
            _check_pair(start.times_ms, end.times_ms, "OffsetsByTimestamp")
        elif start.times_ms is None and end.times_ms is None and start.time_ms > end.time_ms:
            raise OptionError(
                f"option startingTimestamp={start.time_ms}: is after endingTimestamp={end.time_ms}"
            )


def partitions_mismatch(
    asked: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int] | set[TopicPartition]
) -> str:
    """How two sets of partitions differ, in a few words; empty if they do not."""
    missing = sorted(set(found) - set(asked))
    extra = sorted(set(asked) - set(found))
    said = [
        f"{word} {', '.join(str(one) for one in some[:5])}"
        + (f" and {len(some) - 5} more" if len(some) > 5 else "")
        for word, some in (("missing", missing), ("not there:", extra))
        if some
    ]
    return "; ".join(said)


def _bound(side: str, options: Mapping[str, str], default: Everywhere, *, or_latest: bool) -> Bound:
    timestamp = f"{side}Timestamp"
    if timestamp in options:
        time_ms = whole_number(timestamp, options[timestamp], 0)
        return AtTimes(None, time_ms, or_latest)
    by_timestamp = f"{side}OffsetsByTimestamp"
    if by_timestamp in options:
        times_ms = partition_numbers(by_timestamp, options[by_timestamp], 0)
        return AtTimes(times_ms, 0, or_latest)
    name = f"{side}Offsets"
    text = options.get(name)
    if text is None:
        return default
    found = {"latest": Everywhere.LATEST, "earliest": Everywhere.EARLIEST}.get(text.strip().lower())
    return AtOffsets(partition_numbers(name, text, EARLIEST)) if found is None else found


def _check_pair(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], name: str
) -> None:
    mismatch = partitions_mismatch(end, set(start))
    if mismatch:
        raise OptionError(f"option ending{name}: differs from starting{name}: {mismatch}")
    for partition, first in start.items():
        last = end[partition]
        if 0 <= last < first:
            raise OptionError(
                f"option starting{name}: {partition} starts at {first}, behind its end {last}"
            )
