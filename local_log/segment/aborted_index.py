"""Facts about transaction indexes without a look at the disk.

Nearly no segment has a transaction index, and an aborted transaction may be noted many segments
behind its records. So a read asks a short list of the segments that have one, and their bytes are
kept, within a bound that all logs of a broker share. They are read on the loop, while a pool thread
may add to the index of a log that is leased to it.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from operator import attrgetter

from kafka_protocol.files import txn_index
from local_log.segment.segment import LogSegment
from runtime.executors import make_mutex

CACHED_BYTES_MAX = 4 * 1024 * 1024
"""Some 120,000 aborted transactions."""

_base_of = attrgetter("base_offset")


class AbortedCache:
    """Bytes of transaction indexes, the least recently used going first; for any thread.

    Attributes:
        size_bytes: of all that is kept.
        drops: how often something was dropped.
    """

    __slots__ = ("_bytes", "_bytes_max", "_mutex", "drops", "size_bytes")

    def __init__(self, bytes_max: int = CACHED_BYTES_MAX) -> None:
        self._bytes: OrderedDict[LogSegment, bytes] = OrderedDict()
        self._bytes_max = bytes_max
        self._mutex = make_mutex()
        self.size_bytes = self.drops = 0

    def get(self, segment: LogSegment) -> bytes | None:
        """The bytes of a segment's index, if they are kept."""
        with self._mutex:
            data = self._bytes.get(segment)
            if data is not None:
                self._bytes.move_to_end(segment)
        return data

    def put(self, segment: LogSegment, data: bytes, drops: int) -> None:
        """Keep them, unless they alone are above the bound.

        Args:
            segment: whose they are.
            data: as read.
            drops: before they were read; if another number are counted now they may be old.
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
        """Forget them: the index has changed, or the segment left its log."""
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
        """How many segments have one."""
        return len(self._segments)

    def noted(self, segment: LogSegment) -> None:
        """An entry was added to the index of the active segment."""
        self._cache.drop(segment)
        if not self._segments or self._segments[-1] is not segment:
            self._segments.append(segment)

    def dropped_below(self, base_offset: int) -> None:
        """The segments that begin below `base_offset` left the log."""
        gone = bisect_left(self._segments, base_offset, key=_base_of)
        for segment in self._segments[:gone]:
            self._cache.drop(segment)
        del self._segments[:gone]

    def changed(self, segments: Iterable[LogSegment]) -> None:
        """The log was truncated to these segments."""
        for segment in self._segments:
            self._cache.drop(segment)
        self._segments = [segment for segment in segments if segment.has_aborted]

    def from_segment(self, base_offset: int) -> list[LogSegment]:
        """Those of segments that begin at or above `base_offset`."""
        return self._segments[bisect_left(self._segments, base_offset, key=_base_of) :]

    def overlapping(
        self, segments: Iterable[LogSegment], start: int, end: int, *, may_wait: bool = True
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that touch [start, end).

        Args:
            segments: of `from_segment`, for the segment that holds `start`.
            start: first offset read.
            end: first offset not read.
            may_wait: for the disk.

        Raises:
            WouldWait: an index is not in memory, and must not be waited for.
            OSError: an index cannot be read.
            CorruptFileError: an index was changed since the log was opened.
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
