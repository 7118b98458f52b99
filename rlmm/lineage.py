"""Which offsets of which leader epoch are in which remote segment, and what follows for a log.

Every look-up is by (leader epoch, offset) in an epoch chain. The same offset may have been written
twice, by two leaders of which one's records were abandoned; only the epoch distinguishes them. A
segment counts for the range in its metadata, not for the records in it (a formerly compacted log
has holes).

Pure. `first` and `last` are inclusive, `log_end` is exclusive. A chain is ascending; its first
entry may begin below the log start offset. `finished` means segments in COPY_SEGMENT_FINISHED only:
the caller filters.

Source: KIP-405 (Unclean leader election, scenarios 1-5); docs/tiering.md for coverage and overlap.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from kafka_protocol.types import EpochEntry
from rsm_plugins.segment import RemoteLogSegmentMetadata


class Span(NamedTuple):
    """Offsets `[first, last]`, both inclusive, written under one leader epoch."""

    epoch: int
    first: int
    last: int


class CopiedRun(NamedTuple):
    """The end of the run of copied offsets that begins at the log start offset.

    `last_offset` is inclusive, `leader_epoch` is its epoch.
    """

    last_offset: int
    leader_epoch: int


class Placement(Enum):
    """How much of a segment is on a chain."""

    ON_CHAIN = "on chain"
    PARTLY = "partly"
    OFF_CHAIN = "off chain"


def chain_spans(chain: Sequence[EpochEntry], log_end: int) -> list[Span]:
    """A chain as spans, ascending; epochs without an offset below `log_end` are left out."""
    if not chain:
        return []
    ends = [entry.start_offset for entry in chain[1:]] + [log_end]
    return [
        Span(entry.epoch, entry.start_offset, min(end, log_end) - 1)
        for entry, end in zip(chain, ends, strict=True)
        if entry.start_offset < min(end, log_end)
    ]


def segment_spans(segment: RemoteLogSegmentMetadata) -> list[Span]:
    """The segment's range as spans, ascending; clipped to it at both ends."""
    spans = chain_spans(segment.leader_epochs, segment.end_offset + 1)
    return [
        span._replace(first=max(span.first, segment.start_offset))
        for span in spans
        if span.last >= segment.start_offset
    ]


def epoch_at(chain: Sequence[EpochEntry], offset: int) -> int | None:
    """The epoch that wrote `offset` on this chain; None below its first entry."""
    index = bisect_right(chain, offset, key=lambda entry: entry.start_offset) - 1
    return chain[index].epoch if index >= 0 else None


def holds(segment: RemoteLogSegmentMetadata, epoch: int, offset: int) -> bool:
    """True if (epoch, offset) is in the segment."""
    return any(
        span.epoch == epoch and span.first <= offset <= span.last for span in segment_spans(segment)
    )


def parts_on_chain(
    segment: RemoteLogSegmentMetadata, chain: Sequence[EpochEntry], log_end: int
) -> list[Span]:
    """The parts of the segment that the chain confirms, ascending.

    Only these parts may be served and counted.
    """
    return parts_in(segment, {span.epoch: span for span in chain_spans(chain, log_end)})


def parts_in(segment: RemoteLogSegmentMetadata, own: Mapping[int, Span]) -> list[Span]:
    """The parts of the segment within the chain's spans by epoch: for many segments of a chain."""
    parts = []
    for span in segment_spans(segment):
        on_chain = own.get(span.epoch)
        if on_chain is not None:
            part = Span(span.epoch, max(span.first, on_chain.first), min(span.last, on_chain.last))
            if part.first <= part.last:
                parts.append(part)
    return parts


def placement(
    segment: RemoteLogSegmentMetadata, chain: Sequence[EpochEntry], log_end: int
) -> Placement:
    """Return whether all, some or none of the segment's (epoch, offset) are on the chain."""
    parts = parts_on_chain(segment, chain, log_end)
    if not parts:
        return Placement.OFF_CHAIN
    return Placement.ON_CHAIN if parts == segment_spans(segment) else Placement.PARTLY


def ends_on(segment: RemoteLogSegmentMetadata, own: Mapping[int, Span]) -> bool:
    """True if the segment's last (epoch, offset) is on the chain: then all of it is.

    Two logs with the same record at an offset have the same records before it. `own` holds the
    chain's spans, by epoch.
    """
    last = segment.end_offset
    for entry in reversed(segment.leader_epochs):
        if entry.start_offset <= last:
            span = own.get(entry.epoch)
            return span is not None and span.first <= last <= span.last
    return False


