"""Reading a log: from an offset to regions of files that can be sent as they are.

Reads by offset run on the loop. What runs on a pool thread beside it (look-ups by time, opening a
segment for copying, flushing) goes through `_beside_the_loop`.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable
from typing import NoReturn, TypeVar

from kafka_protocol.records.batch import BatchHeader, has_valid_crc, iter_batches
from local_log import time_lookup
from local_log.errors import CorruptMessage, OffsetIsRemote, OffsetOutOfRange
from local_log.log_results import LogRead
from local_log.log_state import LogState
from local_log.segment import LogSegment
from local_log.time_lookup import TimestampedOffset
from runtime.disk import FileRegion

_log = logging.getLogger(__name__)
_EMPTY: list[FileRegion] = []

T = TypeVar("T")


class LogReader(LogState):
    """A log that can be read."""

    __slots__ = ()

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        min_one_batch: bool = False,
    ) -> LogRead:
        """Find the bytes of the batches from `offset` on, as regions to send; nothing is read.

        Args:
            offset: first record wanted; the region starts with the batch that holds it.
            max_bytes: limit of the regions' size.
            end_offset: batches at or after it are left out (high watermark, last stable offset);
                default: the log end.
            min_one_batch: give the first batch whole although it is larger than `max_bytes`.

        Raises:
            OffsetOutOfRange: outside [log start, log end].
            OffsetIsRemote: at or above the log start, but below the local one.
            KafkaStorageError: the disk failed.
        """
        log_end = self.log_end_offset
        end = log_end if end_offset is None else end_offset
        if offset > log_end or offset < self.log_start_offset:
            raise OffsetOutOfRange(asked=offset, start=self.log_start_offset, end=log_end)
        if offset < self._bases[0]:
            raise OffsetIsRemote(
                asked=offset, log_start=self.log_start_offset, local_start=self._bases[0]
            )
        if self._failure is not None:
            self._refuse()
        if offset >= end or max_bytes < 0:
            return LogRead(_EMPTY, 0, -1, offset)
        try:
            return self._read(offset, max_bytes, end, min_one_batch)
        except OSError as error:
            self.fail(error)

    def _read(self, offset: int, max_bytes: int, end: int, min_one_batch: bool) -> LogRead:
        active = self._active
        recent = None
        if offset >= active.base_offset:
            recent = self._recent.get(offset) or self._less_recent.get(offset)
        if recent is not None:
            segment, base = active, offset
            position, first_size = recent
        else:
            found = self._locate(offset)
            if found is None:
                return LogRead(_EMPTY, 0, -1, offset)
            segment, position, header = found
            base, first_size = header.base_offset, header.size_bytes
        if base >= end:
            return LogRead(_EMPTY, 0, -1, offset)
        stop = segment.size_bytes if end >= self.log_end_offset else self._position_of(segment, end)
        if max_bytes < first_size:
            if not min_one_batch:
                return LogRead(_EMPTY, 0, -1, offset)
            max_bytes = first_size
        size = min(stop - position, max_bytes)
        if size <= 0:
            return LogRead(_EMPTY, 0, -1, offset)
        upper_bound = min(end, self._segment_end(segment))
        if position + size < stop:
            entry = segment.offset_index.first_entry_from(position + size)
            if entry is not None and entry.offset < upper_bound:
                upper_bound = entry.offset
        return LogRead([FileRegion(segment.file, position, size)], size, base, upper_bound)

    def sound(self, found: LogRead) -> LogRead:
        """Check what `read` has found, and leave out the first damaged batch and all behind it.

        For logs whose readers must never meet a wrong byte: they are read, on this thread.

        Raises:
            CorruptMessage: the first batch is damaged; the next start reads this log whole.
        """
        if not found.regions:
            return found
        [region] = found.regions
        data = self._disk.read_at(region.file, region.position, region.size_bytes)
        size, expected, end = 0, found.first_batch_offset, found.upper_bound_offset
        for position, header in iter_batches(data):
            is_in_place = expected <= header.base_offset < header.next_offset <= end
            if not is_in_place or not has_valid_crc(data, position, header):
                break
            size, expected = position + header.size_bytes, header.next_offset
        if size == 0:
            self._note_damage(expected, region)
        return found._replace(
            regions=[FileRegion(region.file, region.position, size)], size_bytes=size
        )

    def _note_damage(self, offset: int, region: FileRegion) -> NoReturn:
        problem = f"damaged batch at offset {offset}, byte {region.position} of {region.file.path}"
        if not self.has_damage:
            self.has_damage = True
            _log.error("%s: %s", self.topic_partition, problem)
        raise CorruptMessage(problem)

    def _locate(self, offset: int) -> tuple[LogSegment, int, BatchHeader] | None:
        """The batch that holds `offset`, or the next one after a hole."""
        index = bisect_right(self._bases, offset) - 1
        for segment in self._segments[max(index, 0) :]:
            found = segment.find_batch(offset)
            if found is not None:
                return segment, found[0], found[1]
        return None

    def _position_of(self, segment: LogSegment, end: int) -> int:
        """First byte in `segment` of the batch that reaches to `end` or beyond."""
        if end >= self._segment_end(segment):
            return segment.size_bytes
        recent = None
        if segment is self._active:
            recent = self._recent.get(end) or self._less_recent.get(end)
        if recent is not None:
            return recent[0]
        found = segment.find_batch(end)
        return segment.size_bytes if found is None else found[0]

    def read_bytes(self, offset: int, max_bytes: int, *, end_offset: int | None = None) -> bytes:
        """Read batches from `offset` on into the heap, at least one: for internal readers.

        Raises:
            The errors of `read`.
        """
        result = self.read(offset, max_bytes, end_offset=end_offset, min_one_batch=True)
        return b"".join(
            self._disk.read_at(region.file, region.position, region.size_bytes)
            for region in result.regions
        )

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that touch [start, end)."""
        found: list[tuple[int, int]] = []
        index = max(bisect_right(self._bases, start) - 1, 0)
        for segment in self._segments[index:]:
            for entry in segment.aborted():
                if entry.last_offset >= start and entry.first_offset < end:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= end:
                    return found
        return found

    def _beside_the_loop(self, work: Callable[[list[LogSegment]], T]) -> T:
        """Run `work` on a copy of the segments, again if some of them went meanwhile.

        The loop appends, rolls and drops at the same time. A copy does not shift under a walk, but
        files of it may be renamed away: that is no failure of the disk.

        Raises:
            LogClosed: the log was closed meanwhile.
            KafkaStorageError: the disk failed.
        """
        while True:
            changes = self._changes
            try:
                result = work(list(self._segments))
            except FileNotFoundError as error:
                if self._closed or changes == self._changes:
                    self.fail(error)
            except OSError as error:
                self.fail(error)
            else:
                if changes == self._changes:
                    return result

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first local record, at or above the log start, not older than `timestamp` (ms).

        Runs on a pool thread.

        Raises:
            CorruptMessage: the batch that holds the answer cannot be opened.
            LogClosed, KafkaStorageError: as `_beside_the_loop`.
        """
        return self._beside_the_loop(
            lambda segments: time_lookup.first_at_or_after(
                segments,
                timestamp,
                start=self.log_start_offset,
                topic_partition=self.topic_partition,
            )
        )

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first local record with the largest timestamp; None if no record has one.

        Runs on a pool thread.

        Raises:
            CorruptMessage: the batch that holds the answer cannot be opened.
            LogClosed, KafkaStorageError: as `_beside_the_loop`.
        """
        return self._beside_the_loop(
            lambda segments: time_lookup.newest(
                segments, start=self.log_start_offset, topic_partition=self.topic_partition
            )
        )
