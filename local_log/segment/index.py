"""Offset and time index of one segment, in Kafka's file formats.

The index files of the active segment have their full (sparse) length with a zero tail. Their
entries are also in memory, and each new entry is written through. A file is open from its first new
entry on, so an idle partition has no descriptor for it.

The index files of a closed segment are trimmed to their entries and read, not mapped. So an
unreadable sector is an error of the disk; with a mapping it would end the process. One block of
entries is cached, so a sequential reader rarely reads the file.
"""

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from kafka_protocol.files import offset_index, time_index
from kafka_protocol.files.offset_index import OffsetPosition
from kafka_protocol.files.time_index import TimestampOffset
from local_log.errors import WouldWait
from local_log.file_names import open_moving
from runtime.disk import Buffer, Disk, OpenFile

_BLOCK_ENTRIES = 512


def read_now(disk: Disk, file: OpenFile, position: int, size: int) -> bytes:
    """Read bytes that are in the page cache.

    Raises:
        WouldWait: Some of them are not.
    """
    data = disk.read_resident(file, position, size)
    if data is None:
        raise WouldWait(str(file.path))
    return data


class _Key(NamedTuple):
    """An ascending field of an entry, `at` bytes from its beginning."""

    form: Struct
    at: int


_OFFSET_KEY = _Key(Struct(">i"), 0)
_POSITION_KEY = _Key(Struct(">i"), 4)
_TIME_KEY = _Key(Struct(">q"), 0)


class _Block(NamedTuple):
    """Consecutive entries of an index.

    Attributes:
        start: Number of the first one, from 0.
        total: Number of entries in the whole index.
    """

    start: int
    total: int
    data: bytes


