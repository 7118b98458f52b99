"""Reading a log on the loop: from an offset to regions of files that can be sent as they are."""

import logging
from pathlib import Path
from typing import NoReturn

from kafka_protocol.records.batch import HEADER_SIZE, BatchHeader, has_valid_crc, iter_batches
from local_log.errors import CorruptMessage, OffsetIsRemote, OffsetOutOfRange, WouldWait
from local_log.log.parts import LogParts
from local_log.log.results import LogRead
from local_log.segment.segment import LogSegment
from runtime.disk import FileRegion

log = logging.getLogger(__name__)
_EMPTY: list[FileRegion] = []


class LogReader:
    """Reads one log.

    Attributes:
        has_damage: a damaged batch was met below the recovery point: the next start must read the
            log whole, and judge.
    """

    __slots__ = (
        "_disk",
        "_ends",
        "_has_said_damage",
        "_health",
        "_segments",
        "_topic_partition",
        "has_damage",
    )

    def __init__(self, parts: LogParts) -> None:
        self._topic_partition, self._disk = parts.place.topic_partition, parts.place.disk
        self._health, self._ends = parts.health, parts.ends
        self._segments = parts.segments
        self.has_damage = self._has_said_damage = False

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        min_one_batch: bool = False,
        may_wait: bool = True,
    ) -> LogRead:
        """Find the bytes of the batches from `offset` on, as regions to send; nothing is read.

        Args:
            offset: first record wanted; the region starts with the batch that holds it.
            max_bytes: limit of the regions' size.
            end_offset: batches at or after it are left out (high watermark, last stable offset);
                default: the log end.
            min_one_batch: give the first batch whole although it is larger than `max_bytes`.
            may_wait: False on the event loop: the disk must not be waited for.

        Raises:
            WouldWait: `make_ready` must be called on a pool thread first.
            OffsetOutOfRange: outside [log start, log end].
            OffsetIsRemote: at or above the log start, but below the local one.
            KafkaStorageError: the disk failed.
        """
        ends, segments = self._ends, self._segments
        log_end = ends.log_end_offset
        end = log_end if end_offset is None else end_offset
        if offset > log_end or offset < ends.log_start_offset:
            raise OffsetOutOfRange(asked=offset, start=ends.log_start_offset, end=log_end)
        if offset < segments.bases[0]:
            raise OffsetIsRemote(
                asked=offset, log_start=ends.log_start_offset, local_start=segments.bases[0]
            )
        if self._health.failure is not None:
            self._health.refuse()
        if offset >= end or max_bytes < 0:
            return LogRead(_EMPTY, 0, -1, offset)
        try:
            return self._read(offset, max_bytes, end, min_one_batch, may_wait)
        except OSError as error:
            self._health.fail(error)

    def _read(
        self, offset: int, max_bytes: int, end: int, min_one_batch: bool, may_wait: bool
    ) -> LogRead:
        segments, log_end = self._segments, self._ends.log_end_offset
        active = segments.active
        recent = None
        if offset >= active.base_offset:
            recent = segments.recent_place(offset)
        if recent is not None:
            segment, base = active, offset
            position, first_size = recent
        else:
            found = self._locate(offset, may_wait)
            if found is None:
                return LogRead(_EMPTY, 0, -1, offset)
            segment, position, header = found
            base, first_size = header.base_offset, header.size_bytes
        if base >= end:
            return LogRead(_EMPTY, 0, -1, offset)
        stop = segment.size_bytes
        if end < log_end:
            stop = self._position_of(segment, end, may_wait)
        if max_bytes < first_size:
            if not min_one_batch:
                return LogRead(_EMPTY, 0, -1, offset)
            max_bytes = first_size
        size = min(stop - position, max_bytes)
        if size <= 0:
            return LogRead(_EMPTY, 0, -1, offset)
        segment_end = log_end if segment is active else segments.end_of(segment, log_end)
        upper_bound = min(end, segment_end)
        if position + size < stop:
            entry = segment.offset_index.first_entry_from(position + size, may_wait=may_wait)
            if entry is not None and entry.offset < upper_bound:
                upper_bound = entry.offset
        return LogRead([FileRegion(segment.file, position, size)], size, base, upper_bound)

    def check_resident(self, found: LogRead) -> None:
        """Refuse to read what `read` has found while it is not in memory.

        Raises:
            WouldWait: it is not.
        """
        for region in found.regions:
            if not self._disk.is_resident(region.file, region.position, region.size_bytes):
                raise WouldWait(str(region.file.path))

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
            self.note_damage()
            self._refuse_damage(region.file.path, region.position, expected)
        return found._replace(
            regions=[FileRegion(region.file, region.position, size)], size_bytes=size
        )

    def _locate(self, offset: int, may_wait: bool) -> tuple[LogSegment, int, BatchHeader] | None:
        """The batch that holds `offset`, or the next one after a hole.

        Raises:
            CorruptMessage: a damaged batch may hold it. Its bytes are not sent: by its header they
                end before `offset`, and a client that checks no checksums would ask for ever.
        """
        segments = self._segments.all[self._segments.index_of(offset) :]
        following, located = self._ends.log_end_offset, None
        for segment in segments:
            found = segment.find_batch(offset, may_wait=may_wait)
            if found is not None:
                following, located = found[1].base_offset, (segment, *found)
                size, size_max = found[1].size_bytes, segment.size_bytes - found[0]
                if found[1].last_offset_delta < 0 or not HEADER_SIZE <= size <= size_max:
                    self._refuse_damage(segment.file.path, found[0], offset)
                break
        if following > offset:
            position = segments[0].find_damage(offset, following)
            if position is not None:
                self._refuse_damage(segments[0].file.path, position, offset)
        return located

    def note_damage(self) -> None:
        """The next start is to read this log whole."""
        self.has_damage = True

    def _refuse_damage(self, path: Path | str, position: int, offset: int) -> NoReturn:
        problem = f"damaged batch at byte {position} of {path}: offset {offset}"
        if not self._has_said_damage:
            self._has_said_damage = True
            log.error("%s: %s", self._topic_partition, problem)
        raise CorruptMessage(problem)

    def _position_of(self, segment: LogSegment, end: int, may_wait: bool) -> int:
        """First byte in `segment` of the batch that reaches to `end` or beyond."""
        if end >= self._segments.end_of(segment, self._ends.log_end_offset):
            return segment.size_bytes
        recent = None
        if segment is self._segments.active:
            recent = self._segments.recent_place(end)
        if recent is not None:
            return recent[0]
        found = segment.find_batch(end, may_wait=may_wait)
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

    def aborted_transactions(
        self, start: int, end: int, *, may_wait: bool = True
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that touch [start, end).

        Raises:
            WouldWait: only the disk can tell, and it must not be waited for.
            CorruptFileError: a transaction index was changed since the log was opened.
            KafkaStorageError: the disk failed.
        """
        aborted = self._segments.aborted
        if not aborted:
            return []
        first = self._segments.bases[self._segments.index_of(start)]
        segments = aborted.from_segment(first)
        if not segments:
            return []
        try:
            return aborted.overlapping(segments, start, end, may_wait=may_wait)
        except OSError as error:
            self._health.fail(error)
