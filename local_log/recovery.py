"""Opens a partition directory, whatever the last process left in it.

After a clean stop files are trusted as far as cheap checks go. After anything else every segment
from the
recovery point on is read whole: the log is cut before the first batch that is torn or damaged, and
indexes, epochs and producer state are made again from what is left. Everything made from the log
can be
lost: only `.log` files, the epochs of offsets that are remote, and the checkpoints are truth.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.records.batch import HEADER_SIZE, BatchHeader, crc32c_of, read_header
from kafka_protocol.types import EpochEntry
from local_log.config import LogConfig
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.producer_snapshots import ProducerSnapshots
from local_log.producer_state import ProducerStates
from local_log.segment import LogSegment
from local_log.segment_files import (
    CLEANED,
    DELETED,
    EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file,
    path_of,
)
from local_log.transactions import note_batch
from runtime.disk import Disk

_log = logging.getLogger(__name__)

_WINDOW_BYTES = 1 << 20
_LENGTH_OVERHEAD = 12
_CRC_START = 21


@dataclass(slots=True)
class OpenedLog:
    """What was found in a directory.

    Attributes:
        segments: oldest first, the last one active.
        log_start_known: False if a tiered partition's log start was in a checkpoint that is gone.
        truncated_bytes: bytes cut off because they were torn or damaged.
    """

    segments: list[LogSegment]
    epochs: LeaderEpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    log_start_known: bool = True
    truncated_bytes: int = 0


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """What the caller knows about the directory.

    Attributes:
        recovery_point: below this everything was flushed.
        log_start: from the checkpoint, None if it has none.
        is_clean: the last stop of this log directory was clean.
    """

    directory: Path
    config: LogConfig
    recovery_point: int
    log_start: int | None
    is_clean: bool
    now_ms: int


class LogOpener:
    """Opens one directory; used once."""

    def __init__(self, disk: Disk, request: OpenRequest) -> None:
        self._disk = disk
        self._request = request
        self._directory = request.directory
        self._truncated = 0

    def open(self) -> OpenedLog:
        """Open it, repairing what needs repair.

        Raises:
            OSError: the disk failed.
        """
        request = self._request
        names = self._tidy()
        segments = self._find_segments(names)
        snapshots = ProducerSnapshots(self._disk, self._directory, names)
        epochs = self._read_epochs(segments)
        if not request.is_clean:
            self._recover_from(segments, request.recovery_point, epochs, snapshots)
        for segment in list(segments):
            if segment in segments and needs_rebuild(self._disk, segment):
                _log.warning("indexes are missing or damaged, rebuilding: %s", segment.path(LOG))
                self._recover(segments, segment, epochs, snapshots)
        log_end = self._end_of(segments, epochs, snapshots)
        local_start = segments[0].base_offset if segments else log_end
        log_start, known = self._log_start(local_start)
        if log_end < log_start:
            _log.warning(
                "log ends before its start, beginning anew: path=%s end=%d start=%d",
                self._directory,
                log_end,
                log_start,
            )
            self._drop(segments, 0)
            log_end = log_start
        if not segments:
            segments.append(self._new_segment(log_end))
        epochs.truncate_from_end(log_end)
        if known:
            epochs.truncate_from_start(log_start)
        snapshots.remove_strays(segment.base_offset for segment in segments)
        snapshots.remove([offset for offset in snapshots.offsets if offset > log_end])
        producers = build_producers(segments, snapshots, start=log_start, end=log_end)
        for segment in segments[:-1]:
            segment.release()  # checked: who reads an index again maps it again
        segments[-1].activate(index_bytes=request.config.segment_index_bytes, now_ms=request.now_ms)
        for segment in segments:
            segment.index_interval_bytes = request.config.index_interval_bytes
        return OpenedLog(
            segments, epochs, producers, snapshots, log_start, log_end, known, self._truncated
        )

    # -- files ----------------------------------------------------------------------------------

    def _tidy(self) -> list[str]:
        """Remove what a stopped process left half done; finish a compaction's last step."""
        disk, directory = self._disk, self._directory
        names = disk.list_dir(directory)
        swapped = {name.removesuffix(SWAP) for name in names if name.endswith(SWAP)}
        for name in names:
            path = directory / name
            if name.endswith((DELETED, CLEANED, ".tmp")):
                disk.unlink(path)
            elif name.endswith(SWAP):
                disk.rename(path, directory / name.removesuffix(SWAP))
        if swapped:
            _log.warning("finished a compaction: path=%s files=%d", directory, len(swapped))
        names = disk.list_dir(directory)
        logs = {p[0] for p in map(parse_segment_file, names) if p is not None and p[1] == LOG}
        for name in names:
            parsed = parse_segment_file(name)
            if parsed is None:
                if name not in (EPOCH_CHECKPOINT, PARTITION_METADATA):
                    _log.info("unknown file is left alone: %s", directory / name)
            elif parsed[1] != PRODUCER_SNAPSHOT and parsed[0] not in logs:
                _log.warning("index without a log is removed: %s", directory / name)
                disk.unlink(directory / name)
        return disk.list_dir(directory)

    def _find_segments(self, names: Sequence[str]) -> list[LogSegment]:
        segments = []
        for name in names:
            parsed = parse_segment_file(name)
            if parsed is not None and parsed[1] == LOG:
                size = self._disk.size(self._directory / name)
                segment = LogSegment(self._disk, self._directory, parsed[0], size)
                segment.index_interval_bytes = self._request.config.index_interval_bytes
                segments.append(segment)
        return segments

    def _new_segment(self, base_offset: int) -> LogSegment:
        return LogSegment.create(
            self._disk,
            self._directory,
            base_offset,
            index_bytes=self._request.config.segment_index_bytes,
            now_ms=self._request.now_ms,
        )

    def _drop(self, segments: list[LogSegment], index: int) -> None:
        """Remove the segments from number `index` on."""
        for segment in segments[index:]:
            self._truncated += segment.size_bytes
            for suffix in (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX):
                self._disk.unlink(path_of(self._directory, segment.base_offset, suffix))
        del segments[index:]

    def _read_epochs(self, segments: Sequence[LogSegment]) -> LeaderEpochCache:
        path = self._directory / EPOCH_CHECKPOINT

        def save(entries: list[EpochEntry]) -> None:
            # Opening the same files again would find the same: no fsync holds up the start.
            self._disk.atomic_write(path, epoch_checkpoint.dump(entries), durable=False)

        try:
            return LeaderEpochCache(epoch_checkpoint.parse(self._disk.read_file(path)), save)
        except FileNotFoundError:
            reason = "missing"
        except CorruptFileError as error:
            reason = str(error)
        if segments:
            _log.warning("epoch chain is read from the log: path=%s reason=%s", path, reason)
        epochs = LeaderEpochCache()
        for segment in segments:
            for _, header in segment.batches(0):
                if header.partition_leader_epoch >= 0:
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
        save(epochs.entries())
        return LeaderEpochCache(epochs.entries(), save)

    def _log_start(self, local_start: int) -> tuple[int, bool]:
        checkpoint = self._request.log_start
        if not self._request.config.remote_storage_enable:
            return max(checkpoint or 0, local_start), True
        if checkpoint is None:
            return local_start, local_start == 0
        return checkpoint, True

    # -- recovery -------------------------------------------------------------------------------

    def _recover_from(
        self,
        segments: list[LogSegment],
        recovery_point: int,
        epochs: LeaderEpochCache,
        snapshots: ProducerSnapshots,
    ) -> None:
        first = 0
        for index, segment in enumerate(segments):
            if segment.base_offset <= recovery_point:
                first = index
        for segment in segments[first:]:
            if segment in segments:
                self._recover(segments, segment, epochs, snapshots)

    def _recover(
        self,
        segments: list[LogSegment],
        segment: LogSegment,
        epochs: LeaderEpochCache,
        snapshots: ProducerSnapshots,
    ) -> None:
        """Make a segment's indexes again; if it had to be cut, the segments after it go."""
        index = segments.index(segment)
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        producers = build_producers(
            segments[:index], snapshots, start=self._request.log_start or 0, end=segment.base_offset
        )
        cut = recover_segment(
            self._disk,
            segment,
            epochs,
            producers,
            index_bytes=self._request.config.segment_index_bytes,
            end_offset=following,
        )
        if cut:
            self._truncated += cut
            _log.warning(
                "log is cut: path=%s kept_bytes=%d cut_bytes=%d later_segments=%d",
                segment.path(LOG),
                segment.size_bytes,
                cut,
                len(segments) - index - 1,
            )
            self._drop(segments, index + 1)
            epochs.truncate_from_end(producers.end_offset)

    def _end_of(
        self,
        segments: list[LogSegment],
        epochs: LeaderEpochCache,
        snapshots: ProducerSnapshots,
    ) -> int:
        """The log end: after the last whole batch of the last segment."""
        if not segments:
            return self._request.log_start or 0
        last = segments[-1]
        end, whole = _last_batch(last)
        if whole != last.size_bytes:
            _log.warning("torn tail after a clean stop: %s", last.path(LOG))
            self._recover(segments, last, epochs, snapshots)
            end, _ = _last_batch(last)
        return end


