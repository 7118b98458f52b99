"""A plan out of what is known of each partition."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.types import TopicPartition
from pipeline.errors import SKIP_LOST, DataLossError
from pipeline.plan.pieces import Found, Tiers, pieces_of
from pipeline.plan.splits import Sized, bytes_of, cut_into_splits, sized
from pipeline.values import (
    OffsetRange,
    Piece,
    Plan,
    PlanFacts,
    RemotePiece,
    SplitLimits,
)


@dataclass(frozen=True, slots=True)
class Known:
    """The facts from which a partition's plan is made.

    Attributes:
        end: of the log (exclusive).
        aborted: all that may overlap remote pieces of the range.
        segments_known: live segments at or above the log start.
    """

    tiers: Tiers
    end: int
    aborted: Sequence[AbortedTransaction] = ()
    segments_known: int = 0


@dataclass(slots=True)
class _Sums:
    """The facts, while they are added up."""

    segments_read: set[bytes] = field(default_factory=set)
    segments_skipped: set[bytes] = field(default_factory=set)
    bytes_read: float = 0.0
    bytes_skipped: float = 0.0
    tail_offsets: int = 0
    lost: list[tuple[TopicPartition, OffsetRange]] = field(default_factory=list)

    def take(self, pieces: Iterable[Sized]) -> None:
        for piece, size in pieces:
            if isinstance(piece, RemotePiece):
                self.segments_read.add(piece.segment.id.id)
                self.bytes_read += size
            else:
                self.tail_offsets += piece.last - piece.first + 1

    def skip(self, piece: RemotePiece) -> None:
        self.segments_skipped.add(piece.segment.id.id)
        self.bytes_skipped += bytes_of(piece)


def make_plan(
    known: Mapping[TopicPartition, Known],
    ranges: Mapping[TopicPartition, OffsetRange],
    limits: SplitLimits,
    *,
    fail_on_data_loss: bool,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Plan:
    """Cut ranges into splits, partition by partition.

    Raises:
        DataLossError: some offsets are not there, and `fail_on_data_loss`.
    """
    sums = _Sums()
    kept: dict[TopicPartition, list[Sized]] = {}
    for partition in sorted(ranges):
        one = known[partition]
        found = _within(one, ranges[partition])
        sums.lost += [(partition, lost) for lost in found.lost]
        pieces = _needed(found.pieces, limits.timestamp_from_ms, sums)
        kept[partition] = sized(pieces)
        sums.take(kept[partition])
    if sums.lost and fail_on_data_loss:
        raise DataLossError(_lost_text(sums.lost, known))
    lost = [f"{partition}: {_text(lost)} are lost" for partition, lost in sums.lost[:10]]
    segments_known = sum(known[partition].segments_known for partition in ranges)
    facts = PlanFacts(
        segments_known=segments_known,
        segments_read=len(sums.segments_read),
        segments_skipped=segments_known - len(sums.segments_read),
        bytes_read=round(sums.bytes_read),
        bytes_skipped=round(sums.bytes_skipped),
        tail_offsets=sums.tail_offsets,
        lost_offsets=sum(lost.end - lost.start for _, lost in sums.lost),
        notes=tuple(notes),
        warnings=(*warnings, *lost),
    )
    aborted = {partition: known[partition].aborted for partition in ranges}
    return Plan(tuple(cut_into_splits(kept, limits, aborted)), facts)


def _within(known: Known, wanted: OffsetRange) -> Found:
    """The pieces of a range; what lies at or above the log's end is lost."""
    end = min(wanted.end, max(known.end, wanted.start))
    found = pieces_of(known.tiers, OffsetRange(wanted.start, end))
    found.lose(end, wanted.end)
    return found


def _needed(pieces: Sequence[Piece], timestamp_from_ms: int | None, sums: _Sums) -> Sequence[Piece]:
    """The pieces that may hold a record at or after that time."""
    if timestamp_from_ms is None:
        return pieces
    kept: list[Piece] = []
    for piece in pieces:
        is_older = (
            isinstance(piece, RemotePiece)
            and 0 <= piece.segment.max_timestamp_ms < timestamp_from_ms
        )
        if isinstance(piece, RemotePiece) and is_older:
            sums.skip(piece)
        else:
            kept.append(piece)
    return kept


def _text(lost: OffsetRange) -> str:
    return f"offsets {lost.start:,} to {lost.end - 1:,}"


def _lost_text(
    lost: Sequence[tuple[TopicPartition, OffsetRange]], known: Mapping[TopicPartition, Known]
) -> str:
    partition, first = lost[0]
    one = known[partition]
    where = (
        "are below the log start"
        if first.end <= one.tiers.log_start
        else "are at or above the log's end"
        if first.start >= one.end
        else "are in neither tier"
    )
    more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
    return (
        f"{partition}: {_text(first)} {where}{more}; the log starts at {one.tiers.log_start:,} and"
        f" ends before {one.end:,}; read what is there, or skip what is lost: {SKIP_LOST}"
    )
