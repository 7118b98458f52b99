"""Facts for a reader of committed records: aborted and open transactions of segments."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.types import TopicPartition
from pipeline.plan.live import LiveRun
from pipeline.plan.pieces import stretches
from pipeline.truth.indexes import SegmentIndexes
from pipeline.values import Isolation, OffsetRange


@dataclass(frozen=True, slots=True)
class Transactions:
    """Of one partition and one range.

    Attributes:
        aborted: each once.
        undecided: see `pipeline.plan.pieces.Tiers`.
    """

    aborted: list[AbortedTransaction] = field(default_factory=list)
    undecided: dict[int, int] = field(default_factory=dict)


def transactions_of(
    indexes: SegmentIndexes, runs: Sequence[LiveRun], wanted: OffsetRange
) -> Transactions:
    """Read what stands in the indexes of these runs.

    Args:
        indexes: reads them.
        runs: live ones, ascending, whole stretches.
        wanted: the offsets to be read.

    Raises:
        DataLossError, DamagedDataError, StoreUnreachableError: an index cannot be read.
    """
    found = Transactions()
    for stretch in stretches_in(runs, wanted):
        after = [run for run in stretch if run.last >= wanted.start]
        found.aborted.extend(indexes.aborted(after, wanted.end))
        open_from = open_from_of(indexes, stretch)
        if open_from is not None:
            found.undecided[stretch[-1].last + 1] = open_from
    return found


def transactions_of_each(
    indexes: SegmentIndexes,
    runs_of: Mapping[TopicPartition, Sequence[LiveRun]],
    wanted: Mapping[TopicPartition, OffsetRange],
    isolation: Isolation,
) -> Mapping[TopicPartition, Transactions]:
    """`transactions_of` for partitions; nothing is read where all records are wanted."""
    if isolation is Isolation.READ_UNCOMMITTED:
        return dict.fromkeys(runs_of, Transactions())
    bring_open_from(
        indexes,
        (stretch for one, runs in runs_of.items() for stretch in stretches_in(runs, wanted[one])),
    )
    return {one: transactions_of(indexes, runs, wanted[one]) for one, runs in runs_of.items()}


def stretches_in(runs: Sequence[LiveRun], wanted: OffsetRange) -> list[Sequence[LiveRun]]:
    """The stretches that hold some of these offsets."""
    return [
        one for one in stretches(runs) if one[-1].last >= wanted.start and one[0].first < wanted.end
    ]


def bring_open_from(indexes: SegmentIndexes, of: Iterable[Sequence[LiveRun]]) -> None:
    """Read side by side the snapshots that `open_from_of` will ask for first.

    Args:
        indexes: reads them, and remembers.
        of: stretches, of any number of partitions.

    Raises:
        DataLossError, DamagedDataError, StoreUnreachableError: a snapshot cannot be read.
    """
    ends = [stretch[-1] for stretch in of]
    indexes.bring_open_from([run.segment for run in ends if run.last == run.segment.end_offset])


def open_from_of(indexes: SegmentIndexes, stretch: Sequence[LiveRun]) -> int | None:
    """The offset from which on a stretch says nothing certain of transactions; None: all is.

    A producer snapshot is of its segment's end: where the stretch ends within a segment (the rest
    of it is not on the chain), an earlier one counts.
    """
    for run in reversed(stretch):
        if run.last == run.segment.end_offset:
            lowest = indexes.open_from(run.segment)
            if run is stretch[-1]:
                return lowest
            return min(run.last + 1, run.last + 1 if lowest is None else lowest)
    return stretch[0].first
