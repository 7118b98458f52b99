"""Which pieces hold a range of offsets of one partition: remote ones, and the brokers' tail.

Offsets at or above the local log start that no live run serves are the brokers'. Those below the
log start, or in neither tier, are lost.

Readers of committed records: whether a transaction that is open at the end of a stretch of runs is
aborted stands in no index there. From its first offset on, the brokers are asked: they know, and
serve remote offsets, too. Without brokers these offsets are lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_protocol.types import TopicIdPartition
from pipeline.plan.live import OFFSET_MAX, LiveRun
from pipeline.values import OffsetRange, Piece, RemotePiece, TailPiece


@dataclass(frozen=True, slots=True)
class Tiers:
    """A partition as it was when the plan was made.

    Attributes:
        runs: live runs, ascending: whole stretches, all that touch the range.
        log_start: first offset that may be read (inclusive).
        local_start: brokers hold what is at or above it; None: there are no brokers.
        undecided: end (exclusive) of a stretch to the lowest first offset of a transaction that is
            open there.
        leader: host and port; a hint for those that read the brokers' part.
    """

    partition: TopicIdPartition
    runs: Sequence[LiveRun]
    log_start: int
    local_start: int | None
    undecided: Mapping[int, int] = field(default_factory=dict)
    leader: tuple[str, int] | None = None


@dataclass(slots=True)
class Found:
    """Pieces of a range, and the stretches that are in neither tier; both ascending."""

    pieces: list[Piece] = field(default_factory=list)
    lost: list[OffsetRange] = field(default_factory=list)

    def give_to_brokers(self, tiers: Tiers, first: int, last: int) -> None:
        """Offsets `[first, last]`, joined with the brokers' before them."""
        before = self.pieces[-1] if self.pieces else None
        if isinstance(before, TailPiece) and before.last + 1 == first:
            first = self.pieces.pop().first
        self.pieces.append(TailPiece(tiers.partition, first, last, tiers.leader))

    def lose(self, start: int, end: int) -> None:
        """Offsets `[start, end)`, if there are any."""
        if start < end:
            self.lost.append(OffsetRange(start, end))


def stretches(runs: Iterable[LiveRun]) -> list[list[LiveRun]]:
    """The runs, in groups without a hole."""
    found: list[list[LiveRun]] = []
    for run in runs:
        if found and found[-1][-1].last + 1 == run.first:
            found[-1].append(run)
        else:
            found.append([run])
    return found


def pieces_of(tiers: Tiers, wanted: OffsetRange) -> Found:
    """Say what holds the offsets of `wanted`, each in exactly one piece or lost stretch."""
    found = Found()
    at = max(wanted.start, tiers.log_start)
    found.lose(wanted.start, min(at, wanted.end))
    for stretch in stretches(tiers.runs):
        open_from = tiers.undecided.get(stretch[-1].last + 1, OFFSET_MAX)
        for run in stretch:
            if run.last < at or run.first >= wanted.end:
                continue
            if at < run.first:
                _fill_gap(tiers, at, run.first, found)
            first, last = max(run.first, at), min(run.last, wanted.end - 1)
            decided_last = min(last, open_from - 1)
            if first <= decided_last:
                size = run.segment.segment_size_bytes
                found.pieces.append(RemotePiece(run.segment, first, decided_last, 0, size))
            if decided_last < last:
                undecided = max(first, decided_last + 1)
                if tiers.local_start is None:  # it is unknown which are aborted
                    found.lose(undecided, last + 1)
                else:
                    found.give_to_brokers(tiers, undecided, last)
            at = last + 1
    if at < wanted.end:
        _fill_gap(tiers, at, wanted.end, found)
    return found


def _fill_gap(tiers: Tiers, start: int, end: int, found: Found) -> None:
    """Say what becomes of offsets `[start, end)`, which are in no segment."""
    local = end if tiers.local_start is None else min(max(tiers.local_start, start), end)
    found.lose(start, local)
    if local < end:
        found.give_to_brokers(tiers, local, end - 1)
