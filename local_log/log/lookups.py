"""What is looked up in a log on pool threads: it may wait for the disk.

Each look-up works on a copy of the segments while the loop appends, rolls and drops.

Raises, all of them: LogClosed, KafkaStorageError, as `LogSegments.on_a_copy`.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from kafka_protocol.types import EpochEntry
from local_log.errors import OffsetOutOfRange
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.log import tier_segments
from local_log.log.parts import LogParts
from local_log.log.tier_segments import SegmentFiles
from local_log.segment import time_lookup
from local_log.segment.segment import LogSegment
from local_log.segment.time_lookup import TimestampedOffset

T = TypeVar("T")


class LogLookups:
    """The look-ups in one log."""

    __slots__ = ("_parts",)

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    def _look(self, work: Callable[[list[LogSegment]], T]) -> T:
        """Look into the log, unless it is closed: files of another may have its names then."""
        found = self._parts.segments.on_a_copy(work)
        if self._parts.health.is_closed:
            raise self._parts.health.gone()
        return found

    def make_ready(self, offset: int, max_bytes: int, end: int, *, whole: bool = False) -> None:
        """Read what `LogReader.read` will look at, so that it need not wait.

        Args:
            offset: as in `read`.
            max_bytes: as in `read`.
            end: as `end_offset` in `read`.
            whole: the batches themselves are read as well.
        """

        def look(segments: list[LogSegment]) -> None:
            bases = [segment.base_offset for segment in segments]
            first = max(bisect_right(bases, offset) - 1, 0)
            for segment in segments[first:]:
                found = segment.find_batch(offset)
                if found is None:
                    continue
                if end < self._parts.ends.log_end_offset:
                    segment.find_batch(end)
                stop = min(found[0] + max_bytes, segment.size_bytes)
                segment.offset_index.first_entry_from(stop)
                if whole:
                    segment.read_bytes(found[0], stop - found[0])
                break
            for segment in segments[first:]:
                if segment.has_aborted:
                    segment.read_aborted()

        self._look(look)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first local record, at or above the log start, not older than `timestamp` (ms).

        Raises:
            CorruptMessage: the batch that holds the answer cannot be opened.
        """
        return self._look(
            lambda segments: time_lookup.first_at_or_after(
                segments,
                timestamp,
                start=self._parts.ends.log_start_offset,
                topic_partition=self._parts.place.topic_partition,
            )
        )

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first local record with the largest timestamp; None if no record has one.

        Raises:
            CorruptMessage: the batch that holds the answer cannot be opened.
        """
        return self._look(
            lambda segments: time_lookup.newest(
                segments,
                start=self._parts.ends.log_start_offset,
                topic_partition=self._parts.place.topic_partition,
            )
        )

    def fits_batches(self, chain: Sequence[EpochEntry]) -> bool:
        """Whether each local batch is of the epoch that `chain` says."""
        cache = LeaderEpochCache(chain)
        return self._look(
            lambda segments: all(
                header.partition_leader_epoch in (-1, cache.epoch_for(header.base_offset))
                for segment in segments
                for _, header in segment.batches(0)
            )
        )

    def open_segment(self, base_offset: int) -> SegmentFiles:
        """Open a closed segment for copying: it is read, repaired and fsynced.

        Raises:
            OffsetOutOfRange: no closed segment begins there (any more).
        """
        return self._look(lambda segments: self._open(segments, base_offset))

    def _open(self, segments: list[LogSegment], base_offset: int) -> SegmentFiles:
        self._parts.producers.write_due()  # or one is made from the batches
        bases = [segment.base_offset for segment in segments[:-1]]
        if base_offset not in bases:
            bases_now = self._parts.segments.bases
            raise OffsetOutOfRange(asked=base_offset, start=bases_now[0], end=bases_now[-1])
        return tier_segments.open_segment(
            self._parts.place.disk,
            segments,
            bases.index(base_offset),
            epochs=self._parts.epoch_file.chain.entries(),
            snapshots=self._parts.producers.snapshots.copy(),
            log_start=self._parts.ends.log_start_offset,
            write=self._parts.segments.write_file,
        )
