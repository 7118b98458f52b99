"""The live segments of one user partition, arranged for look-ups.

Built from a store's entries and updated entry by entry; it holds no state of its own. Look-ups by
(epoch, offset) see segments in COPY_SEGMENT_FINISHED only. Not thread-safe: the manager holds a
lock.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

from rlmm.lifecycle import SegmentEntry
from rlmm.lineage import segment_spans
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState

ABORTING_SEGMENTS_MAX = 16
"""Segments returned at once: a reader mostly needs one or two."""


class _EpochIndex:
    """Finished segments that hold offsets of one epoch, by their first offset in it."""

    __slots__ = ("longest", "spans")

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, bytes]] = []  # first, last, segment id
        self.longest = 0  # offsets in the longest span ever added: bound of the search for overlaps


class PartitionView:
    """Segments of a partition by id, by start offset, and by (epoch, offset)."""

    __slots__ = ("_aborting", "_entries", "_epochs", "_longest_aborting", "_order")

    def __init__(self, entries: Iterable[SegmentEntry] = ()) -> None:
        self._entries: dict[bytes, SegmentEntry] = {}
        self._order: list[tuple[int, bytes]] = []  # start offset, id
        self._epochs: dict[int, _EpochIndex] = {}
        self._aborting: list[tuple[int, bytes]] = []  # start offset, id
        self._longest_aborting = 0  # offsets in the longest of them ever added
        for entry in entries:
            self.put(entry.metadata.id.id, entry)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, id: bytes, entry: SegmentEntry | None) -> None:
        """Set the entry of segment `id`; None: it is not live any more."""
        before = self._entries.pop(id, None)
        if before is not None:
            self._forget(id, before)
        if entry is None:
            return
        self._entries[id] = entry
        insort(self._order, (entry.metadata.start_offset, id))
        if entry.metadata.state is SegmentState.COPY_SEGMENT_FINISHED:
            for span in segment_spans(entry.metadata):
                index = self._epochs.setdefault(span.epoch, _EpochIndex())
                insort(index.spans, (span.first, span.last, id))
                index.longest = max(index.longest, span.last - span.first + 1)
            if not entry.metadata.txn_index_empty:
                insort(self._aborting, (entry.metadata.start_offset, id))
                self._longest_aborting = max(self._longest_aborting, _length(entry.metadata))

    def _forget(self, id: bytes, entry: SegmentEntry) -> None:
        del self._order[bisect_left(self._order, (entry.metadata.start_offset, id))]
        if entry.metadata.state is not SegmentState.COPY_SEGMENT_FINISHED:
            return
        for span in segment_spans(entry.metadata):
            index = self._epochs[span.epoch]
            del index.spans[bisect_left(index.spans, (span.first, span.last, id))]
            if not index.spans:
                del self._epochs[span.epoch]
        if not entry.metadata.txn_index_empty:
            del self._aborting[bisect_left(self._aborting, (entry.metadata.start_offset, id))]

    def entry(self, id: bytes) -> SegmentEntry | None:
        """The entry of a live segment, None for any other id."""
        return self._entries.get(id)

    def entries(self) -> Iterator[SegmentEntry]:
        """All live segments, ascending by start offset, then id."""
        return (self._entries[segment_id] for _, segment_id in self._order)

    def segments(self, epoch: int | None = None) -> list[RemoteLogSegmentMetadata]:
        """Segments in every live state, ascending by start offset.

        With `epoch` only those that hold offsets of it.
        """
        found = [entry.metadata for entry in self.entries()]
        if epoch is None:
            return found
        return [meta for meta in found if any(span.epoch == epoch for span in segment_spans(meta))]

    def aborting_segments(
        self, offset: int, after: tuple[int, bytes] | None, count_max: int
    ) -> list[RemoteLogSegmentMetadata]:
        """Finished segments that end at or above `offset` and have aborted transactions.

        Ascending by start offset, then id. Only those behind `after` (start offset, id), which is
        exclusive; at most `count_max`.
        """
        if after is None:
            at = bisect_left(self._aborting, (offset - self._longest_aborting + 1, b""))
        else:
            at = bisect_right(self._aborting, after)
        found = list[RemoteLogSegmentMetadata]()
        while at < len(self._aborting) and len(found) < count_max:
            metadata = self._entries[self._aborting[at][1]].metadata
            if metadata.end_offset >= offset:
                found.append(metadata)
            at += 1
        return found

    def segment_for(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The finished segment that holds (epoch, offset), of several the one finished first."""
        index = self._epochs.get(epoch)
        if index is None:
            return None
        best: SegmentEntry | None = None
        at = bisect_right(index.spans, offset, key=lambda span: span[0]) - 1
        while at >= 0 and index.spans[at][0] > offset - index.longest:
            _, last, segment_id = index.spans[at]
            if last >= offset:
                entry = self._entries[segment_id]
                if best is None or _order_of(entry) < _order_of(best):
                    best = entry
            at -= 1
        return None if best is None else best.metadata

    def next_segment(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The finished segment of `epoch` with the smallest start offset at or above `offset`."""
        index = self._epochs.get(epoch)
        if index is None:
            return None
        best: SegmentEntry | None = None
        best_first = 0
        for first, _, segment_id in index.spans[bisect_left(index.spans, (offset,)) :]:
            entry = self._entries[segment_id]
            if best is not None and first > best_first:
                break  # it starts in this epoch: earlier ones would be at its start
            if entry.metadata.start_offset >= offset and (
                best is None or _start_of(entry) < _start_of(best)
            ):
                best, best_first = entry, first
        return None if best is None else best.metadata

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """The largest offset (inclusive) of `epoch` in finished segments, or None."""
        index = self._epochs.get(epoch)
        return None if index is None else max(last for _, last, _ in index.spans)


def _length(metadata: RemoteLogSegmentMetadata) -> int:
    return metadata.end_offset - metadata.start_offset + 1


def _order_of(entry: SegmentEntry) -> int:
    assert entry.finished_order is not None, "only finished entries are in the epochs' indexes"
    return entry.finished_order


def _start_of(entry: SegmentEntry) -> tuple[int, int]:
    return entry.metadata.start_offset, _order_of(entry)
