"""List of a log's segments with a transaction index, and a cache of these indexes.

Nearly no segment has a transaction index, and an aborted transaction may be noted many segments
behind its records. So a read walks a short list of the segments that have one. All logs of a broker
share one bounded cache of index bytes. The event loop reads the cache while a pool thread may
append to the index of a log that is leased to it.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from operator import attrgetter

from kafka_protocol.files import txn_index
from local_log.segment.segment import LogSegment
from runtime.executors import make_mutex

CACHED_BYTES_MAX = 4 * 1024 * 1024
"""Enough for about 120,000 aborted transactions."""

_base_of = attrgetter("base_offset")


class AbortedCache:
    """LRU cache of the bytes of transaction indexes, for any thread.

    Attributes:
        size_bytes: Total size of the cached indexes.
        drops: Number of calls of `drop`.
    """

    __slots__ = ("_bytes", "_bytes_max", "_mutex", "drops", "size_bytes")

    def __init__(self, bytes_max: int = CACHED_BYTES_MAX) -> None:
        self._bytes: OrderedDict[LogSegment, bytes] = OrderedDict()
        self._bytes_max = bytes_max
        self._mutex = make_mutex()
        self.size_bytes = self.drops = 0

    def get(self, segment: LogSegment) -> bytes | None:
        """Return the bytes of a segment's index; None if they are not cached."""
        with self._mutex:
            data = self._bytes.get(segment)
            if data is not None:
                self._bytes.move_to_end(segment)
        return data

    def put(self, segment: LogSegment, data: bytes, drops: int) -> None:
        """Cache the bytes of an index, unless they alone exceed the bound.

        Args:
            segment: The index belongs to it.
            data: Whole entries, as read from the file.
            drops: Value of `drops` before the read. Nothing is cached if it has changed since: the
                bytes may be old.
        """
        with self._mutex:
            if drops != self.drops or len(data) > self._bytes_max:
                return
            self.size_bytes += len(data) - len(self._bytes.pop(segment, b""))
            self._bytes[segment] = data
            while self.size_bytes > self._bytes_max:
                _, gone = self._bytes.popitem(last=False)
                self.size_bytes -= len(gone)

    def drop(self, segment: LogSegment) -> None:
        """Remove a segment's bytes, because its index changed or the segment left its log."""
        with self._mutex:
            self.drops += 1
            self.size_bytes -= len(self._bytes.pop(segment, b""))


class AbortedIndexes:
    """The segments of one log that have a transaction index, oldest first."""

    __slots__ = ("_cache", "_segments")

    def __init__(self, segments: Iterable[LogSegment], cache: AbortedCache) -> None:
        self._cache = cache
        self._segments = [segment for segment in segments if segment.has_aborted]

    def __len__(self) -> int:
        """Number of segments with a transaction index."""
        return len(self._segments)

    def noted(self, segment: LogSegment) -> None:
        """Call after an entry was added to the index of the active segment."""
        self._cache.drop(segment)
        if not self._segments or self._segments[-1] is not segment:
            self._segments.append(segment)

    def dropped_below(self, base_offset: int) -> None:
        """Call after the segments with a base offset below `base_offset` left the log."""
        gone = bisect_left(self._segments, base_offset, key=_base_of)
        for segment in self._segments[:gone]:
            self._cache.drop(segment)
        del self._segments[:gone]

    def changed(self, segments: Iterable[LogSegment]) -> None:
        """Call after the log's segments were replaced by these, as in a truncation."""
        for segment in self._segments:
            self._cache.drop(segment)
        self._segments = [segment for segment in segments if segment.has_aborted]

    def from_segment(self, base_offset: int) -> list[LogSegment]:
        """Return the segments with an index whose base offset is >= `base_offset`."""
        return self._segments[bisect_left(self._segments, base_offset, key=_base_of) :]

    def overlapping(
        self, segments: Iterable[LogSegment], start: int, end: int, *, may_wait: bool = True
    ) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of each aborted transaction that touches [start, end).

        Args:
            segments: From `from_segment`, called with the base offset of the segment of `start`.
            start: First offset of the read (inclusive).
            end: End of the read (exclusive).
            may_wait: The call may block for the disk.

        Raises:
            WouldWait: The disk is needed, and `may_wait` is False.
            OSError: An index cannot be read.
            CorruptFileError: An index was changed since the log was opened.
        """
        found: list[tuple[int, int]] = []
        for segment in segments:
            data, drops = self._cache.get(segment), self._cache.drops
            if data is None:
                data = segment.read_aborted(may_wait=may_wait)
                self._cache.put(segment, data, drops)
            entries, is_over = txn_index.overlapping(
                txn_index.entries_from(data, start), start, end
            )
            found += [(entry.producer_id, entry.first_offset) for entry in entries]
            if is_over:
                break
        return found
