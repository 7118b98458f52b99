"""The segments of one log: their list, places of batches, creation and deletion.

One thread at a time changes the lists, see `lease`. Concurrent reads on pool threads use a copy
(`on_a_copy`): appends, rolls and drops continue. A read on the loop during an append on a pool
thread ends at `tail`, which is set when a batch is complete.

A log of thousands of segments removes them from its list in one step, in memory; their files are
renamed on a pool thread (`rename_leaving`). A start in between finds them and removes them again,
because the log start was durable before. A caller that needs one of their names renames the rest
first.
"""

import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from errno import ENOMEM
from pathlib import Path
from typing import Final, NoReturn, TypeVar
from zlib import crc32

from kafka_protocol.records.batch import HEADER_SIZE, BatchHeader, has_valid_crc, iter_batches
from local_log.config import LogConfig
from local_log.errors import CorruptMessage, WouldWait
from local_log.file_names import SEGMENT_SUFFIXES, path_of
from local_log.log.health import LogHealth
from local_log.log.results import LogRead
from local_log.producers.snapshots import ProducerSnapshots
from local_log.recovery.acceptance import note_sparse
from local_log.recovery.survey import OpenRequest
from local_log.segment.aborted_index import AbortedCache, AbortedIndexes
from local_log.segment.segment import LogSegment
from runtime.disk import Buffer, Disk, FileRegion
from runtime.disk_errors import half_done
from runtime.executors import make_mutex
from runtime.incidents import Incident

log = logging.getLogger(__name__)

T = TypeVar("T")

RECENT_BATCHES: Final = 512
"""Size of each of the two generations of recent places; the older one is dropped whole."""


