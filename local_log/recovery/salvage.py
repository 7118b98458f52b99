"""Rewrites a damaged segment from its sound batches; only for logs that tolerate damage.

Most logs are refused if they contradict the known facts: a hole would be a silent loss. In
`__consumer_offsets` each record matters only for its own key. A lost record costs that key, while
an offline partition costs every group in it. So each sound batch of such a log keeps its offset,
and batches without records fill the lost offsets.

Order of writes: the bytes to remove are copied beside the log (`set_aside`), the indexes are
removed, the new file replaces the old one. A kill in between leaves the segment unchanged, and at
most one more copy.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from kafka_protocol.records.batch import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    has_valid_crc,
    patch_offset_and_epoch,
    read_header,
)
from local_log.file_names import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from local_log.recovery.salvage_policy import Damage, FoundBatch, KeptBatch, LostOffsets, salvage
from local_log.recovery.set_aside import copy_aside
from local_log.recovery.verdict import LogSurvey, SegmentSurvey
from local_log.segment.reading import CheckStop, Ending, filler
from local_log.segment.segment import RELATIVE_OFFSET_MAX, LogSegment
from runtime.disk import Disk, OpenFile
from runtime.incidents import Incident

log = logging.getLogger(__name__)

_WINDOW_BYTES = 1 << 20
_ATTRIBUTES_MAX = 0x7F
_NAMED_MAX = 20


class SegmentDamage(NamedTuple):
    """One damage of a segment.

    Attributes:
        file: Name of the segment's file.
    """

    file: str
    damage: Damage


def needs_salvage(survey: LogSurvey) -> list[SegmentSurvey]:
    """Return the segments to rewrite: damaged ones, and a torn one that was complete once."""
    last = survey.segments[-1] if survey.segments else None
    return [
        one
        for one in survey.segments
        if one.ending in (Ending.DAMAGED, Ending.OVERLAPS)
        or (one.ending is Ending.TORN and (one is not last or one.end_offset < survey.flushed_end))
    ]


class Salvager:
    """Repairs the damaged segments of one log; used once."""

    def __init__(self, disk: Disk, check_stop: CheckStop) -> None:
        self._disk, self._check_stop = disk, check_stop

    def repair(self, survey: LogSurvey, segments: Sequence[LogSegment]) -> list[SegmentDamage]:
        """Rewrite damaged segments; durable on return.

        Args:
            survey: Of the log.
            segments: Of the same log; segments that still have `.swap` files are skipped.

        Returns:
            The damages; empty if nothing was changed.

        Raises:
            OSError: The disk failed.
        """
        by_base = {segment.base_offset: segment for segment in segments}
        bases = sorted(by_base)
        damages: list[SegmentDamage] = []
        for one in needs_salvage(survey):
            segment = by_base[one.base_offset]
            if type(segment) is not LogSegment:
                continue
            later = [base for base in bases if base > one.base_offset]
            limit = later[0] if later else one.base_offset + RELATIVE_OFFSET_MAX + 1
            end = limit if later else min(survey.flushed_end, limit)
            damages += self._repair(segment, limit, end)
            segment.release()
        return damages

    def _repair(self, segment: LogSegment, limit: int, end: int) -> list[SegmentDamage]:
        file = self._disk.open_read(segment.path(LOG))
        size, start = file.size(), segment.base_offset
        found = _Search(self._disk, file, start, limit, self._check_stop).batches()
        plan = salvage(found, size, start=start, limit=limit, end=end)
        if not plan.damages:
            return []
        path = segment.path(LOG)
        copy = copy_aside(self._disk, path, plan.damages[0].position)
        for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX):
            self._disk.unlink(segment.path(suffix))
        self._write(segment, file, plan.pieces)
        for damage in plan.damages[:_NAMED_MAX]:
            log.warning(
                "damage: file=%s position=%d offset=%d: %s",
                path,
                damage.position,
                damage.offset,
                damage.text,
            )
        log.error(Incident.SALVAGED.line(path=path, count=len(plan.damages), copy=copy))
        return [SegmentDamage(path.name, damage) for damage in plan.damages]

    def _write(
        self, segment: LogSegment, old: OpenFile, pieces: Sequence[KeptBatch | LostOffsets]
    ) -> None:
        path = segment.path(LOG)
        part = path.with_name(path.name + ".tmp")
        new, written, run = self._disk.open_empty(part), 0, bytearray()
        for piece in pieces:
            match piece:
                case LostOffsets(first, end):
                    run += filler(first, end)
                case KeptBatch(found, base_offset, epoch):
                    batch = bytearray(self._disk.read_at(old, found.position, found.size_bytes))
                    if (base_offset, epoch) != (found.base_offset, found.epoch):
                        patch_offset_and_epoch(batch, 0, base_offset, epoch)
                    run += batch
            if len(run) >= _WINDOW_BYTES:
                self._check_stop()
                self._disk.write_at(new, written, run)
                written, run = written + len(run), bytearray()
        self._disk.write_at(new, written, run)
        self._disk.fsync(new)
        self._disk.rename(part, path, durable=True)


class _Search:
    """Finds the sound batches of a file, at any position; used once."""

    def __init__(
        self, disk: Disk, file: OpenFile, start: int, limit: int, check_stop: CheckStop
    ) -> None:
        self._disk, self._file, self._size = disk, file, file.size()
        self._start, self._limit = start, limit
        self._check_stop = check_stop
        self._data, self._at = b"", 0  # a window of the file, and its position

    def batches(self) -> list[FoundBatch]:
        """Return all sound batches, in the order of the file."""
        found, position = [], 0
        while position + HEADER_SIZE <= self._size:
            header = self._sound(position)
            if header is None:
                claimed = self._header(position).size_bytes
                following = position + claimed
                if claimed < HEADER_SIZE or self._sound(following) is None:
                    position = self._next(position + 1)
                else:
                    position = following
                continue
            found.append(
                FoundBatch(
                    position,
                    header.size_bytes,
                    header.base_offset,
                    header.last_offset_delta + 1,
                    header.partition_leader_epoch,
                )
            )
            position += header.size_bytes
        return found

    def _next(self, position: int) -> int:
        """Return the position of the next sound batch with plausible offsets.

        It is the file's end if there is none. After damage batch boundaries are unknown, and a
        record's value may look like a batch. So its offsets must fit the segment.
        """
        while position + HEADER_SIZE <= self._size:
            self._look_at(position, _WINDOW_BYTES)
            at = self._data.find(MAGIC, position - self._at + MAGIC_POSITION)
            if at < 0:
                position = self._at + len(self._data) - MAGIC_POSITION
                if self._at + len(self._data) >= self._size:
                    break
                continue
            position = self._at + at - MAGIC_POSITION
            header = self._sound(position)
            if header is not None and self._start <= header.base_offset < self._limit:
                return position
            position += 1
        return self._size

    def _header(self, position: int) -> BatchHeader:
        self._look_at(position, HEADER_SIZE)
        return read_header(self._data, position - self._at)

    def _sound(self, position: int) -> BatchHeader | None:
        """Return the header of the sound batch at `position`; None if there is none."""
        if position + HEADER_SIZE > self._size:
            return None
        header = self._header(position)
        size = header.size_bytes
        if (
            header.magic != MAGIC
            or not HEADER_SIZE <= size <= self._size - position
            or header.last_offset_delta < 0
            or not 0 <= header.attributes <= _ATTRIBUTES_MAX
        ):
            return None
        self._look_at(position, size)
        return header if has_valid_crc(self._data, position - self._at, header) else None

    def _look_at(self, position: int, size: int) -> None:
        """Load at least `size` bytes from `position` on, less at the file's end."""
        if self._at <= position and position + size <= self._at + len(self._data):
            return
        self._check_stop()
        wanted = min(max(size, _WINDOW_BYTES), self._size - position)
        self._data, self._at = self._disk.read_at(self._file, position, wanted), position
