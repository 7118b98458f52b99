"""One segment: a `.log` file, its two indexes and, where needed, a transaction index.

Only the last segment of a log is active: its log file is open for appending and its indexes are
written. The bytes of a closed segment do not change. `size_bytes` covers complete batches only;
bytes after it (a torn write) are never read.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct

from kafka_protocol.files import txn_index
from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from local_log.file_names import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    open_moving,
    path_of,
    swap_path,
)
from local_log.segment.index import OffsetIndex, TimeIndex, read_now
from runtime.disk import Buffer, Disk, OpenFile
from runtime.disk_errors import half_done

RELATIVE_OFFSET_MAX = 2**31 - 1
_SCAN_BYTES = 4096 + HEADER_SIZE
_BATCH_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
_PLACE = Struct(">qi11xi")  # base offset, batch length, last offset delta
_UNKNOWN = -2  # largest timestamp not yet looked up in the time index


class LogSegment:
    """Batches from `base_offset` (inclusive) on.

    Attributes:
        first_timestamp: Largest timestamp of the first batch (ms); None if the segment is empty, or
            if it was not read yet.
        bytes_since_entry: Size of the batches from the newest index entry on; counted from 0 again
            after a truncation.
        created_ms: Its age counts from here if no batch has a timestamp; only while active.
    """

    __slots__ = (
        "_disk",
        "_file",
        "_has_aborted",
        "_is_full",
        "_is_moving",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "directory",
        "first_timestamp",
        "index_interval_bytes",
        "offset_index",
        "size_bytes",
        "time_index",
    )

    def __init__(self, disk: Disk, directory: Path, base_offset: int, size_bytes: int) -> None:
        self._disk = disk
        self._is_moving = False
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.offset_index = OffsetIndex(disk, self.path(OFFSET_INDEX), base_offset)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX), base_offset)
        self._file: OpenFile | None = None
        self._has_aborted: bool | None = None  # None: not yet looked
        self._is_full = False  # an index takes no further entry
        self._max_timestamp = _UNKNOWN
        self._offset_of_max_timestamp = base_offset
        self.first_timestamp: int | None = None  # None: empty, or not yet read
        self.bytes_since_entry = 0
        self.index_interval_bytes = 4096
        self.created_ms = 0

    def path(self, suffix: str) -> Path:
        """Path of one of its files; with `.swap` while a cleaner has yet to rename it."""
        if self._is_moving:
            swap = swap_path(self.directory, self.base_offset, suffix)
            if self._disk.exists(swap):
                return swap
        return path_of(self.directory, self.base_offset, suffix)

    @property
    def is_moving(self) -> bool:
        """True while a cleaner's files of this segment are being renamed from `.swap`."""
        return self._is_moving

    @is_moving.setter
    def is_moving(self, is_moving: bool) -> None:
        self._is_moving = is_moving
        self.offset_index.is_moving = self.time_index.is_moving = is_moving

    def _open(self, suffix: str) -> OpenFile:
        path = path_of(self.directory, self.base_offset, suffix)
        return open_moving(self._disk, path) if self._is_moving else self._disk.open_read(path)

    # -- lifecycle -------------------------------------------------------------------------

    @classmethod
    def create(
        cls, disk: Disk, directory: Path, base_offset: int, *, index_bytes: int, now_ms: int
    ) -> "LogSegment":
        """Create an empty active segment; leftover files of the same name are emptied.

        Raises:
            OSError: The disk failed.
        """
        segment = cls(disk, directory, base_offset, 0)
        segment._file = disk.open_append(segment.path(LOG))
        if segment._file.size():
            disk.truncate(segment._file, 0)
        segment.offset_index.reset(index_bytes)
        segment.time_index.reset(index_bytes)
        segment._check_free_space()
        disk.unlink(segment.path(TXN_INDEX))
        segment.has_aborted = False
        segment._max_timestamp = -1
        segment.created_ms = now_ms
        return segment

    def activate(self, *, index_bytes: int, now_ms: int) -> None:
        """Make the last segment of a log writable; bytes after `size_bytes` are cut.

        Its age counts from its last write, so that an idle segment rolls in spite of restarts.

        Raises:
            OSError: The disk failed.
        """
        self.created_ms = min(now_ms, self.modified_ms())
        self._file = self._disk.open_append(self.path(LOG))
        if self._file.size() != self.size_bytes:
            self._disk.truncate(self._file, self.size_bytes)
        self.offset_index.activate(index_bytes)
        self.time_index.activate(index_bytes)
        self._check_free_space()
        self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last_entry()
        self.bytes_since_entry = self.size_bytes - max(self.offset_index.last_entry().position, 0)

    def prepare_inactive(self) -> None:
        """Open the files that `become_inactive` writes, so that it needs no further descriptor."""
        self.offset_index.prepare_trim()
        self.time_index.prepare_trim()

    def become_inactive(self) -> None:
        """Close for writing: add the last time index entry, trim both indexes."""
        self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        self.offset_index.trim()
        self.time_index.trim()

    @property
    def file(self) -> OpenFile:
        """The log file, opened at its first use."""
        file = self._file
        if file is None:
            file = self._file = self._open(LOG)
        return file

    def release(self) -> None:
        """Drop all open files; the reader of a region keeps its own reference to the file."""
        self._file = None
        self.offset_index.release()
        self.time_index.release()

    def fsync(self) -> None:
        """Return once all its files survive a power cut.

        A closed segment then drops its descriptor, so that a log of many segments has few of them.
        The next read opens the file again.

        Raises:
            OSError: The disk failed.
        """
        if self._is_moving:
            return  # a cleaner's files were fsynced before their renaming began
        self._disk.fsync(self.file)
        if not self.offset_index.is_active:
            self._file = None
        self.offset_index.fsync()
        self.time_index.fsync()
        if self._disk.exists(self.path(TXN_INDEX)):
            self._disk.fsync_path(self.path(TXN_INDEX))

    def rename_deleted(self) -> list[Path]:
        """Remove its files from the log by adding `.deleted` to their names.

        Returns:
            The new paths; the caller unlinks them later.
        """
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if self._disk.exists(path):
                target = path.with_name(path.name + DELETED)
                self._disk.rename(path, target)
                renamed.append(target)
        return renamed

    # -- write ----------------------------------------------------------------------------------

    def append(self, batch: Buffer, size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end of an active segment and index it.

        The batch gets an index entry (its last offset, its position) if more than
        `index_interval_bytes` lie between the last entry's batch and this one.

        Args:
            batch: Bytes of exactly one batch.
            size: Its length in bytes.
            last_offset: Inclusive.
            max_timestamp: Largest timestamp of the batch (ms), -1 without one.

        Raises:
            OSError: No byte of the batch is left in the file, unless the disk failed at the cut
                as well.
        """
        file = self._file
        assert file is not None
        try:
            self._disk.append(file, batch)
        except OSError:
            self._cut_torn()
            raise
        if self.bytes_since_entry > self.index_interval_bytes:
            self._add_entries(last_offset, max_timestamp)
        elif max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self.first_timestamp is None and self.size_bytes == 0:
            self.first_timestamp = max_timestamp
        self.size_bytes += size
        self.bytes_since_entry += size

    def _cut_torn(self) -> None:
        """Cut the bytes of a failed write, because the next batch would follow them."""
        assert self._file is not None
        try:
            self._disk.truncate(self._file, self.size_bytes)
        except OSError as error:
            raise half_done(error, "torn bytes cannot be cut") from error

    def _add_entries(self, last_offset: int, max_timestamp: int) -> None:
        before = self._max_timestamp, self._offset_of_max_timestamp
        counts = self.offset_index.entries, self.time_index.entries
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        try:
            if not self.offset_index.is_full:
                self.offset_index.append(last_offset, self.size_bytes)
            if not self.time_index.is_full:
                self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        except OSError:
            self._max_timestamp, self._offset_of_max_timestamp = before
            self.offset_index.forget_from(counts[0])
            self.time_index.forget_from(counts[1])
            self._cut_torn()
            raise
        self.bytes_since_entry = 0
        self._check_free_space()

    def _check_free_space(self) -> None:
        self._is_full = self.offset_index.is_full or self.time_index.is_full

    def must_roll(
        self,
        size: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
        segment_bytes: int,
        segment_ms: int,
    ) -> bool:
        """True if the next batch belongs into a new segment; never for an empty segment.

        The segment's age is the batch's timestamp less the first batch's. If the first batch has
        none, it is the wall clock less `created_ms`.

        Args:
            size: Of the batch, in bytes.
            last_offset: Of the batch (inclusive).
            max_timestamp: Of the batch (ms).
            now_ms: Wall clock.
            segment_bytes: Maximum size of the segment.
            segment_ms: Maximum age (inclusive).
        """
        used = self.size_bytes
        if used == 0:
            return False
        if used + size > segment_bytes or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self._is_full:
            return True
        first = self.first_batch_timestamp
        return (max_timestamp - first if first >= 0 else now_ms - self.created_ms) > segment_ms

    def append_aborted(self, entry: AbortedTransaction) -> None:
        """Add an aborted transaction whose marker is in this segment; not fsynced."""
        file = self._disk.open_append(self.path(TXN_INDEX))
        self._disk.append(file, txn_index.pack_entry(entry))
        self._has_aborted = True

    # -- read -----------------------------------------------------------------------------------

    @property
    def first_batch_timestamp(self) -> int:
        """Largest timestamp of the first batch (ms), read if it is unknown; -1 if there is none."""
        if self.first_timestamp is None and self.size_bytes:
            self.first_timestamp = next((header.max_timestamp for _, header in self.batches(0)), -1)
        return -1 if self.first_timestamp is None else self.first_timestamp

    @property
    def max_timestamp(self) -> int:
        """Largest batch timestamp (ms), -1 if there is none; the first use may read the disk."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the first batch that has the largest timestamp."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def _load_max_timestamp(self) -> None:
        """Load it from the time index, or from the batches if no batch confirms the index.

        A wrong timestamp would expire the segment. This may run on any thread, in parallel: the
        timestamp is stored last, so other threads never see half of the result.
        """
        newest, at = entry = self.time_index.last_entry()
        if self.time_index.count():
            start = self.offset_index.lookup(entry.offset).position
            holders = (
                header for _, header in self.batches(start) if header.last_offset >= entry.offset
            )
            holder = next(holders, None)
            if holder is None or holder.max_timestamp != entry.timestamp:
                newest, at, start = -1, self.base_offset, 0
            newest, at = self._later_timestamp(start, newest, at)
        self._offset_of_max_timestamp = at
        self._max_timestamp = newest

    def set_max_timestamp(self, timestamp: int, offset: int) -> None:
        """Set the largest timestamp (ms) and its batch's last offset, as recovery found them."""
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    def modified_ms(self) -> int:
        """Time of the last write to the log file (ms since the epoch), by the file system."""
        path = path_of(self.directory, self.base_offset, LOG)
        if self._is_moving:  # a rename may come between: then the file has its final name
            with suppress(FileNotFoundError):
                return self._disk.modified_ms(swap_path(self.directory, self.base_offset, LOG))
        return self._disk.modified_ms(path)

    def retention_timestamp(self) -> int:
        """Time from which retention counts its age (ms): largest timestamp, else last write."""
        newest = self.max_timestamp
        return newest if newest >= 0 else self.modified_ms()

    def batches(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Walk headers without reading the records.

        Args:
            position: Byte of the first batch; it must be a batch border.
            end: Byte (exclusive) at which the walk ends; `size_bytes` by default.

        Yields:
            Position and header of each batch that lies wholly before `end`.
        """
        stop = self.size_bytes if end is None else end
        file = self.file
        while position + HEADER_SIZE <= stop:
            chunk = self._disk.read_at(file, position, min(_SCAN_BYTES, stop - position))
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                header = read_header(chunk, at)
                size = header.batch_length + LOG_OVERHEAD
                if header.batch_length < _BATCH_LENGTH_MIN or position + at + size > stop:
                    return
                yield position + at, header
                at += size
            if at == 0:
                return  # the file is shorter than `size_bytes`
            position += at

    def find_batch(self, offset: int, *, may_wait: bool = True) -> tuple[int, BatchHeader] | None:
        """Find the first batch whose last offset is >= `offset`.

        A damaged batch whose last offset is below its base offset is found by its base offset.

        Returns:
            Position and header; None if all batches end before `offset`.

        Raises:
            WouldWait: The disk is needed, and `may_wait` is False.
        """
        start = self.offset_index.lookup(offset, may_wait=may_wait)
        position, stop = start.position, self.size_bytes
        file, unpack = self.file, _PLACE.unpack_from
        while position + HEADER_SIZE <= stop:
            size = min(_SCAN_BYTES, stop - position)
            if may_wait:
                chunk = self._disk.read_at(file, position, size)
            else:
                chunk = read_now(self._disk, file, position, size)
            at, last_start = 0, len(chunk) - HEADER_SIZE
            while at <= last_start:
                base, length, delta = unpack(chunk, at)
                if base + delta >= offset or base >= offset:
                    return position + at, read_header(chunk, at)
                if length < _BATCH_LENGTH_MIN:
                    return None
                at += length + LOG_OVERHEAD
            if at == 0:
                return None  # the file is shorter than `size_bytes`
            position += at
        return None

    def find_damage(self, offset: int, following: int) -> int | None:
        """Find a damaged batch that may hold `offset`, by headers alone.

        Args:
            offset: No batch covers it, by base and last offsets.
            following: Base offset of the first batch after it; the log end if there is none.

        Returns:
            Position of the damage; None if the headers show none.
        """
        start = end = self.offset_index.lookup(offset).position
        before = None
        for position, header in self.batches(start):
            if header.base_offset > offset:
                break
            before, end = (position, header), position + header.size_bytes
        else:
            if end != self.size_bytes:
                return end  # its length is invalid, so the batches behind it cannot be found
        if before is None:
            return None
        position, header = before
        # A cleaner keeps the last offset of a batch. So a record count that reaches `following`
        # shows that the last offset is wrong.
        claims_too_few = header.base_offset + header.record_count == following
        return position if claims_too_few or header.last_offset_delta < 0 else None

    def read_bytes(self, position: int, size: int) -> bytes:
        """Read a part of the log file into the heap; not for the hot path. May block."""
        return self._disk.read_at(self.file, position, size)

    @property
    def has_aborted(self) -> bool:
        """True if it has a transaction index; the first use may read the directory."""
        if self._has_aborted is None:
            self._has_aborted = self._disk.exists(self.path(TXN_INDEX))
        return self._has_aborted

    @has_aborted.setter
    def has_aborted(self, has: bool) -> None:
        self._has_aborted = has

    def read_aborted(self, *, may_wait: bool = True) -> bytes:
        """Return the whole entries of its transaction index; empty without an index.

        Raises:
            WouldWait: The disk is needed, and `may_wait` is False.
        """
        if not self.has_aborted:
            return b""
        file = self._open(TXN_INDEX)
        size = file.size()
        if may_wait:
            data = self._disk.read_at(file, 0, size)
        else:
            data = read_now(self._disk, file, 0, size)
        return data[: len(data) - len(data) % txn_index.ENTRY_SIZE]

    def aborted(self) -> Iterator[AbortedTransaction]:
        """Return the aborted transactions whose marker is here, in the order of the markers.

        Raises:
            CorruptFileError: The index was changed since the log was opened.
        """
        return txn_index.iter_entries(self.read_aborted())

    # -- truncation -----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that has `offset` or a later one; the segment must be active.

        A batch is not split: lower offsets in the same batch are removed as well. Nothing is
        fsynced.
        """
        found = self.find_batch(offset)
        if found is None:
            return
        file = self._file
        assert file is not None
        position = found[0]
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self._check_free_space()
        kept = [entry for entry in self.aborted() if entry.last_offset < offset]
        path = self.path(TXN_INDEX)
        if kept:
            self._disk.atomic_write(path, b"".join(map(txn_index.pack_entry, kept)), durable=False)
        else:
            self._disk.unlink(path)
        self._has_aborted = bool(kept)
        self._disk.truncate(file, position)
        self.size_bytes = position
        self.bytes_since_entry = 0
        if position == 0:
            self.first_timestamp = None
        self._find_max_timestamp()

    def _find_max_timestamp(self) -> None:
        """Set the largest timestamp after a cut, from the last entry and the batches behind it."""
        entry = self.time_index.last_entry()
        self._max_timestamp, self._offset_of_max_timestamp = entry
        start = self.offset_index.lookup(entry.offset).position if entry.timestamp >= 0 else 0
        self._max_timestamp, self._offset_of_max_timestamp = self._later_timestamp(start, *entry)

    def _later_timestamp(self, position: int, newest: int, at: int) -> tuple[int, int]:
        """Return the largest timestamp and its batch's last offset, if it is above `newest`.

        Otherwise it returns `newest` and `at`.
        """
        for _, header in self.batches(position):
            if header.max_timestamp > newest:
                newest, at = header.max_timestamp, header.last_offset
        return newest, at
