"""From what a user says to offsets, and from offsets to what is to be read.

Offsets: starts are inclusive, ends exclusive. Must not know: Arrow, Spark, segments.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_protocol.types import TopicPartition
from pipeline.errors import OptionError
from pipeline.log import TieredLog
from pipeline.spark.options_bounds import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimes,
    Bound,
    Everywhere,
    partitions_mismatch,
)
from pipeline.values import OffsetRange

Offsets = dict[TopicPartition, int]
_WAY_OUT: Final = "failOnDataLoss=false continues without them"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A bound as offsets.

    Attributes:
        floating: partitions whose offset was the latest at the moment of asking: asked again, it
            may be another one.
    """

    offsets: Offsets
    floating: frozenset[TopicPartition] = frozenset()


def resolve(
    log: TieredLog, bound: Bound, partitions: Iterable[TopicPartition], side: str
) -> Resolved:
    """Ask for the offsets that a bound means.

    Args:
        log: is asked.
        bound: what the user says.
        partitions: of the query.
        side: `starting` or `ending`, for messages.

    Raises:
        OptionError: the bound names other partitions than these, or a time that none has reached.
    """
    wanted = list(partitions)
    match bound:
        case Everywhere.EARLIEST:
            return Resolved(log.earliest(wanted))
        case Everywhere.LATEST:
            return Resolved(log.latest(wanted), frozenset(wanted))
        case AtOffsets(offsets):
            _check_same(f"{side}Offsets", offsets, wanted)
            return _fill(log, dict(offsets))
        case AtTimes(times_ms, time_ms, or_latest):
            if times_ms is None:
                times_ms = dict.fromkeys(wanted, time_ms)
            else:
                _check_same(f"{side}OffsetsByTimestamp", times_ms, wanted)
            found = log.offsets_at(times_ms)
            late = sorted(one for one, offset in found.items() if offset is None)
            if late and not or_latest:
                raise OptionError(
                    f"no record of {late[0]} is at {times_ms[late[0]]} ms or later;"
                    f" {side}OffsetsByTimestampStrategy=latest {side.removesuffix('ing')}s at the"
                    " latest offset there"
                )
            return _fill(log, {one: LATEST if at is None else at for one, at in found.items()})
    raise AssertionError(bound)


def batch_ranges(
    start: Resolved, end: Resolved, *, start_is_named: bool
) -> tuple[dict[TopicPartition, OffsetRange], list[str]]:
    """The offsets that a batch reads, and the wanted ones that cannot be there.

    Args:
        start: of all partitions.
        end: of the same partitions.
        start_is_named: the user named offsets; one behind the end is then a loss, else nothing.
    """
    ranges, losses = {}, []
    for one, first in sorted(start.offsets.items()):
        last = end.offsets[one]
        if first < last:
            ranges[one] = OffsetRange(first, last)
        elif first > last and start_is_named:
            losses.append(f"{one} ends at offset {last}, before {first} where it is to start")
    return ranges, losses


def stream_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest_of_new: Mapping[TopicPartition, int],
) -> tuple[dict[TopicPartition, OffsetRange], list[str]]:
    """The offsets that a micro-batch reads, and those lost between the last one and its end.

    Args:
        start: end of the last micro-batch.
        end: of this one.
        earliest_of_new: log start of each partition that has an end but no start.
    """
    losses = [f"{one} is gone" for one in sorted(set(start) - set(end))]
    ranges = {}
    for one, last in sorted(end.items()):
        first = start.get(one)
        if first is None:
            first = earliest_of_new[one]
            if first > 0:
                losses.append(f"new partition {one} starts at offset {first} instead of 0")
        if last < first:
            losses.append(f"{one} went back from offset {first} to {last}; was it made again?")
        elif first < last:
            ranges[one] = OffsetRange(first, last)
    return ranges, losses


def loss_sentence(losses: list[str]) -> str:
    """One line of an error for all losses."""
    more = f" (and {len(losses) - 3} more)" if len(losses) > 3 else ""
    return f"records may be lost: {'; '.join(losses[:3])}{more}; {_WAY_OUT}"


def _check_same(
    name: str, asked: Mapping[TopicPartition, int], wanted: list[TopicPartition]
) -> None:
    mismatch = partitions_mismatch(asked, set(wanted))
    if mismatch:
        is_offsets = name.endswith("Offsets")
        special = f" ({LATEST}: latest, {EARLIEST}: earliest)" if is_offsets else ""
        raise OptionError(
            f"option {name} must name all partitions and no other{special}: {mismatch}"
        )


def _fill(log: TieredLog, offsets: Offsets) -> Resolved:
    latest = [one for one, offset in offsets.items() if offset == LATEST]
    earliest = [one for one, offset in offsets.items() if offset == EARLIEST]
    offsets |= log.latest(latest) if latest else {}
    offsets |= log.earliest(earliest) if earliest else {}
    return Resolved(offsets, frozenset(latest))