class LogSegments:
    """Segments of one log.

    Attributes:
        all: Oldest first, the last one active.
        bases: Their base offsets.
        closed_bytes: Bytes of all but the active one.
        active: The segment that takes appends.
        roll_ms: Time from its first batch until the active segment is closed.
        tail: Log end (exclusive), the active segment and its bytes, all three of one moment.
        aborted: Segments with a transaction index.
    """

    __slots__ = (
        "_changes",
        "_config",
        "_directory",
        "_disk",
        "_has_gaps",
        "_has_logged_damage",
        "_health",
        "_leaving",
        "_older",
        "_recent",
        "_renaming",
        "_repairing",
        "_topic_partition",
        "aborted",
        "active",
        "all",
        "bases",
        "closed_bytes",
        "roll_ms",
        "tail",
    )

    def __init__(
        self,
        segments: list[LogSegment],
        request: OpenRequest,
        disk: Disk,
        health: LogHealth,
        cache: AbortedCache,
    ) -> None:
        self._topic_partition = request.topic_partition
        self._directory, self._disk = request.directory, disk
        self._config, self._health = request.config, health
        self.all = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.tail = 0, self.active, 0
        self.aborted = AbortedIndexes(segments, cache)
        # Counts truncations, and removals of segments from the lists before their files change
        # names. Pool threads that work on a copy repeat their work after a change.
        self._changes = 0
        self.closed_bytes = 0
        # Base offset -> position and size of the newest batches of the active segment.
        self._recent: dict[int, tuple[int, int]] = {}
        self._older: dict[int, tuple[int, int]] = {}
        self._has_logged_damage = self._has_gaps = False
        # Segments removed from the lists whose files are not renamed yet, oldest first.
        self._leaving: deque[tuple[LogSegment, ProducerSnapshots]] = deque()
        self._renaming = make_mutex()  # the loop may wait for it
        self._repairing = make_mutex()  # held while a file is written: `close` waits for it
        self.roll_ms = 0
        self._count_bytes()
        self._set_roll_ms()

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self.closed_bytes + self.active.size_bytes

    def index_of(self, offset: int) -> int:
        """Index of the segment that holds `offset`, if any does; 0 for lower offsets."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def end_of(self, segment: LogSegment, log_end: int) -> int:
        """Base offset of the next segment, or the log end (exclusive)."""
        if segment is self.active:
            return log_end
        return self.bases[bisect_right(self.bases, segment.base_offset)]

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings; index sizes apply from the next segment on."""
        self._config = config
        for segment in self.all:
            segment.index_interval_bytes = config.index_interval_bytes
        self._set_roll_ms()

    def _set_roll_ms(self) -> None:
        """Set `roll_ms`, with jitter so that many partitions do not roll at once."""
        config = self._config
        segment_ms = config.segment_ms
        if config.compacts:  # only closed segments are cleaned
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        limit = min(config.segment_jitter_ms, segment_ms)
        topic, partition = self._topic_partition
        seed = f"{topic}-{partition}-{self.active.base_offset}".encode()
        self.roll_ms = segment_ms - (crc32(seed) % limit if limit > 0 else 0)

    def _count_bytes(self) -> None:
        self.closed_bytes = sum(segment.size_bytes for segment in self.all[:-1])

    # -- where batches lie ----------------------------------------------------------------------

    def end_at(self, log_end: int) -> None:
        """Make everything written up to `log_end` (exclusive) visible to reads."""
        active = self.active
        self.tail = log_end, active, active.size_bytes

    def find(
        self, offset: int, max_bytes: int, end: int, *, min_one_batch: bool, may_wait: bool
    ) -> LogRead:
        """Find regions for `PartitionLog.read`; `offset` is in the segments and below `end`.

        Raises:
            WouldWait, CorruptMessage: From `locate`.
            OSError: The disk failed.
        """
        log_end, active, active_bytes = self.tail
        recent = None
        if offset >= active.base_offset:
            recent = self.recent_place(offset)
        if recent is not None:
            segment, base = active, offset
            position, first_size = recent
        else:
            found = self.locate(offset, log_end, may_wait=may_wait)
            if found is None:
                return LogRead([], 0, -1, offset)
            segment, position, header = found
            base, first_size = header.base_offset, header.size_bytes
        if base >= end:
            return LogRead([], 0, -1, offset)
        stop = active_bytes if segment is active else segment.size_bytes
        if end < log_end:
            stop = self.position_of(segment, end, log_end, may_wait=may_wait)
        if max_bytes < first_size:
            if not min_one_batch:
                return LogRead([], 0, -1, offset)
            max_bytes = first_size
        size = min(stop - position, max_bytes)
        if size <= 0:
            return LogRead([], 0, -1, offset)
        segment_end = log_end if segment is active else self.end_of(segment, log_end)
        upper_bound = min(end, segment_end)
        if position + size < stop:
            entry = segment.offset_index.first_entry_from(position + size, may_wait=may_wait)
            if entry is not None and entry.offset < upper_bound:
                upper_bound = entry.offset
        return LogRead([FileRegion(segment.file, position, size)], size, base, upper_bound)

    def locate(
        self, offset: int, log_end: int, *, may_wait: bool
    ) -> tuple[LogSegment, int, BatchHeader] | None:
        """Find the batch that holds `offset`, or the next one after a hole.

        Raises:
            CorruptMessage: A damaged batch may hold it. Its bytes are not sent: by its header they
                end before `offset`, and a client that checks no checksums would retry without end.
        """
        segments = self.all[self.index_of(offset) :]
        following, located = log_end, None
        for segment in segments:
            found = segment.find_batch(offset, may_wait=may_wait)
            if found is not None:
                following, located = found[1].base_offset, (segment, *found)
                size, size_max = found[1].size_bytes, segment.size_bytes - found[0]
                if found[1].last_offset_delta < 0 or not HEADER_SIZE <= size <= size_max:
                    self.refuse_damage(segment.file.path, found[0], offset)
                break
        if following > offset:
            position = segments[0].find_damage(offset, following)
            if position is not None:
                self.refuse_damage(segments[0].file.path, position, offset)
        return located

    def position_of(self, segment: LogSegment, end: int, log_end: int, *, may_wait: bool) -> int:
        """First byte in `segment` of the batch that contains or follows `end`."""
        if end >= self.end_of(segment, log_end):
            return segment.size_bytes
        recent = None
        if segment is self.active:
            recent = self.recent_place(end)
        if recent is not None:
            return recent[0]
        found = segment.find_batch(end, may_wait=may_wait)
        return segment.size_bytes if found is None else found[0]

    def check_resident(self, found: LogRead) -> None:
        """Check that the regions of a `find` are in memory.

        Raises:
            WouldWait: They are not.
        """
        for region in found.regions:
            if not self._disk.is_resident(region.file, region.position, region.size_bytes):
                raise WouldWait(str(region.file.path))

    def sound(self, found: LogRead) -> LogRead:
        """Check the batches of a `find`, and cut them before the first damaged one.

        For logs whose readers must never get a wrong byte. Reads the data, on this thread.

        Raises:
            CorruptMessage: The first batch is damaged.
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
            self.refuse_damage(region.file.path, region.position, expected)
        return found._replace(
            regions=[FileRegion(region.file, region.position, size)], size_bytes=size
        )

    def refuse_damage(self, path: Path | str, position: int, offset: int) -> NoReturn:
        """Raise that a batch is damaged, and log it once per log.

        Raises:
            CorruptMessage: Always.
        """
        problem = f"damaged batch at byte {position} of {path}: offset {offset}"
        if not self._has_logged_damage:
            self._has_logged_damage = True
            log.error(Incident.BATCH_DAMAGED.line(partition=self._topic_partition, what=problem))
        raise CorruptMessage(problem)

    def note_place(self, base_offset: int, position: int, size: int) -> None:
        """Note the place of a batch: reads at the log end then need no index or file."""
        recent = self._recent
        if len(recent) >= RECENT_BATCHES:
            self._older = recent
            recent = self._recent = {}
        recent[base_offset] = (position, size)

    def recent_place(self, base_offset: int) -> tuple[int, int] | None:
        """Position and size of the batch that begins there, in the active segment.

        None if unknown.
        """
        return self._recent.get(base_offset) or self._older.get(base_offset)

    def forget_places(self) -> None:
        """Clear all places: the active segment changed, or was truncated."""
        self._recent = {}
        self._older = {}

    def note_gap(self, first: int, end: int) -> None:
        """Note durably that the log has valid gaps, before [first, end), possibly empty, is one.

        The leader's cleaner made it. Otherwise a start would take the gap for damage and cut the
        log.

        Raises:
            KafkaStorageError: The disk failed.
        """
        if first < end and not self._has_gaps:
            try:
                note_sparse(self._disk, self._directory)
            except OSError as error:
                self._health.fail(error)
            self._has_gaps = True

    # -- rolls ------------------------------------------------------------------------------------

    def roll(self, base_offset: int, now_ms: int, begin: Callable[[int], None]) -> None:
        """Close the active segment and begin a new one.

        Args:
            base_offset: Of the new one, the log end.
            now_ms: Wall clock.
            begin: Called with `base_offset` once its files exist, before anything is closed.

        Raises:
            OSError: The disk failed; the active segment stays active, unless it is half closed.
        """
        self.active.prepare_inactive()
        try:
            segment = self._create(base_offset, now_ms)
            begin(base_offset)
        except OSError:
            # The old segment stays active, perhaps beyond this offset: no file may begin there.
            for suffix in SEGMENT_SUFFIXES:
                self._disk.unlink(path_of(self._directory, base_offset, suffix))
            raise
        try:
            self.active.become_inactive()
        except OSError as error:
            raise half_done(error, "a segment cannot be closed") from error
        self.all.append(segment)
        self.bases.append(base_offset)
        self.closed_bytes += self.active.size_bytes
        self.active = segment
        self.forget_places()
        self._set_roll_ms()

    def _create(self, base_offset: int, now_ms: int) -> LogSegment:
        segment = LogSegment.create(
            self._disk,
            self._directory,
            base_offset,
            index_bytes=self._config.segment_index_bytes,
            now_ms=now_ms,
        )
        segment.index_interval_bytes = self._config.index_interval_bytes
        return segment

    # -- cleaning ---------------------------------------------------------------------------------

    def closed(self, bases: Sequence[int]) -> list[LogSegment] | None:
        """Return the closed neighbours with these base offsets.

        None if they are no longer there.
        """
        first = bisect_left(self.bases, bases[0])
        end = first + len(bases)
        if self.bases[first:end] != list(bases) or end >= len(self.bases):
            return None
        return self.all[first:end]

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Replace some closed neighbours by one segment.

        Must precede the renaming of files, since readers need it.
        """
        first = bisect_left(self.bases, old[0].base_offset)
        new.index_interval_bytes = self._config.index_interval_bytes
        self.all[first : first + len(old)] = [new]
        self.bases[first : first + len(old)] = [new.base_offset]
        self._changes += 1
        self.aborted.changed(self.all)
        self.closed_bytes += new.size_bytes - sum(segment.size_bytes for segment in old)

    # -- deletion and truncation ------------------------------------------------------------------

    def take_oldest(self, count: int, snapshots: ProducerSnapshots) -> list[LogSegment]:
        """Remove the oldest ones from the lists; then call `rename_leaving`.

        Must precede the renaming of files, so that readers no longer find them.

        Args:
            count: Less than the number of segments.
            snapshots: Producer snapshots, from which theirs are removed already.
        """
        gone = self.all[:count]
        del self.all[:count]
        del self.bases[:count]
        self._changes += 1
        self.aborted.dropped_below(self.bases[0])
        self.closed_bytes -= sum(segment.size_bytes for segment in gone)
        self._leaving.extend((segment, snapshots) for segment in gone)
        return gone

    def rename_leaving(self) -> list[Path]:
        """Rename the files of removed segments; on any thread.

        Returns:
            New names of those renamed by this call.

        Raises:
            OSError: The disk failed; the segment is skipped until a restart.
        """
        renamed: list[Path] = []
        while True:
            with self._renaming:  # held for one segment
                if not self._leaving:
                    return renamed
                segment, snapshots = self._leaving.popleft()
                renamed += segment.rename_deleted()
                renamed += snapshots.rename_away(segment.base_offset)
                segment.release()
                if self._config.is_tiered:
                    # The log start is below this segment. If a power cut undoes this rename but not
                    # a later one, the log has a hole.
                    self._disk.fsync_path(self._directory)

    def end_if_cut(self, offset: int) -> int:
        """Return the log end after the batch that holds `offset` is removed."""
        segment = self.all[bisect_left(self.bases, offset) - 1]
        found = segment.find_batch(offset)
        return offset if found is None else min(offset, found[1].base_offset)

    def batches_end(self, end: int) -> int:
        """Return the end of the last batch below `end`; compaction may have removed later ones.

        Args:
            end: At or above the first base offset.
        """
        segment = self.all[max(bisect_left(self.bases, end) - 1, 0)]
        found = segment.base_offset
        for _, header in segment.batches(segment.offset_index.lookup(end - 1).position):
            if header.base_offset >= end:
                break
            found = header.next_offset
        return found

    def cut(self, end: int, delete: Callable[[list[Path]], None]) -> None:
        """Drop everything at and after `end`, which is a batch boundary; durably.

        Args:
            end: At or above the first base offset.
            delete: Called with the files of segments dropped as a whole.

        Raises:
            OSError: The disk failed.
        """
        self._changes += 1
        while self.bases[-1] >= end and len(self.bases) > 1:
            self.bases.pop()
            self._discard(self.all.pop(), delete)
            # A power cut must not restore one after another was deleted.
            self._disk.fsync_path(self._directory)
        self.active = self.all[-1]
        self.active.activate(
            index_bytes=self._config.segment_index_bytes,
            now_ms=self.active.created_ms or self.active.modified_ms(),
        )
        self.active.truncate_to(end)
        # Old names and sizes must not reappear behind later appends.
        self._disk.fsync(self.active.file)
        if (found := self.batches_end(end)) < end:
            # A compaction removed the batches before it. Only the name of a segment shows the log
            # end then; otherwise a start would find a lower one, and offsets would be given twice.
            self.note_gap(found, end)
            self.roll(end, self.active.created_ms, _without_snapshot)
        self._disk.fsync_path(self._directory)

    def restart(self, offset: int, delete: Callable[[list[Path]], None]) -> None:
        """Drop everything and begin an empty segment at `offset`; durably.

        Args:
            offset: Of the new segment.
            delete: Called with the files of the old ones.

        Raises:
            OSError: The disk failed.
        """
        self._changes += 1
        gone, self.all, self.bases = self.all, [], [offset]
        for segment in reversed(gone):
            self._discard(segment, delete)
        self.active = self._create(offset, now_ms=0)
        self.all.append(self.active)
        self._disk.fsync_path(self._directory)

    def _discard(self, segment: LogSegment, delete: Callable[[list[Path]], None]) -> None:
        """Rename and unlink a segment that was removed from the list."""
        self._changes += 1
        paths = segment.rename_deleted()
        segment.release()
        delete(paths)

    def truncated(self) -> None:
        """Recompute the state that depends on the segments, after `cut` or `restart`."""
        self._changes += 1
        self.forget_places()
        self.aborted.changed(self.all)
        self._count_bytes()
        self._set_roll_ms()

    def close(self) -> None:
        """Release all files of a log that its health shows as closed.

        Nothing is renamed or written any more: the directory may have a new name, and another log
        the old one.
        """
        with self._repairing, self._renaming:
            for segment, _ in self._leaving:
                segment.release()
            self._leaving.clear()
        for segment in self.all:
            segment.release()

    # -- on pool threads ------------------------------------------------------------------------

    def on_a_copy(self, work: Callable[[list[LogSegment]], T]) -> T:
        """Run `work` on a copy of the list of segments, again if some were removed meanwhile.

        A copy does not change during the work. Its files may be renamed, which is no failure of the
        disk.

        Raises:
            LogClosed: The log was closed meanwhile.
            KafkaStorageError: The disk failed.
        """
        while True:
            changes = self._changes
            try:
                result = work(list(self.all))
            except FileNotFoundError as error:
                if self._health.is_closed or changes == self._changes:
                    self._health.fail(error)
            except OSError as error:
                self._health.fail(error)
            else:
                if changes == self._changes:
                    return result

    def write_file(self, path: Path, data: Buffer) -> None:
        """Replace a file of a closed segment; the caller opens it and makes it durable.

        A lock permits one write at a time, because all use the same temporary name. The tier may
        request a segment again while a thread still repairs it for an earlier request.

        Raises:
            LogClosed: The log was closed.
            OSError: The disk failed.
        """
        with self._repairing:
            if self._health.is_closed:
                raise self._health.gone()
            self._disk.atomic_write(path, data, durable=False)


def fsync_between(segments: Sequence[LogSegment], start: int, end: int) -> bool:
    """Fsync the segments of records in [start, end).

    Returns:
        True if the names of some may not be durable yet, because they begin in this range.

    Raises:
        OSError: The disk failed.
    """
    if end <= start:
        return False
    names_are_new = False
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        if segment.base_offset < end and (is_last or segments[index + 1].base_offset > start):
            try:
                segment.fsync()
            except OSError as error:
                if error.errno == ENOMEM:  # written bytes may be lost
                    raise half_done(error, "fsync") from error
                raise
            names_are_new |= segment.base_offset >= start
    return names_are_new


def _without_snapshot(_base_offset: int) -> None:
    """Skip the snapshot: the producers' state is still that before the cut."""
