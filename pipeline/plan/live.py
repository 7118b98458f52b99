"""Which segment serves which offsets of a partition: the live runs.

Of several finished segments that hold (epoch on the chain, offset) the one that was finished first
counts, as for the broker (`PartitionView.segment_for`, `lineage.superseded`). So every offset is in
at most one run. What a chain does not confirm is in none.

An index is kept for as long as a log is open: a change of a few segments, or a new leader epoch,
paints only the offsets again that it touches.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from kafka_protocol.types import EpochEntry
from rlmm.lifecycle import SegmentEntry
from rlmm.lineage import Span, chain_spans, parts_in
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState

OFFSET_MAX = (1 << 63) - 1
_SEGMENT_ID = attrgetter("segment.id.id")


class LiveRun(NamedTuple):
    """Offsets `[first, last]` that `segment` serves."""

    first: int
    last: int
    segment: RemoteLogSegmentMetadata


class Part(NamedTuple):
    """Offsets `[first, last]` on the chain that a segment holds.

    Attributes:
        order: of several with an offset the smallest counts; no two segments have the same.
    """

    first: int
    last: int
    order: tuple[int, bytes]
    segment: RemoteLogSegmentMetadata


def paint(parts: Iterable[Part]) -> list[LiveRun]:
    """Give each offset to the part with the smallest order.

    Returns:
        Runs that are disjoint and ascending; neighbours of one segment are joined.
    """
    runs: list[LiveRun] = []
    heap: list[tuple[tuple[int, bytes], int, RemoteLogSegmentMetadata]] = []
    at = 0
    waiting = sorted(parts, key=lambda part: part.first)
    for part in waiting:
        at = _until(part.first, at, heap, runs)
        heappush(heap, (part.order, part.last, part.segment))
        at = max(at, part.first)
    _until(OFFSET_MAX, at, heap, runs)
    return runs


def _until(
    end: int,
    at: int,
    heap: list[tuple[tuple[int, bytes], int, RemoteLogSegmentMetadata]],
    runs: list[LiveRun],
) -> int:
    """Give the offsets `[at, end)` to what is on the heap; returns where painting continues."""
    while heap and at < end:
        _, last, segment = heap[0]
        if last < at:
            heappop(heap)
            continue
        last = min(last, end - 1)
        _append(runs, LiveRun(at, last, segment))
        at = last + 1
    return at


def _append(runs: list[LiveRun], run: LiveRun) -> None:
    before = runs[-1] if runs else None
    if before is not None and before.segment is run.segment and before.last + 1 == run.first:
        runs[-1] = before._replace(last=run.last)
    else:
        runs.append(run)


class LiveIndex:
    """The live runs of one partition, kept up to date."""

    def __init__(self) -> None:
        self._entries: dict[bytes, SegmentEntry] = {}
        self._places: list[tuple[int, bytes]] = []  # start offset, id; ascending
        self._epochs: set[int] = set()
        self._longest = 0  # offsets in the longest segment ever put in
        self._changed: dict[bytes, SegmentEntry | None] = {}  # as they were when last settled
        self._chain: tuple[EpochEntry, ...] = ()
        self._runs: list[LiveRun] = []

    def put(self, id: bytes, entry: SegmentEntry | None) -> None:
        """Take what is known of a segment now; None: it is not live any more.

        Only segments in COPY_SEGMENT_FINISHED are kept. `settle` makes it count.
        """
        if entry is not None and entry.metadata.state is not SegmentState.COPY_SEGMENT_FINISHED:
            entry = None
        known = self._entries.get(id)
        if entry is None and known is None:
            return
        self._changed.setdefault(id, known)
        if entry is None:
            del self._entries[id]
        else:
            self._entries[id] = entry
            self._epochs.update(one.epoch for one in entry.metadata.leader_epochs)

    def epochs(self) -> set[int]:
        """The leader epochs that finished segments name, or named."""
        return self._epochs

    def settle(self, chain: Sequence[EpochEntry]) -> None:
        """Bring the runs up to date with all that was put in, on this chain."""
        chain = tuple(chain)
        stretches = [
            (entry.metadata.start_offset, entry.metadata.end_offset)
            for segment_id, before in self._changed.items()
            for entry in (before, self._entries.get(segment_id))
            if entry is not None
        ]
        self._arrange()
        if chain != self._chain:
            stretches.append((_first_difference(chain, self._chain), OFFSET_MAX))
            self._chain = chain
        own = {span.epoch: span for span in chain_spans(chain, OFFSET_MAX)}
        for first, last in _joined(stretches):
            self._paint(first, last, own)

    @property
    def runs(self) -> Sequence[LiveRun]:
        """All runs, ascending; those below the log start, too."""
        return self._runs

    def runs_from(self, offset: int) -> Iterator[LiveRun]:
        """The runs that end at or above `offset`, ascending."""
        at = bisect_left(self._runs, offset, key=lambda run: run.last)
        return islice(self._runs, at, None)

    def count_from(self, offset: int) -> int:
        """How many segments serve offsets at or above `offset`."""
        return len(set(map(_SEGMENT_ID, self.runs_from(offset))))

    def _arrange(self) -> None:
        gone = {one for one, before in self._changed.items() if before is not None}
        if gone:
            self._places = [place for place in self._places if place[1] not in gone]
        for segment_id in self._changed:
            entry = self._entries.get(segment_id)
            if entry is not None:
                meta = entry.metadata
                self._places.append((meta.start_offset, segment_id))
                self._longest = max(self._longest, meta.end_offset - meta.start_offset + 1)
        self._places.sort()
        self._changed.clear()

    def _paint(self, first: int, last: int, own: dict[int, Span]) -> None:
        """Paint offsets `[first, last]` again."""
        low = bisect_left(self._places, (first - self._longest + 1, b""))
        high = bisect_right(self._places, (last, b"\xff" * 17))
        parts = [
            Part(max(part.first, first), min(part.last, last), _order(entry), entry.metadata)
            for _, segment_id in self._places[low:high]
            for entry in (self._entries[segment_id],)
            for part in _parts(entry.metadata, own)
            if part.first <= last and part.last >= first
        ]
        begin = bisect_left(self._runs, first, key=lambda run: run.last)
        end = bisect_right(self._runs, last, key=lambda run: run.first)
        painted = list[LiveRun]()
        if begin < end and self._runs[begin].first < first:
            painted.append(self._runs[begin]._replace(last=first - 1))
        for run in paint(parts):
            _append(painted, run)
        if begin < end and self._runs[end - 1].last > last:
            _append(painted, self._runs[end - 1]._replace(first=last + 1))
        if begin > 0 and painted and self._runs[begin - 1].segment is painted[0].segment:
            begin -= 1
            painted[:1] = _both(self._runs[begin], painted[0])
        if end < len(self._runs) and painted and self._runs[end].segment is painted[-1].segment:
            painted[-1:] = _both(painted[-1], self._runs[end])
            end += 1
        self._runs[begin:end] = painted


def _both(one: LiveRun, two: LiveRun) -> list[LiveRun]:
    runs = [one]
    _append(runs, two)
    return runs


def _order(entry: SegmentEntry) -> tuple[int, bytes]:
    assert entry.finished_order is not None, "only finished entries are kept"
    return entry.finished_order, entry.metadata.id.id


def _parts(meta: RemoteLogSegmentMetadata, own: dict[int, Span]) -> Sequence[Span]:
    """Find the parts as `parts_in`; nearly all segments are of one epoch, wholly on the chain."""
    if len(meta.leader_epochs) == 1:
        span = own.get(meta.leader_epochs[0].epoch)
        if span is not None and span.first <= meta.start_offset and meta.end_offset <= span.last:
            return (Span(span.epoch, meta.start_offset, meta.end_offset),)
    return parts_in(meta, own)


def _first_difference(one: Sequence[EpochEntry], two: Sequence[EpochEntry]) -> int:
    """The lowest offset of which two chains may say something different."""
    for a, b in zip(one, two, strict=False):
        if a != b:
            return min(a.start_offset, b.start_offset)
    longer = one if len(one) > len(two) else two
    return longer[min(len(one), len(two))].start_offset


def _joined(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches `[first, last]` as disjoint ones, ascending."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined
