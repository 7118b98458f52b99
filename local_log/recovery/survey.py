"""Surveys a partition directory, read only: its files, and how far each segment is sound.

After an unclean stop it reads every segment from the recovery point on, or all segments if the
recovery point is unknown. It also reads every segment whose indexes do not fit it. Of the other
segments it reads only the first and the last batch.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.records.batch import HEADER_SIZE, MAGIC, read_header
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.config import LogConfig
from local_log.file_names import (
    EPOCH_CHECKPOINT,
    LOG,
    SWAP,
    parse_segment_file,
    path_of,
)
from local_log.recovery.acceptance import ACCEPTED, NOTHING, read_accepted
from local_log.recovery.verdict import LogSurvey, SegmentSurvey
from local_log.segment.reading import CheckStop, SegmentReading, proceed, read_segment
from local_log.segment.recovery import last_batch, needs_rebuild
from local_log.segment.segment import LogSegment
from local_log.small_files import SmallFiles
from runtime.disk import Disk, OpenFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """The log to open, and the facts about it that its own files do not have.

    Attributes:
        directory: Of this partition.
        config: The topic's settings.
        now_ms: Wall clock.
        recovery_point: Every offset below this (exclusive) was flushed. It is 0 for a log that no
            sound checkpoint lists, and None if it is unknown.
        log_start: From the checkpoint, None if it has none.
        high_watermark: From the checkpoint, 0 if it has none.
        is_clean: The last stop of this log directory was clean.
        was_compacted: A cleaner has worked here, so missing offsets are no fault.
        check_stop: Called about once for each MiB that is read. An exception from it ends the
            opening, and leaves the directory as a kill would.
        salvages: Damaged segments are rewritten from their sound batches, instead of the log being
            refused; see `salvage`.
    """

    topic_partition: TopicPartition
    directory: Path
    config: LogConfig
    now_ms: int
    recovery_point: int | None = 0
    log_start: int | None = None
    high_watermark: int = 0
    is_clean: bool = False
    was_compacted: bool = False
    check_stop: CheckStop = proceed
    salvages: bool = False


class _SwapSegment(LogSegment):
    """A segment of a cleaner whose files still have the suffix `.swap`, some or all of them."""

    __slots__ = ()

    def path(self, suffix: str) -> Path:
        """Path of one of its files: with `.swap` if such a file exists."""
        path = path_of(self.directory, self.base_offset, suffix)
        swap = path.with_name(path.name + SWAP)
        return swap if self._disk.exists(swap) else path

    def _open(self, suffix: str) -> OpenFile:
        return self._disk.open_read(self.path(suffix))


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Result of a survey: the facts for the verdict, and the state that recovery works on.

    Attributes:
        names: Names of all files in the directory.
        segments: The segments once an interrupted compaction is completed, oldest first.
        readings: By base offset; only of segments that were read whole.
        replaced: Base offsets of segments that an interrupted compaction has replaced.
        swaps: Names of the `.swap` files to rename. An index without its `.swap` log file is not
            listed: its segment was renamed before, or was never complete.
        chain_on_disk: The epoch chain in its file; empty if the file is missing or damaged.
    """

    survey: LogSurvey
    names: tuple[str, ...]
    segments: tuple[LogSegment, ...]
    readings: dict[int, SegmentReading]
    replaced: tuple[int, ...]
    swaps: tuple[str, ...]
    chain_on_disk: tuple[EpochEntry, ...]


class Surveyor:
    """Surveys one directory; used once."""

    def __init__(self, disk: Disk, request: OpenRequest, files: SmallFiles) -> None:
        self._disk = disk
        self._request = request
        self._files = files
        self._directory = request.directory
        self._readings: dict[int, SegmentReading] = {}
        # A cleaner was renaming the files of these segments. An index may still be that of the old
        # segment, so all of them are rebuilt.
        self._half_swapped: set[int] = set()
        self._may_lack_offsets = request.was_compacted or request.config.compacts

    def look(self) -> Surveyed:
        """Survey the directory.

        Raises:
            OSError: The disk failed.
        """
        request = self._request
        names = self._disk.list_dir(self._directory)
        found = [name for name in names if name.endswith(SWAP)]
        new = _bases_of([name.removesuffix(SWAP) for name in found])
        swaps = tuple(name for name in found if _base_of(name) in new)
        self._half_swapped = {base for base in map(_base_of, found) if base is not None}
        segments, replaced = self._segments(names, swaps)
        surveys = self._survey_all(segments)
        chain, problem = self._chain()
        survey = LogSurvey(
            tuple(surveys),
            chain,
            problem,
            request.recovery_point,
            request.log_start,
            request.high_watermark,
            request.is_clean,
            request.config.remote_storage_enable,
            self._may_lack_offsets,
            read_accepted(self._disk, self._directory) if ACCEPTED in names else NOTHING,
        )
        return Surveyed(
            survey,
            tuple(names),
            tuple(segments),
            self._readings,
            replaced,
            swaps,
            chain or (),
        )

    def _chain(self) -> tuple[tuple[EpochEntry, ...] | None, str]:
        try:
            data = self._files.read(EPOCH_CHECKPOINT)
            # A rename that was not yet durable leaves an empty file on some file systems.
            return (tuple(epoch_checkpoint.parse(data)), "") if data else (None, "empty")
        except FileNotFoundError:
            return None, "missing"
        except CorruptFileError as error:
            return None, str(error)

    # -- segments -------------------------------------------------------------------------------

    def _segments(
        self, names: Sequence[str], swaps: Sequence[str]
    ) -> tuple[list[LogSegment], tuple[int, ...]]:
        """Return the segments once an interrupted compaction is completed, and those replaced."""
        plain, swapped = _bases_of(names), _bases_of([name.removesuffix(SWAP) for name in swaps])
        new = [self._segment(_SwapSegment, base) for base in sorted(swapped)]
        replaced = set(plain & swapped)
        if new:
            # The new segments replace every old one that begins between the first base offset and
            # the end of the last of them, as in Kafka. The walk uses no index: it may be that of
            # the old segment. A cleaner never replaces the active segment, so an end beyond the
            # active segment's base offset is a changed bit.
            last_end = 0
            for _, header in new[-1].batches(0):
                last_end = header.next_offset
            end = min(last_end, max(plain, default=0))
            replaced |= {base for base in plain if new[0].base_offset <= base < end}
        old = [self._segment(LogSegment, base) for base in plain - replaced]
        segments = sorted([*new, *old], key=lambda segment: segment.base_offset)
        return segments, tuple(sorted(replaced))

    def _segment(self, kind: type[LogSegment], base_offset: int) -> LogSegment:
        segment = kind(self._disk, self._directory, base_offset, 0)
        segment.size_bytes = self._disk.size(segment.path(LOG))
        segment.index_interval_bytes = self._request.config.index_interval_bytes
        return segment

    def _survey_all(self, segments: Sequence[LogSegment]) -> list[SegmentSurvey]:
        request, surveys = self._request, []
        first = 0
        for index, segment in enumerate(segments):
            if request.recovery_point is not None and segment.base_offset <= request.recovery_point:
                first = index
        for index, segment in enumerate(segments):
            request.check_stop()
            next_base = segments[index + 1].base_offset if index + 1 < len(segments) else None
            survey = None
            is_settled = segment.base_offset not in self._half_swapped
            is_flushed = index < first or (request.is_clean and request.recovery_point is not None)
            if is_settled and is_flushed:
                survey = self._glance(segment, next_base)
            if next_base is None and survey and survey.end_offset != request.recovery_point:
                survey = None  # a log that was closed cleanly ends at its recovery point: read it
            surveys.append(survey or self._read(segment, next_base))
            segment.release()  # a log may have more segments than a process has descriptors
        return surveys

    def _read(self, segment: LogSegment, next_base: int | None) -> SegmentSurvey:
        request = self._request
        reading = read_segment(
            self._disk,
            segment,
            index_bytes=request.config.segment_index_bytes,
            next_base=next_base,
            check_stop=request.check_stop,
        )
        self._readings[segment.base_offset] = reading
        places = reading.epochs
        if reading.last_place is not None and reading.last_place not in places:
            places += (reading.last_place,)
        return SegmentSurvey(
            segment.base_offset,
            segment.size_bytes,
            True,
            reading.whole_bytes,
            reading.end_offset,
            reading.ending,
            reading.first_gap,
            reading.lacks_records,
            places,
            reading.doubtful_from,
        )

    def _glance(self, segment: LogSegment, next_base: int | None) -> SegmentSurvey | None:
        """Survey a segment by its first and last batch; None if it must be read whole."""
        if needs_rebuild(self._disk, segment):
            log.warning("indexes are missing or damaged, rebuilding: %s", segment.path(LOG))
            return None
        base, size = segment.base_offset, segment.size_bytes
        if size == 0:
            return SegmentSurvey(base, 0, False, 0, base)
        head = segment.read_bytes(0, HEADER_SIZE)
        if size < HEADER_SIZE or read_header(head).magic != MAGIC:
            return None
        first = read_header(head)
        end, whole, last = last_batch(segment)
        if last is None or last.magic != MAGIC or last.base_offset < first.base_offset:
            return None
        if not base <= first.base_offset < end:
            return None  # a changed bit: the checksum does not cover the base offset
        if next_base is None and first.base_offset > base and not self._may_lack_offsets:
            return None  # likewise: the active segment begins at the offset in its file name
        if whole != size or (next_base is not None and end > next_base):
            return None
        places = [EpochEntry(first.partition_leader_epoch, first.base_offset)]
        if last.base_offset > first.base_offset:
            places.append(EpochEntry(last.partition_leader_epoch, last.base_offset))
        return SegmentSurvey(base, size, False, size, end, places=tuple(places))


def _base_of(swap: str) -> int | None:
    """Base offset in the name of a `.swap` file; None for another kind of name."""
    parsed = parse_segment_file(swap.removesuffix(SWAP))
    return None if parsed is None else parsed[0]


def _bases_of(names: Sequence[str]) -> set[int]:
    parsed = map(parse_segment_file, names)
    return {found[0] for found in parsed if found is not None and found[1] == LOG}
