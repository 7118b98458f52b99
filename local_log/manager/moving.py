"""Moves a log to another log directory of its broker, while it is read and written (KIP-113).

Its segments are copied into a future directory there (`future_dirs`), unchanged, piece by piece on
a pool thread, while the log continues. The loop compares the copy with the present segments. So
data that retention, compaction or a truncation removes from the log is removed from the copy.
Segments that a truncation may have changed are copied again. When little is missing, the log is
rolled and leased, the rest is copied and made durable, and the copy replaces the log
(`replacement`).

Remote segments stay where they are. The local part of a tiered log is its local segments, epoch
chain, producers and acceptances, and all of these are copied.

The future directory and its marker are durable before the move is reported as accepted. A start
finds them and begins the move again from scratch, see `Loaded.moves`.
"""

import errno
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_protocol.errors import TidemarkError
from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.files.meta_properties import dump_partition_metadata
from kafka_protocol.files.segment_names import renamed_dir
from kafka_protocol.types import TopicPartition
from local_log.checked_files import SIDECAR, CheckedFiles, Owner
from local_log.errors import KafkaStorageError
from local_log.file_names import (
    EPOCH_CHECKPOINT,
    FUTURE_MARKER,
    LOG,
    MOVED_MARK,
    OFFSET_INDEX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    SEGMENT_SUFFIXES,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file,
    path_of,
)
from local_log.log.partition_log import PartitionLog
from local_log.manager.dir_failures import DirFailures
from local_log.manager.future_dirs import (
    Marker,
    Moved,
    begin_at,
    dump_marker,
    moved_mark,
    remove_future,
)
from local_log.manager.log_dir import CLEANER_OFFSETS, LogDir
from local_log.manager.replacement import Future
from local_log.recovery.acceptance import ACCEPTED
from local_log.segment.segment import LogSegment
from runtime.disk import Disk, OpenFile
from runtime.ports import Ports

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1 << 20
"""Size of one read and write."""
STEP_BYTES: Final = 8 << 20
"""Limit of one call on the pool."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class _SourceFailedError(TidemarkError):
    """A file of the log cannot be read."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class SegmentDeleted(KafkaStorageError):
    """A file to be copied has left the log meanwhile."""


