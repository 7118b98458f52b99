"""Opens a partition directory, whatever the last process left in it.

After a clean stop files are trusted as far as cheap checks go. After anything else every segment
from the recovery point on is read whole: the log is cut before the first batch that is torn or
damaged, or is missing, and indexes, epochs and producer state are made again from what is left.
Everything made from the log can be lost: only `.log` files, the epochs of offsets that are remote,
and the checkpoints are truth. See docs/decisions/holes-after-a-power-cut.md.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import epoch_checkpoint
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
from local_log.segment_recovery import (
    build_producers,
    last_batch,
    needs_rebuild,
    recover_segment,
)
from runtime.disk import Disk

_log = logging.getLogger(__name__)

_QUORUM_STATE = "quorum-state"
_CHECKPOINT = ".checkpoint"  # the metadata log's snapshots
_FLUSHED_END = "tidemark-flushed-end"  # the metadata log's, too
_OWN_NAMES = frozenset({EPOCH_CHECKPOINT, PARTITION_METADATA, _QUORUM_STATE, _FLUSHED_END})


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
        was_compacted: a cleaner has worked here, so offsets may be missing rightly.
    """

    directory: Path
    config: LogConfig
    recovery_point: int
    log_start: int | None
    is_clean: bool
    now_ms: int
    was_compacted: bool = False


class LogOpener:
    """Opens one directory; used once."""

    def __init__(self, disk: Disk, request: OpenRequest) -> None:
        self._disk = disk
        self._request = request
        self._directory = request.directory
        self._truncated = 0
        self._epochs_on_disk: list[EpochEntry] = []
        self._may_have_holes = request.was_compacted or request.config.compacts

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
        self._check_indexes(segments, epochs, snapshots)
        self._report_holes(segments)
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
        self._save_epochs(epochs.entries())
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
                if name not in _OWN_NAMES and not name.endswith(_CHECKPOINT):
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
        try:
            self._epochs_on_disk = epoch_checkpoint.parse(self._disk.read_file(path))
            return LeaderEpochCache(self._epochs_on_disk)
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
        self._disk.atomic_write(path, epoch_checkpoint.dump(epochs.entries()), durable=False)
        self._epochs_on_disk = epochs.entries()
        return epochs

    def _save_epochs(self, entries: list[EpochEntry]) -> None:
        """Keep what opening has found out; that something went need not be written.

        The next start would cut the same entries off again, and most starts cut one: the epoch in
        which nothing was written. Nor is it fsynced: opening the same files finds the same.
        """
        if not set(entries) <= set(self._epochs_on_disk):
            path = self._directory / EPOCH_CHECKPOINT
            self._disk.atomic_write(path, epoch_checkpoint.dump(entries), durable=False)

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
                end = self._recover(segments, segment, epochs, snapshots)
                self._drop_after_hole(segments, segment, end, epochs)

    def _drop_after_hole(
        self, segments: list[LogSegment], segment: LogSegment, end: int, epochs: LeaderEpochCache
    ) -> None:
        """Where a lost end left no torn bytes, the later segments go all the same.

        A file that was not flushed may come back shorter by whole batches, or not at all.
        """
        index = segments.index(segment)
        following = segments[index + 1] if index + 1 < len(segments) else None
        if self._may_have_holes or following is None or following.base_offset <= end:
            return
        _log.warning(
            "records are lost, the log is cut before the hole: path=%s end=%d next=%d "
            "later_segments=%d",
            segment.path(LOG),
            end,
            following.base_offset,
            len(segments) - index - 1,
        )
        self._drop(segments, index + 1)
        epochs.truncate_from_end(end)

    def _check_indexes(
        self, segments: list[LogSegment], epochs: LeaderEpochCache, snapshots: ProducerSnapshots
    ) -> None:
        for segment in list(segments):
            if segment in segments and needs_rebuild(self._disk, segment):
                _log.warning("indexes are missing or damaged, rebuilding: %s", segment.path(LOG))
                self._recover(segments, segment, epochs, snapshots)
            segment.release()  # a long log has more segments than a process may have files

    def _report_holes(self, segments: Sequence[LogSegment]) -> None:
        """What was flushed and is missing now was not lost by a stop of ours: a person should look.

        The rest stays readable; consumers pass over a hole as they do in a compacted log.
        """
        if self._may_have_holes:
            return
        for segment, following in pairwise(segments):
            end, _ = last_batch(segment)
            segment.release()
            if end < following.base_offset:
                _log.error(
                    "offsets are missing: path=%s first=%d last=%d",
                    segment.path(LOG),
                    end,
                    following.base_offset - 1,
                )

    def _recover(
        self,
        segments: list[LogSegment],
        segment: LogSegment,
        epochs: LeaderEpochCache,
        snapshots: ProducerSnapshots,
    ) -> int:
        """Make a segment's indexes again; if it had to be cut, the segments after it go.

        Returns:
            Its end offset (exclusive).
        """
        index = segments.index(segment)
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        producers = build_producers(
            segments[:index], snapshots, start=self._request.log_start or 0, end=segment.base_offset
        )
        cut, end, is_dense = recover_segment(
            self._disk,
            segment,
            epochs,
            producers,
            index_bytes=self._request.config.segment_index_bytes,
            end_offset=following,
        )
        self._may_have_holes |= not is_dense
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
            epochs.truncate_from_end(end)
        return end

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
        end, whole = last_batch(last)
        if whole != last.size_bytes:
            _log.warning("torn tail after a clean stop: %s", last.path(LOG))
            self._recover(segments, last, epochs, snapshots)
            end, _ = last_batch(last)
        return end
