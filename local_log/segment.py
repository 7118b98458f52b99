"""One segment: a `.log` file, its two indexes and, where needed, a transaction index.

Only the last segment of a log is active: its log file is open for appending and its indexes are
written. The bytes of a closed segment never change again. `size_bytes` counts whole batches that
were written completely; bytes after it (a torn write) are never read.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from kafka_protocol.files import txn_index
from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.records.batch import HEADER_SIZE, BatchHeader, read_header
from local_log.segment_files import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    path_of,
)
from local_log.segment_index import OffsetIndex, TimeIndex
from runtime.disk import Buffer, Disk, OpenFile
from runtime.disk_errors import half_done

RELATIVE_OFFSET_MAX = 2**31 - 1
_SCAN_BYTES = 4096 + HEADER_SIZE
_LENGTH_OVERHEAD = 12
_BATCH_LENGTH_MIN = HEADER_SIZE - _LENGTH_OVERHEAD
_PLACE = Struct(">qi11xi")  # base offset, batch length, last offset delta
_UNKNOWN = -2  # largest timestamp not yet looked up in the time index


class LogSegment:
    """Batches from `base_offset` (inclusive) on."""

    __slots__ = (
        "_disk",
        "_file",
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
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.offset_index = OffsetIndex(disk, self.path(OFFSET_INDEX), base_offset)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX), base_offset)
        self._file: OpenFile | None = None
        self._max_timestamp = _UNKNOWN
        self._offset_of_max_timestamp = base_offset
        self.first_timestamp: int | None = None  # None: empty, or not yet read
        # Starts at 0 again when a segment is reopened, as Kafka's does: files stay comparable.
        self.bytes_since_entry = 0
        self.index_interval_bytes = 4096
        self.created_ms = 0

    def path(self, suffix: str) -> Path:
        """Path of one of its files."""
        return path_of(self.directory, self.base_offset, suffix)

    # -- life -----------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, disk: Disk, directory: Path, base_offset: int, *, index_bytes: int, now_ms: int
    ) -> "LogSegment":
        """Make an empty active segment."""
        segment = cls(disk, directory, base_offset, 0)
        segment._file = disk.open_append(segment.path(LOG))
        disk.truncate(segment._file, 0)
        segment.offset_index.reset(index_bytes)
        segment.time_index.reset(index_bytes)
        disk.unlink(segment.path(TXN_INDEX))
        segment._max_timestamp = -1
        segment.created_ms = now_ms
        return segment

    def activate(self, *, index_bytes: int, now_ms: int) -> None:
        """Make the last segment of a log writable; what lies after `size_bytes` is cut."""
        self._file = self._disk.open_append(self.path(LOG))
        if self._file.size() != self.size_bytes:
            self._disk.truncate(self._file, self.size_bytes)
        self.offset_index.activate(index_bytes)
        self.time_index.activate(index_bytes)
        self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last_entry()
        self.created_ms = now_ms

    def prepare_inactive(self) -> None:
        """Open what `become_inactive` writes to, which then needs no further descriptor."""
        self.offset_index.prepare_trim()
        self.time_index.prepare_trim()

    def become_inactive(self) -> None:
        """Close for writing: final time index entry, indexes trimmed to their entries."""
        self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        self.offset_index.trim()
        self.time_index.trim()

    @property
    def file(self) -> OpenFile:
        """The log file, opened when first needed."""
        file = self._file
        if file is None:
            file = self._file = self._disk.open_read(self.path(LOG))
        return file

    def release(self) -> None:
        """Let go of all files; who still reads a region keeps its file open."""
        self._file = None
        self.offset_index.release()
        self.time_index.release()

    def fsync(self) -> None:
        """Return when all its files survive a power cut.

        A closed segment then gives up the descriptor it was written with, so that a log of many
        segments holds few of them; who reads it opens it again.
        """
        self._disk.fsync(self.file)
        if not self.offset_index.is_active:
            self._file = None
        self.offset_index.fsync()
        self.time_index.fsync()
        if self._disk.exists(self.path(TXN_INDEX)):
            self._disk.fsync_path(self.path(TXN_INDEX))

    def rename_deleted(self) -> list[Path]:
        """Take its files out of the log by adding `.deleted` to their names.

        Returns:
            The new names, to be unlinked later.
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

    def append(self, batches: Buffer) -> None:
        """Write bytes at the end of an active segment; `note_batch` must follow for each batch.

        Raises:
            OSError: nothing of them is left in the file, or the disk is broken.
        """
        file = self._file
        assert file is not None
        try:
            self._disk.append(file, batches)
        except OSError:
            self._cut_torn()
            raise

    def _cut_torn(self) -> None:
        """Cut what a failed write left behind: the next one would be written after it."""
        assert self._file is not None
        try:
            self._disk.truncate(self._file, self.size_bytes)
        except OSError as error:
            raise half_done(error, "torn bytes cannot be cut") from error

    def note_batch(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Index one batch that was just written at the end.

        An entry is made when more than `index_interval_bytes` lie before this batch since the last
        one, and speaks of this batch: its last offset and first byte.

        Raises:
            OSError: the batch is out of the file again, or the disk is broken.
        """
        before = self._max_timestamp, self._offset_of_max_timestamp
        counts = self.offset_index.entries, self.time_index.entries
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self.bytes_since_entry > self.index_interval_bytes:
            try:
                self._add_entries(last_offset)
            except OSError:
                self._max_timestamp, self._offset_of_max_timestamp = before
                self.offset_index.forget_from(counts[0])
                self.time_index.forget_from(counts[1])
                self._cut_torn()
                raise
        if self.first_timestamp is None and self.size_bytes == 0:
            self.first_timestamp = max_timestamp
        self.size_bytes += size
        self.bytes_since_entry += size

    def _add_entries(self, last_offset: int) -> None:
        if not self.offset_index.is_full:
            self.offset_index.append(last_offset, self.size_bytes)
        if not self.time_index.is_full:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self.bytes_since_entry = 0

    def must_roll(
        self,
        *,
        size: int,
        last_offset: int,
        max_timestamp: int,
        segment_bytes: int,
        segment_ms: int,
        now_ms: int,
    ) -> bool:
        """Whether a batch of `size` bytes ending with `last_offset` belongs into a new segment."""
        used = self.size_bytes
        if used == 0:
            return False
        if used + size > segment_bytes or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.offset_index.is_full or self.time_index.is_full:
            return True
        return self.waited_ms(max_timestamp, now_ms) > segment_ms

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """How far a new batch's time is from the first one's; wall time where they have none."""
        first = self.first_timestamp
        if first is None:
            first = self.first_timestamp = self._read_first_timestamp()
        return max_timestamp - first if first >= 0 else now_ms - self.created_ms

    def _read_first_timestamp(self) -> int:
        for _, header in self.batches(0):
            return header.max_timestamp
        return -1

    def append_aborted(self, entry: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker is in this segment."""
        file = self._disk.open_append(self.path(TXN_INDEX))
        self._disk.append(file, txn_index.pack_entry(entry))

    # -- read -----------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """Largest batch timestamp, -1 if there is none."""
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
        """From the time index, if a batch confirms it: a wrong time would expire the segment."""
        self._max_timestamp, self._offset_of_max_timestamp = entry = self.time_index.last_entry()
        if not self.time_index.count():
            return
        start = self.offset_index.lookup(entry.offset).position
        holders = (
            header for _, header in self.batches(start) if header.last_offset >= entry.offset
        )
        holder = next(holders, None)
        if holder is None or holder.max_timestamp != entry.timestamp:
            self._max_timestamp, self._offset_of_max_timestamp, start = -1, self.base_offset, 0
        self._take_later_timestamps(start)

    def set_max_timestamp(self, timestamp: int, offset: int) -> None:
        """Set what recovery found."""
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    def modified_ms(self) -> int:
        """When it was last written, by the file system."""
        return self._disk.modified_ms(self.path(LOG))

    def retention_timestamp(self) -> int:
        """The time its age is counted from: its largest timestamp, else when it was written."""
        newest = self.max_timestamp
        return newest if newest >= 0 else self.modified_ms()

    def batches(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Walk headers from a batch border on, without reading the records.

        Yields:
            Position and header of each whole batch before byte `end` (default: all).
        """
        stop = self.size_bytes if end is None else end
        file = self.file
        while position + HEADER_SIZE <= stop:
            chunk = self._disk.read_at(file, position, min(_SCAN_BYTES, stop - position))
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                header = read_header(chunk, at)
                size = header.batch_length + _LENGTH_OVERHEAD
                if header.batch_length < _BATCH_LENGTH_MIN or position + at + size > stop:
                    return
                yield position + at, header
                at += size
            if at == 0:
                return  # the file is shorter than we thought
            position += at

    def find_batch(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch whose last offset is >= `offset`; None if all end before it."""
        position, stop = self.offset_index.lookup(offset).position, self.size_bytes
        file, unpack = self.file, _PLACE.unpack_from
        while position + HEADER_SIZE <= stop:
            chunk = self._disk.read_at(file, position, min(_SCAN_BYTES, stop - position))
            at, last_start = 0, len(chunk) - HEADER_SIZE
            while at <= last_start:
                base, length, delta = unpack(chunk, at)
                if base + delta >= offset:
                    return position + at, read_header(chunk, at)
                if length < _BATCH_LENGTH_MIN:
                    return None
                at += length + _LENGTH_OVERHEAD
            if at == 0:
                return None  # the file is shorter than we thought
            position += at
        return None

    def read_bytes(self, position: int, size: int) -> bytes:
        """Read part of the log file into the heap: off the hot path only."""
        return self._disk.read_at(self.file, position, size)

    def aborted(self) -> Iterator[AbortedTransaction]:
        """Aborted transactions whose marker is here, in marker order.

        Raises:
            CorruptFileError: the index was changed since the log was opened.
        """
        try:
            data = self._disk.read_file(self.path(TXN_INDEX))
        except FileNotFoundError:
            return iter(())
        return txn_index.iter_entries(data[: len(data) - len(data) % txn_index.ENTRY_SIZE])

    # -- truncation -----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that holds `offset` or later ones; the segment must be active.

        A batch is not split: offsets before `offset` in the same batch go as well.
        """
        found = self.find_batch(offset)
        if found is None:
            return
        file = self._file
        assert file is not None
        position = found[0]
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        kept = [entry for entry in self.aborted() if entry.last_offset < offset]
        path = self.path(TXN_INDEX)
        if kept:
            self._disk.atomic_write(path, b"".join(map(txn_index.pack_entry, kept)), durable=False)
        else:
            self._disk.unlink(path)
        self._disk.truncate(file, position)
        self.size_bytes = position
        self.bytes_since_entry = 0
        if position == 0:
            self.first_timestamp = None
        self._find_max_timestamp()

    def _find_max_timestamp(self) -> None:
        """After a cut: the last entry that is left, and the batches that no entry covers yet."""
        entry = self.time_index.last_entry()
        self._max_timestamp, self._offset_of_max_timestamp = entry
        start = self.offset_index.lookup(entry.offset).position if entry.timestamp >= 0 else 0
        self._take_later_timestamps(start)

    def _take_later_timestamps(self, position: int) -> None:
        for _, header in self.batches(position):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._offset_of_max_timestamp = header.last_offset
