"""What a reader of committed records must know: aborted and open transactions of segments."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_protocol.files.txn_index import AbortedTransaction
from pipeline.plan.live import LiveRun
from pipeline.plan.pieces import stretches
from pipeline.truth.indexes import SegmentIndexes
from pipeline.values import OffsetRange


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
    for stretch in stretches(runs):
        if stretch[-1].last < wanted.start or stretch[0].first >= wanted.end:
            continue
        after = [run for run in stretch if run.last >= wanted.start]
        found.aborted.extend(indexes.aborted(after, wanted.end))
        open_from = open_from_of(indexes, stretch)
        if open_from is not None:
            found.undecided[stretch[-1].last + 1] = open_from
    return found


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