@dataclass(slots=True)
class _Copied:
    """Copied part of one segment.

    Attributes:
        end_offset: Of the closed segment; None until it is copied whole, with its indexes.
    """

    segment: LogSegment
    size_bytes: int = 0
    end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One call on the pool.

    Attributes:
        drops: Segments whose copies are deleted: base offset, and end offset if copied whole.
        segment: Its bytes [start, end) are copied; None if there are only `drops`.
        closes_at: End offset (exclusive) if the segment is closed and `end` is its size. Then its
            indexes and the snapshot there are copied, and all is made durable.
    """

    drops: tuple[tuple[int, int | None], ...] = ()
    segment: LogSegment | None = None
    start: int = 0
    end: int = 0
    closes_at: int | None = None


class LogMove:
    """One move; owned by the loop.

    Attributes:
        log: The log to copy; replaced if the partition's log is replaced meanwhile.
        source: Its log directory.
        target: Log directory that it moves to.
        path: Of the future directory.
        needed_bytes: Bytes still to copy of all moves to the target when this one was planned.
        is_over: It is completed or abandoned.
    """

    def __init__(self, log: PartitionLog, source: LogDir, target: LogDir, path: Path) -> None:
        self.log, self.source, self.target, self.path = log, source, target, path
        self.topic_partition = log.topic_partition
        self.needed_bytes = 0
        self.is_over = False
        self._copied: dict[int, _Copied] = {}
        self._cuts: deque[int] = deque()  # appended by pool threads, too

    @property
    def copied_bytes(self) -> int:
        """Bytes of segments in the future directory."""
        return sum(one.size_bytes for one in self._copied.values())

    @property
    def bytes_left(self) -> int:
        """Bytes of segments that are not copied yet."""
        left = 0
        for segment in self.log.segments.all:
            copied = self._copied.get(segment.base_offset)
            has = copied is not None and copied.segment is segment
            left += segment.size_bytes - (copied.size_bytes if copied and has else 0)
        return left

    @property
    def offset_lag(self) -> int:
        """Offsets that are not copied yet, interpolated by bytes within a segment."""
        for segment in self.log.segments.all:
            copied = self._copied.get(segment.base_offset)
            has = copied.size_bytes if copied is not None and copied.segment is segment else 0
            if has < segment.size_bytes:
                end = self.log.log_end_offset
                count = self.log.segments.end_of(segment, end) - segment.base_offset
                return end - segment.base_offset - count * has // segment.size_bytes
        return 0

    def cut(self, end_offset: int) -> None:
        """Note that the log is about to be cut; on any thread."""
        self._cuts.append(end_offset)

    def follow(self, log: PartitionLog, source: LogDir) -> None:
        """Continue with the log that replaced the partition's, and its directory."""
        self.log, self.source = log, source

    def forget(self, base_offset: int) -> None:
        """Drop the copy of a segment from the count."""
        self._copied.pop(base_offset, None)

    def has_copied(self, base_offset: int) -> bool:
        """True if a part of the segment that begins there is copied."""
        return base_offset in self._copied

    def next_step(self) -> Step | None:
        """Return the next step, which counts as copied until `forget`; None: nothing for now."""
        segments = self.log.segments.all
        here = {segment.base_offset: segment for segment in segments}
        end = min((self._cuts.popleft() for _ in range(len(self._cuts))), default=None)
        gone = [one for one in self._copied.values() if _is_gone(one, here, end)]
        if gone:
            for one in gone:
                del self._copied[one.segment.base_offset]
            return Step(tuple((one.segment.base_offset, one.end_offset) for one in gone))
        active = self.log.segments.active
        for segment in segments:
            base, is_closed = segment.base_offset, segment is not active
            copied = self._copied.get(base)
            start = 0 if copied is None else copied.size_bytes
            is_whole = copied is not None and copied.end_offset is not None
            if is_whole and is_closed:
                continue
            if segment.is_moving:
                return None  # its files are being renamed
            stop = min(segment.size_bytes, start + STEP_BYTES)
            closes = is_closed and stop == segment.size_bytes
            if start == stop and not closes:
                continue
            closes_at = self.log.segments.end_of(segment, 0) if closes else None
            self._copied[base] = _Copied(segment, stop, closes_at)
            return Step((), segment, start, stop, closes_at)
        return None


def _is_gone(copied: _Copied, here: dict[int, LogSegment], cut: int | None) -> bool:
    """True if a segment has left the log, or a truncation may have changed it."""
    if here.get(copied.segment.base_offset) is not copied.segment:
        return True
    return cut is not None and (copied.end_offset is None or copied.end_offset > cut)