class SegmentIndex:
    """Base of both indexes: a file of fixed-size entries.

    Attributes:
        is_moving: See `LogSegment.is_moving`.
        max_entries: The index is full with this many entries; only while active.
        entries: Number of entries; only while active.
    """

    __slots__ = (
        "_active",
        "_block",
        "_changes",
        "_data",
        "_disk",
        "_durable",
        "_file",
        "base_offset",
        "entries",
        "is_moving",
        "max_entries",
        "path",
    )
    entry_size = 0

    def __init__(self, disk: Disk, path: Path, base_offset: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._data: bytearray | None = None  # the entries, only while active
        self._block: _Block | None = None  # the newest part of a closed index that was read
        self._file: OpenFile | None = None
        self._active = False
        self._changes = 0  # number of changes of the file, counted after each
        self._durable = -1  # the first so many changes survive a power cut
        self.is_moving = False  # see `LogSegment.is_moving`
        self.max_entries = 0
        self.entries = 0  # only while active

    @property
    def is_active(self) -> bool:
        """True from `activate` or `reset` until `trim` or `release`."""
        return self._active

    def activate(self, max_bytes: int) -> None:
        """Make it writable: load all entries, extend the file to `max_bytes`.

        Raises:
            OSError: The disk failed.
        """
        if self._active:
            return
        size = self.entry_size
        file = self._disk.open_write(self.path)
        found = file.size()
        self._begin(file, bytearray(self._disk.read_at(file, 0, found - found % size)), max_bytes)

    def _begin(self, file: OpenFile, data: bytearray, max_bytes: int) -> None:
        size = self.entry_size
        self._data = data
        self._block = None
        self._active = True
        self.entries = len(data) // size
        self.max_entries = max_bytes // size
        self._disk.truncate(file, max(self.max_entries, self.entries) * size)
        self._changes += 1
        self._loaded(data)

    def _writable(self) -> OpenFile:
        file = self._file
        if file is None:
            file = self._file = self._disk.open_write(self.path)
        return file

    def reset(self, max_bytes: int) -> None:
        """Remove all entries and make it writable, with a file of `max_bytes`."""
        self._begin(self._disk.open_empty(self.path), bytearray(), max_bytes)

    def _loaded(self, data: Buffer) -> None:
        """Hook: all entries were replaced by those in `data`."""

    def _open(self) -> OpenFile:
        if self.is_moving:
            return open_moving(self._disk, self.path)
        return self._disk.open_read(self.path)

    def count(self) -> int:
        """Number of entries; bytes after the last whole one are ignored.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        return self.entries if self._active else self._disk.size(self.path) // self.entry_size

    def _entries_up_to(
        self, key: _Key, wanted: int, *, may_wait: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Search a closed index.

        Returns:
            The number of entries with a key <= `wanted`, the last of these entries, and the entry
            after it. An entry that does not exist is empty.
        """
        block = self._block
        if block is None or not self._holds(block, key, wanted):
            block = self._block = self._read_block(key, wanted, may_wait=may_wait)
        size, data, read = self.entry_size, block.data, key.form.unpack_from
        low, high, at = 0, len(data) // size, key.at
        while low < high:
            middle = (low + high) // 2
            if read(data, middle * size + at)[0] <= wanted:
                low = middle + 1
            else:
                high = middle
        floor, following = data[(low - 1) * size : low * size] if low else b"", b""
        if block.start + low < block.total:
            following = data[low * size : (low + 1) * size]
            if not following:
                file = self._open()
                following = self._read(file, block.start + low, size, may_wait=may_wait)
        return block.start + low, floor, following

    def _read(self, file: OpenFile, slot: int, size: int, at: int = 0, *, may_wait: bool) -> bytes:
        position = slot * self.entry_size + at
        if may_wait:
            return self._disk.read_at(file, position, size)
        return read_now(self._disk, file, position, size)

    def _holds(self, block: _Block, key: _Key, wanted: int) -> bool:
        """True if the last entry with a key <= `wanted` is in this block."""
        data, read = block.data, key.form.unpack_from
        size = self.entry_size
        if not data or (block.start > 0 and read(data, key.at)[0] > wanted):
            return False
        is_last = block.start + len(data) // size >= block.total
        return is_last or bool(read(data, len(data) - size + key.at)[0] > wanted)

    def _read_block(self, key: _Key, wanted: int, *, may_wait: bool) -> _Block:
        size = self.entry_size
        file = self._open()
        total = file.size() // size
        low, high = 0, (total - 1) // _BLOCK_ENTRIES if total else 0
        while low < high:
            middle = (low + high + 1) // 2
            slot, width = middle * _BLOCK_ENTRIES, key.form.size
            found = self._read(file, slot, width, key.at, may_wait=may_wait)
            if key.form.unpack(found)[0] <= wanted:
                low = middle
            else:
                high = middle - 1
        start = low * _BLOCK_ENTRIES
        wanted_bytes = min(_BLOCK_ENTRIES, total - start) * size
        return _Block(start, total, self._read(file, start, wanted_bytes, may_wait=may_wait))

    def _append(self, entry: bytes) -> None:
        assert self._data is not None
        self._disk.write_at(self._writable(), self.entries * self.entry_size, entry)
        self._changes += 1
        self._data += entry
        self.entries += 1

    def prepare_trim(self) -> None:
        """Open the file if it is closed, so that `trim` needs no further descriptor."""
        if self._active:
            self._writable()

    def forget_from(self, entries: int) -> None:
        """Remove the entries from number `entries` on from memory, after a failed append.

        Their bytes stay in the file's tail until the next entry, `trim` or recovery.
        """
        if self._active and self.entries > entries:
            assert isinstance(self._data, bytearray)
            del self._data[entries * self.entry_size :]
            self.entries = entries
            self._loaded(self._data)

    def trim(self) -> None:
        """Cut the file to its entries and close it for writing; lookups still work."""
        if self._active:
            self._disk.truncate(self._writable(), self.entries * self.entry_size)
            self._changes += 1
            self._active = False
            self._file = None
            self._data = None

    def truncate_entries(self, entries: int) -> None:
        """Remove all entries from number `entries` on; the index must be active."""
        assert self._data is not None
        size, file = self.entry_size, self._writable()
        self._disk.truncate(file, entries * size)
        self._disk.truncate(file, max(self.max_entries, entries) * size)
        self._changes += 1
        del self._data[entries * size :]
        self.entries = entries
        self._loaded(self._data)

    def fsync(self) -> None:
        """Return once all entries made before the call survive a power cut.

        It may run in parallel with the thread that appends. An unchanged file of an active index is
        not synced again, because fsync of a clean file waits for the disk as well. A log that is
        flushed after every small append would else wait for three files each time. A closed index
        is always synced: a repair may have replaced its file.
        """
        file, changes = self._file, self._changes  # before the fsync, which may miss later changes
        if self._active and changes == self._durable:
            return
        if file is not None:
            self._disk.fsync(file)
        else:
            self._disk.fsync_path(self.path)
        self._durable = changes

    def release(self) -> None:
        """Close the file and drop all entries from memory, without trimming."""
        self._file = None
        self._data = None
        self._block = None
        self._active = False


class OffsetIndex(SegmentIndex):
    """Maps an offset to a file position at or before its batch.

    Attributes:
        last_offset: Last offset of the newest entry's batch; the base offset without entries. Only
            while active.
    """

    __slots__ = ("last_offset",)
    entry_size = offset_index.ENTRY_SIZE

    def __init__(self, disk: Disk, path: Path, base_offset: int) -> None:
        super().__init__(disk, path, base_offset)
        self.last_offset = base_offset

    def _loaded(self, data: Buffer) -> None:
        self.last_offset = self.base_offset
        if self.entries:
            self.last_offset = offset_index.read_entry(
                data, self.base_offset, self.entries - 1
            ).offset

    @property
    def is_full(self) -> bool:
        """True if there is no space for another entry, so the segment must roll."""
        return self.entries >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Add an entry for the batch that begins at byte `position`.

        Args:
            offset: Last offset of that batch (inclusive), above that of the previous entry.
            position: Byte in the log file.
        """
        self._append(offset_index.pack_entry(offset - self.base_offset, position))
        self.last_offset = offset

    def lookup(self, offset: int, *, may_wait: bool = True) -> OffsetPosition:
        """Return the largest entry <= `offset`, or (base offset, 0).

        Raises:
            WouldWait: The disk is needed, and `may_wait` is False.
        """
        base, data = self.base_offset, self._data
        if data is not None:  # `self._data` is read once: a roll on another thread clears it
            return offset_index.lookup(data, base, offset)
        _, floor, _ = self._entries_up_to(_OFFSET_KEY, offset - base, may_wait=may_wait)
        return offset_index.read_entry(floor, base, 0) if floor else OffsetPosition(base, 0)

    def last_entry(self) -> OffsetPosition:
        """Return the newest entry, or (base offset, 0)."""
        return self.lookup(2**62)

    def first_entry_from(self, position: int, *, may_wait: bool = True) -> OffsetPosition | None:
        """Return the first entry at or after byte `position`, None if there is none.

        Every offset before that byte is below the entry's offset.

        Raises:
            WouldWait: The disk is needed, and `may_wait` is False.
        """
        data = self._data
        if data is None:
            _, _, entry = self._entries_up_to(_POSITION_KEY, position - 1, may_wait=may_wait)
            return offset_index.read_entry(entry, self.base_offset, 0) if entry else None
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if offset_index.read_entry(data, self.base_offset, middle).position < position:
                low = middle + 1
            else:
                high = middle
        if low == self.entries:
            return None
        return offset_index.read_entry(data, self.base_offset, low)

    def truncate_to(self, offset: int) -> None:
        """Remove entries of batches that end at or after `offset`; the index must be active."""
        data = self._data
        assert data is not None
        floor = offset_index.lookup(data, self.base_offset, offset - 1, self.entries)
        kept = 0
        if floor.position:
            low, high = 0, self.entries
            while low < high:
                middle = (low + high) // 2
                if offset_index.read_entry(data, self.base_offset, middle).offset <= floor.offset:
                    low = middle + 1
                else:
                    high = middle
            kept = low
        self.truncate_entries(kept)


class TimeIndex(SegmentIndex):
    """Maps a timestamp to the offset up to which no record has a later timestamp.

    Attributes:
        last: The newest entry; (-1, base offset) without entries. Only while active.
    """

    __slots__ = ("last",)
    entry_size = time_index.ENTRY_SIZE

    def __init__(self, disk: Disk, path: Path, base_offset: int) -> None:
        super().__init__(disk, path, base_offset)
        self.last = TimestampOffset(-1, base_offset)

    def _loaded(self, data: Buffer) -> None:
        self.last = TimestampOffset(-1, self.base_offset)
        if self.entries:
            self.last = time_index.read_entry(data, self.base_offset, self.entries - 1)

    @property
    def is_full(self) -> bool:
        """True if only the slot for the entry of the close is left."""
        return self.entries >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp (ms) is larger than the newest one's."""
        if timestamp > self.last.timestamp:
            self._append(time_index.pack_entry(timestamp, offset - self.base_offset))
            self.last = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the largest entry <= `timestamp` (ms), or (-1, base offset)."""
        base, data = self.base_offset, self._data
        if data is not None:
            return time_index.lookup(data, base, timestamp)
        _, floor, _ = self._entries_up_to(_TIME_KEY, timestamp)
        return time_index.read_entry(floor, base, 0) if floor else TimestampOffset(-1, base)

    def last_entry(self) -> TimestampOffset:
        """Return the newest entry; of a closed segment it has the largest timestamp."""
        if self._data is not None:
            return self.last
        file = self._open()
        entries = file.size() // self.entry_size
        if not entries:
            return TimestampOffset(-1, self.base_offset)
        entry = self._disk.read_at(file, (entries - 1) * self.entry_size, self.entry_size)
        return time_index.read_entry(entry, self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries with an offset >= `offset`; the index must be active."""
        data = self._data
        assert data is not None
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if time_index.read_entry(data, self.base_offset, middle).offset < offset:
                low = middle + 1
            else:
                high = middle
        self.truncate_entries(low)