def _last_batch(segment: LogSegment) -> tuple[int, int]:
    """The offset and the byte after the last whole batch."""
    entry = segment.offset_index.lookup(2**62)
    end, position = segment.base_offset, entry.position
    for at, header in segment.batches(entry.position):
        end = header.next_offset
        position = at + header.size_bytes
    return end, position


def needs_rebuild(disk: Disk, segment: LogSegment) -> bool:
    """Whether a segment's indexes are missing, damaged, or empty where they cannot be."""
    for index in (segment.offset_index, segment.time_index):
        if not disk.exists(index.path) or disk.size(index.path) % index.entry_size:
            return True
    if segment.size_bytes == 0:
        return disk.size(segment.offset_index.path) > 0 or disk.size(segment.time_index.path) > 0
    index = segment.offset_index
    entry = index.lookup(2**62)
    newest = segment.time_index.last_entry()
    if index.entries and (
        entry.offset <= segment.base_offset or entry.position >= segment.size_bytes
    ):
        return True  # a zero tail (never trimmed), or it belongs to another log
    if segment.time_index.entries and newest.offset < segment.base_offset:
        return True
    if (
        segment.time_index.entries
        and newest.timestamp <= 0
        and newest.offset == (segment.base_offset)
    ):
        return True
    if index.entries and segment.time_index.entries:
        return False
    if segment.time_index.entries > 1 and not index.entries:
        return True  # they get their entries together, but for one at each close
    # Empty may be right: few bytes, one batch, or no timestamps. Then a look at the batches tells.
    return _should_have_entries(segment)