class Coverage:
    """A set of (epoch, offset), kept as disjoint intervals per epoch."""

    __slots__ = ("_by_epoch",)

    def __init__(self, segments: Iterable[RemoteLogSegmentMetadata] = ()) -> None:
        self._by_epoch: dict[int, tuple[list[int], list[int]]] = {}  # firsts, lasts; both ascending
        for segment in segments:
            self.add(segment)

    def add(self, segment: RemoteLogSegmentMetadata) -> None:
        """Add all (epoch, offset) of a segment."""
        for span in segment_spans(segment):
            self.add_span(span)

    def add_span(self, span: Span) -> None:
        """Add a span; adjacent intervals are joined."""
        firsts, lasts = self._by_epoch.setdefault(span.epoch, ([], []))
        low = bisect_left(lasts, span.first - 1)
        high = bisect_right(firsts, span.last + 1)
        first, last = span.first, span.last
        if low < high:
            first, last = min(first, firsts[low]), max(last, lasts[high - 1])
        firsts[low:high] = [first]
        lasts[low:high] = [last]

    def end_of_run(self, epoch: int, first: int) -> int:
        """The last offset (inclusive) of the run of `epoch` that begins at `first`.

        `first - 1` if `first` is not in the set.
        """
        firsts, lasts = self._by_epoch.get(epoch, ([], []))
        index = bisect_right(firsts, first) - 1
        return lasts[index] if index >= 0 and lasts[index] >= first else first - 1

    def has_span(self, span: Span) -> bool:
        """True if every offset of the span is in the set."""
        return self.end_of_run(span.epoch, span.first) >= span.last

    def count_in(self, span: Span) -> int:
        """Number of offsets of the span in the set."""
        firsts, lasts = self._by_epoch.get(span.epoch, ([], []))
        low, high = bisect_left(lasts, span.first), bisect_right(firsts, span.last)
        return sum(
            min(last, span.last) - max(first, span.first) + 1
            for first, last in zip(firsts[low:high], lasts[low:high], strict=True)
        )

    def first_in(self, span: Span) -> int | None:
        """The smallest offset of the span in the set, or None."""
        firsts, lasts = self._by_epoch.get(span.epoch, ([], []))
        index = bisect_left(lasts, span.first)
        if index == len(lasts) or firsts[index] > span.last:
            return None
        return max(firsts[index], span.first)


def copied_through(
    finished: Coverage, chain: Sequence[EpochEntry], log_start: int, log_end: int
) -> CopiedRun | None:
    """The end of the run from the log start offset on in finished segments of this chain.

    A run, not a maximum: offsets behind a hole are not safe to expire locally (model story B4).

    Returns:
        The end of the run, or None if the log start offset itself is not covered.
    """
    run: CopiedRun | None = None
    for span in chain_spans(chain, log_end):
        if span.last < log_start:
            continue
        wanted = span._replace(first=max(span.first, log_start))
        if run is None and wanted.first != log_start:
            return None
        end = min(finished.end_of_run(span.epoch, wanted.first), span.last)
        if end >= wanted.first:
            run = CopiedRun(end, span.epoch)
        if end < span.last:
            break
    return run


def is_covered(finished: Coverage, chain: Sequence[EpochEntry], first: int, last: int) -> bool:
    """True if each (epoch on the chain, offset) of `[first, last]` is in finished segments."""
    at = first
    for span in chain_spans(chain, last + 1):
        if span.last < first:
            continue
        wanted = span._replace(first=max(span.first, first))
        if wanted.first != at or not finished.has_span(wanted):
            return False
        at = wanted.last + 1
    return at == last + 1


def remote_start(finished: Coverage, chain: Sequence[EpochEntry], log_end: int) -> int | None:
    """The smallest offset on the chain that is in a finished segment.

    None if no segment touches the chain.
    """
    for span in chain_spans(chain, log_end):
        first = finished.first_in(span)
        if first is not None:
            return first
    return None


def superseded(
    finished_in_order: Iterable[RemoteLogSegmentMetadata],
) -> list[RemoteLogSegmentMetadata]:
    """The segments that the overlap rule removes: all they hold is in segments finished earlier.

    All leaders choose the same ones, because the order is that of the metadata topic. (epoch,
    offset) are compared, not offsets: another lineage's copy of the same offsets is no copy (model
    story B7).

    Args:
        finished_in_order: Segments that are FINISHED now and count as copies on the leader's chain,
            by their `finished_order`. A leader with a lower high watermark counts fewer of them,
            and so removes none that another one keeps.
    """
    earlier = Coverage()
    given_up = []
    for segment in finished_in_order:
        spans = segment_spans(segment)
        if spans and all(earlier.has_span(span) for span in spans):
            given_up.append(segment)
        else:
            earlier.add(segment)
    return given_up
