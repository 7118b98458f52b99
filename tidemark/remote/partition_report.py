"""The report of one partition's tiers: segments, sums, and what is wrong, in words. Pure.

Problems are said of what clients can reach, from the log start on, and of segments in
COPY_SEGMENT_FINISHED: copies and deletions under way are not wrong.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafka_protocol.types import EpochEntry
from pipeline.cluster.cluster import PartitionOffsets
from rlmm.lineage import Placement, parts_on_chain, placement
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from tidemark.remote.axis import Stretch, joined


@dataclass(frozen=True, slots=True)
class Problem:
    """Something an operator should look at.

    Attributes:
        kind: `gap`, `overlap` or `off-chain`.
        text: one sentence.
        first, last: the offsets it is about, both inclusive.
    """

    kind: str
    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition, seen from outside.

    Attributes:
        offsets: None where the partition has no leader now.
        segments: live ones in every state, ascending by start offset.
        remote, local: the offsets that each tier can serve.
        placements: where on the leader's epoch chain each FINISHED segment lies, by segment id.
    """

    partition: int
    offsets: PartitionOffsets | None
    segments: Sequence[RemoteLogSegmentMetadata]
    remote: Sequence[Stretch]
    local: Sequence[Stretch]
    placements: dict[bytes, Placement]
    problems: Sequence[Problem]

    @property
    def axis(self) -> Stretch:
        """The offsets that a drawing must show."""
        if self.offsets is not None:
            return Stretch(self.offsets.log_start, self.offsets.log_end)
        if not self.remote:
            return Stretch(0, 0)
        return Stretch(self.remote[0].first, self.remote[-1].end)

    @property
    def finished_count(self) -> int:
        """Segments in COPY_SEGMENT_FINISHED."""
        return len(self.placements)

    @property
    def finished_bytes(self) -> int:
        """Bytes of their logs."""
        return sum(one.segment_size_bytes for one in self.segments if one.id.id in self.placements)


def report(
    partition: int,
    offsets: PartitionOffsets | None,
    segments: Iterable[RemoteLogSegmentMetadata],
    chain: Sequence[EpochEntry] | None,
) -> PartitionReport:
    """Put together what is known of a partition.

    Args:
        partition: its number.
        offsets: what the leader says; None: it has no leader.
        segments: live ones, in every state.
        chain: the leader's epochs; None: unknown, then every segment passes for one on the chain.
    """
    ordered = sorted(segments, key=lambda one: (one.start_offset, one.id.id))
    finished = [one for one in ordered if one.state is SegmentState.COPY_SEGMENT_FINISHED]
    known_end = max((one.end_offset + 1 for one in finished), default=0)
    log_end = known_end if offsets is None else offsets.log_end
    placements, pieces = {}, []
    for one in finished:
        if chain is None:
            placements[one.id.id] = Placement.ON_CHAIN
            pieces.append(Stretch(one.start_offset, one.end_offset + 1))
            continue
        placements[one.id.id] = placement(one, chain, log_end)
        pieces += [Stretch(p.first, p.last + 1) for p in parts_on_chain(one, chain, log_end)]
    log_start = 0 if offsets is None else offsets.log_start
    remote = [
        Stretch(max(one.first, log_start), one.end) for one in joined(pieces) if one.end > log_start
    ]
    local = [] if offsets is None else joined([Stretch(offsets.local_log_start, offsets.log_end)])
    problems = [
        *_gaps(offsets, remote, local),
        *_overlaps([one for one in finished if one.end_offset >= log_start], placements),
        *_off_chain(finished, placements),
    ]
    return PartitionReport(partition, offsets, ordered, remote, local, placements, problems)


def _gaps(
    offsets: PartitionOffsets | None, remote: Sequence[Stretch], local: Sequence[Stretch]
) -> Iterable[Problem]:
    if offsets is None:
        return
    at = offsets.log_start
    for one in [*joined([*remote, *local]), Stretch(offsets.log_end, offsets.log_end)]:
        if one.first > at:
            text = f"gap: offsets {at:,} to {one.first - 1:,} are in neither tier"
            yield Problem("gap", text, at, one.first - 1)
        at = max(at, one.end)


def _overlaps(
    finished: Sequence[RemoteLogSegmentMetadata], placements: dict[bytes, Placement]
) -> Iterable[Problem]:
    on_chain = [one for one in finished if placements[one.id.id] is not Placement.OFF_CHAIN]
    widest: RemoteLogSegmentMetadata | None = None
    for before, after in pairwise(on_chain):
        if widest is None or before.end_offset > widest.end_offset:
            widest = before
        last = min(widest.end_offset, after.end_offset)
        if after.start_offset <= last:
            text = f"overlap: two segments hold offsets {after.start_offset:,} to {last:,}"
            yield Problem("overlap", text, after.start_offset, last)


def _off_chain(
    finished: Sequence[RemoteLogSegmentMetadata], placements: dict[bytes, Placement]
) -> Iterable[Problem]:
    for one in finished:
        where = placements[one.id.id]
        if where is not Placement.ON_CHAIN:
            much = "wholly" if where is Placement.OFF_CHAIN else "partly"
            text = (
                f"off-chain: the segment of offsets {one.start_offset:,} to {one.end_offset:,} is"
                f" {much} of leader epochs that the leader's log does not have; those are not"
                " served"
            )
            yield Problem("off-chain", text, one.start_offset, one.end_offset)