def _should_have_entries(segment: LogSegment) -> bool:
    # A reopened segment counts its interval anew, so the first entry may come late.
    wants_offset, newest = False, -1
    for position, header in segment.batches(0):
        newest = max(newest, header.max_timestamp)
        if position > 2 * segment.index_interval_bytes:
            wants_offset = True
            break
    return (wants_offset and not segment.offset_index.entries) or (
        newest >= 0 and not segment.time_index.entries
    )


def recover_segment(
    disk: Disk,
    segment: LogSegment,
    epochs: LeaderEpochCache | None,
    producers: ProducerStates,
    *,
    index_bytes: int,
    end_offset: int | None = None,
) -> int:
    """Read a whole segment, cut it before the first bad batch, make its indexes again.

    Args:
        disk: where it is.
        segment: has its base offset; all else is found anew.
        epochs: gets the epochs found; None if they are known.
        producers: state before the segment; after it on return.
        index_bytes: room for each index while it is written.
        end_offset: first offset of the next segment, which this one must not reach into.

    Returns:
        Bytes cut off.
    """
    found = disk.size(segment.path(LOG))
    segment.offset_index.release()
    segment.time_index.release()
    segment.offset_index.reset(index_bytes)
    segment.time_index.reset(index_bytes)
    disk.unlink(segment.path(TXN_INDEX))
    segment.size_bytes = 0
    segment.bytes_since_entry = 0
    segment.first_timestamp = None
    segment.set_max_timestamp(-1, segment.base_offset)
    expected = segment.base_offset
    producers.end_offset = max(producers.end_offset, segment.base_offset)
    for header, batch in _valid_batches(disk, segment, found):
        if header.base_offset < expected or header.last_offset_delta < 0:
            break
        if end_offset is not None and header.last_offset >= end_offset:
            break
        expected = header.next_offset
        epoch = header.partition_leader_epoch
        if epochs is not None and epoch >= 0 and epoch > _latest(epochs):
            epochs.assign(epoch, header.base_offset)
        aborted = note_batch(producers, header, partial(bytes, batch))
        if aborted is not None:
            segment.append_aborted(aborted)
        segment.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)
    if segment.size_bytes != found:
        with_write = disk.open_write(segment.path(LOG))
        disk.truncate(with_write, segment.size_bytes)
        disk.fsync(with_write)
    segment.become_inactive()
    return found - segment.size_bytes


def _latest(epochs: LeaderEpochCache) -> int:
    return -1 if epochs.latest_epoch is None else epochs.latest_epoch


def _valid_batches(
    disk: Disk, segment: LogSegment, size: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Header and bytes of each batch from the start, up to the first that is torn or damaged."""
    file = disk.open_read(segment.path(LOG))
    position, window, start = 0, memoryview(b""), 0
    while position + HEADER_SIZE <= size:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start = memoryview(disk.read_at(file, position, _WINDOW_BYTES)), position
            at = 0
            if len(window) < HEADER_SIZE:
                return
        header = read_header(window, at)
        batch_size = header.batch_length + _LENGTH_OVERHEAD
        if batch_size < HEADER_SIZE or position + batch_size > size or header.magic != 2:
            return
        if at + batch_size > len(window):
            wanted = max(_WINDOW_BYTES, batch_size)
            window, start, at = memoryview(disk.read_at(file, position, wanted)), position, 0
        batch = window[at : at + batch_size]
        if crc32c_of(batch, _CRC_START, batch_size - _CRC_START) != header.crc:
            return
        yield header, batch
        position += batch_size


def build_producers(
    segments: Sequence[LogSegment], snapshots: ProducerSnapshots, *, start: int, end: int
) -> ProducerStates:
    """Make the producer state at `end`: the newest snapshot, and the batches after it.

    Args:
        segments: those below `end`, checked.
        snapshots: of this directory.
        start: the log start offset; snapshots below it say nothing about this log.
        end: first offset that does not count.
    """
    producers = ProducerStates()
    producers.clear(start)
    snapshot = snapshots.load_newest(start=start, end=end)
    if snapshot is not None:
        producers.load(snapshot[1], snapshot[0])
    done = producers.end_offset
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end
        if following <= done or segment.base_offset >= end:
            continue
        position = segment.offset_index.lookup(done).position
        for at, header in segment.batches(position):
            if header.base_offset >= end:
                break
            if header.last_offset >= done:
                note_batch(producers, header, partial(segment.read_bytes, at, header.size_bytes))
    producers.end_offset = end
    return producers