class LogMoves:
    """The moves of a broker.

    Attributes:
        under_way: Moves by partition; changed on the loop.
    """

    def __init__(self, ports: Ports, failures: DirFailures) -> None:
        self._disk, self._rng, self._failures = ports.disk, ports.rng, failures
        self.under_way: dict[TopicPartition, LogMove] = {}

    def cut(self, tp: TopicPartition, end_offset: int) -> None:
        """Note that a log is about to be cut; on any thread."""
        move = self.under_way.get(tp)
        if move is not None:
            move.cut(end_offset)

    def plan(self, log: PartitionLog, source: LogDir, target: LogDir) -> LogMove:
        """Plan a move for `begin`; on the loop."""
        path = target.path / renamed_dir(log.topic_partition, self._rng.uuid(), "future")
        move = self.under_way[log.topic_partition] = LogMove(log, source, target, path)
        coming = (one for one in self.under_way.values() if one.target is target)
        move.needed_bytes = sum(one.bytes_left for one in coming)
        return move

    # -- on pool threads

    def begin(self, move: LogMove) -> None:
        """Create the future directory, durably.

        Raises:
            KafkaStorageError: The disk failed, or has too little room.
        """
        disk, size = self._disk, move.needed_bytes
        marker = Marker(
            move.log.topic_id, move.topic_partition, 0, 0, moved=Moved(move.source.directory_id)
        )
        with self._watched(move):
            free = disk.free_bytes(move.target.path)
            if size > free:
                raise KafkaStorageError(
                    f"{size} bytes are to be moved to {move.target.path}, and {free} are free: "
                    f"make room there, or move {move.topic_partition} elsewhere"
                )
            disk.make_dirs(move.path)
            disk.atomic_write(move.path / FUTURE_MARKER, dump_marker(marker))
            disk.fsync_path(move.target.path)

    def copy(self, move: LogMove, step: Step) -> bool:
        """Execute a step.

        Returns:
            False: a file of the log was deleted or changed meanwhile; call `forget` for its
                segment.

        Raises:
            KafkaStorageError: A disk failed, or is full; the move must end.
        """
        try:
            with self._watched(move):
                self._copy(move, step)
        except SegmentDeleted:
            return False
        return True

    def sync(self, move: LogMove, segment: LogSegment) -> None:
        """Make the copied part of the active segment durable, to shorten the last step.

        Raises:
            KafkaStorageError: The disk failed.
        """
        with self._watched(move):
            path = path_of(move.path, segment.base_offset, LOG)
            if self._disk.exists(path):
                self._disk.fsync_path(path)

    def finish(self, move: LogMove, steps: Iterable[Step]) -> Future:
        """Copy the rest of a log that is leased and rolled; complete and durable on return.

        Args:
            move: Its segments are copied, except for `steps`.
            steps: The rest.

        Raises:
            KafkaStorageError: A disk failed, or a file of the log is gone.
        """
        old, target = move.log, move.target
        cleaned = move.source.entry(CLEANER_OFFSETS, move.topic_partition)
        marker = Marker(
            old.topic_id,
            move.topic_partition,
            old.log_end_offset,
            old.log_start_offset,
            is_complete=True,
            moved=Moved(
                move.source.directory_id,
                old.high_watermark,
                -1 if cleaned is None else cleaned,
            ),
        )
        old.producers.write_due()
        with self._watched(move):
            for step in steps:
                self._copy(move, step)
            self._write_small_files(move)
            begin_at(target, marker)
            self._disk.atomic_write(move.path / FUTURE_MARKER, dump_marker(marker))
        return Future(old, target, move.path, marker)

    def drop(self, move: LogMove) -> None:
        """Remove the future directory; after a failure the next start takes the rest for a move."""
        self.drop_path(move.topic_partition, move.target, move.path)

    def drop_path(self, tp: TopicPartition, target: LogDir, path: Path) -> None:
        """Remove the future directory of an earlier incarnation in the same way."""
        if not target.works:
            return
        try:
            if self._disk.exists(path):
                remove_future(self._disk, tp, path, self._rng.uuid())
        except OSError as error:
            self._failures.blame(target, error)

    # -- files

    def _write_small_files(self, move: LogMove) -> None:
        old, path, disk = move.log, move.path, self._disk
        present = self._without_strays(move)
        active = old.segments.active
        assert active.size_bytes == 0, "it was rolled"
        segment = LogSegment.create(
            disk,
            path,
            active.base_offset,
            index_bytes=old.config.segment_index_bytes,
            now_ms=active.created_ms,
        )
        segment.become_inactive()
        segment.release()
        names = [SIDECAR, PARTITION_METADATA, EPOCH_CHECKPOINT, MOVED_MARK]
        for offset in old.producers.snapshots.offsets:
            source = old.producers.snapshots.path(offset)
            if source.name not in present and _exists(disk, source):
                self._copy_file(source, path / source.name)
                names.append(source.name)
        if _exists(disk, old.directory / ACCEPTED):
            self._copy_file(old.directory / ACCEPTED, path / ACCEPTED)
            names.append(ACCEPTED)
        files = CheckedFiles(disk, path, owner=Owner(old.topic_id, old.partition))
        files.begin(
            {
                PARTITION_METADATA: dump_partition_metadata(old.topic_id),
                EPOCH_CHECKPOINT: epoch_checkpoint.dump(old.epochs.entries()),
            }
        )
        disk.atomic_write(path / MOVED_MARK, moved_mark(move.target.directory_id), durable=False)
        for name in names:
            disk.fsync_path(path / name)
        disk.fsync_path(path_of(path, active.base_offset, LOG))
        disk.fsync_path(path)

    def _without_strays(self, move: LogMove) -> set[str]:
        """Remove files of segments and snapshots that left the log.

        Returns the names of the rest.
        """
        snapshots, names = set(move.log.producers.snapshots.offsets), set()
        for name in self._disk.list_dir(move.path):
            parsed = parse_segment_file(name)
            if parsed is None:
                is_stray = False
            elif parsed[1] == PRODUCER_SNAPSHOT:
                is_stray = parsed[0] not in snapshots
            else:
                is_stray = not move.has_copied(parsed[0])
            if is_stray:
                self._disk.unlink(move.path / name)
            else:
                names.add(name)
        return names

    def _copy(self, move: LogMove, step: Step) -> None:
        disk, path = self._disk, move.path
        for base, end in step.drops:
            for suffix in (*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT):
                disk.unlink(path_of(path, base, suffix))
            if end is not None:
                disk.unlink(path_of(path, end, PRODUCER_SNAPSHOT))
        segment = step.segment
        if segment is None:
            return
        base = segment.base_offset
        source = _opened(disk, segment.path(LOG))
        target = disk.open_append(path_of(path, base, LOG))
        if target.size() != step.start:
            disk.truncate(target, step.start)
        position = step.start
        while position < step.end:
            data = _read(disk, source, position, min(CHUNK_BYTES, step.end - position))
            if not data:
                raise SegmentDeleted(f"{source.path} has become shorter")
            disk.append(target, data)
            position += len(data)
        if step.closes_at is not None:
            files = [segment.path(suffix) for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)]
            for file in (*files, path_of(segment.directory, step.closes_at, PRODUCER_SNAPSHOT)):
                copy = path / file.name.removesuffix(SWAP)
                disk.unlink(copy)
                if _exists(disk, file):
                    self._copy_file(file, copy)
                    disk.fsync_path(copy)
            # The age of records without timestamps is that of their file.
            disk.set_modified_ms(path_of(path, base, LOG), _modified_ms(disk, source))
            disk.fsync(target)

    def _copy_file(self, source: Path, target: Path) -> None:
        disk = self._disk
        file = _opened(disk, source)
        copy = disk.open_empty(target)
        position = 0
        while data := _read(disk, file, position, CHUNK_BYTES):
            disk.write_at(copy, position, data)
            position += len(data)

    @contextmanager
    def _watched(self, move: LogMove) -> Iterator[None]:
        """Attribute an error to one of the two disks; a full one can still be read."""
        target = move.target
        if not target.works:
            raise KafkaStorageError(f"{target.path} is offline: {target.failure}")
        try:
            yield
        except _SourceFailedError as failed:
            if isinstance(failed.error, FileNotFoundError):
                raise SegmentDeleted(str(failed.error)) from failed
            move.log.health.fail(failed.error)
        except OSError as error:
            if error.errno not in _FULL:
                self._failures.blame(target, error)
            raise KafkaStorageError(f"nothing can be copied to {target.path}: {error}") from error


def _opened(disk: Disk, path: Path) -> OpenFile:
    try:
        return disk.open_read(path)
    except OSError as error:
        raise _SourceFailedError(error) from error


def _read(disk: Disk, file: OpenFile, position: int, size: int) -> bytes:
    try:
        return disk.read_at(file, position, size)
    except OSError as error:
        raise _SourceFailedError(error) from error


def _modified_ms(disk: Disk, file: OpenFile) -> int:
    try:
        return disk.modified_ms(Path(file.path))
    except OSError as error:
        raise _SourceFailedError(error) from error


def _exists(disk: Disk, path: Path) -> bool:
    try:
        return disk.exists(path)
    except OSError as error:
        raise _SourceFailedError(error) from error
