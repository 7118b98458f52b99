"""Offset and time index of one segment, on disk as Kafka writes them.

While a segment is written its indexes are files of full (sparse) length with a zero tail, and their
entries are also held in memory; each entry is written through as it is made. Trimmed to their
entries they belong to a closed segment and are read: an unreadable sector is then an error of the
disk, where a mapping would end the process. One block of entries is kept, so that a reader that
continues finds its next place without a look at the file.
A file is open from its first new entry on, so that an idle partition costs no descriptor for it.
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
    """Read what is in memory.

    Raises:
        WouldWait: it is not.
    """
    data = disk.read_resident(file, position, size)
    if data is None:
        raise WouldWait(str(file.path))
    return data


class _Key(NamedTuple):
    """A rising field of an entry: `at` bytes from its beginning."""

    form: Struct
    at: int


_OFFSET_KEY = _Key(Struct(">i"), 0)
_POSITION_KEY = _Key(Struct(">i"), 4)
_TIME_KEY = _Key(Struct(">q"), 0)


class _Block(NamedTuple):
    """Entries from slot `start` on, of an index of `total` entries."""

    start: int
    total: int
    data: bytes


class SegmentIndex:
    """The part that both kinds share: a row of fixed-size entries in a file."""

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
        self._changes = 0  # of the file, counted after each
        self._durable = -1  # how many of them are known to survive a power cut
        self.is_moving = False  # see `LogSegment.is_moving`
        self.max_entries = 0
        self.entries = 0  # only while active

    @property
    def is_active(self) -> bool:
        """Whether it is being written."""
        return self._active

    def activate(self, max_bytes: int) -> None:
        """Make it writable: whole file in memory, file extended to its full length."""
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
        """Throw all entries away and make it writable."""
        self._begin(self._disk.open_empty(self.path), bytearray(), max_bytes)

    def _loaded(self, data: Buffer) -> None:
        """Called when the entries have become known."""

    def _open(self) -> OpenFile:
        if self.is_moving:
            return open_moving(self._disk, self.path)
        return self._disk.open_read(self.path)

    def count(self) -> int:
        """How many entries there are; bytes after the last whole one do not count.

        Raises:
            FileNotFoundError: the file is not there.
        """
        return self.entries if self._active else self._disk.size(self.path) // self.entry_size

    def _entries_up_to(
        self, key: _Key, wanted: int, *, may_wait: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Look into a closed index.

        Returns:
            How many entries have a key <= `wanted`; the last of these and the one after it, empty
            where there is none.
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
        """Whether the last entry with a key <= `wanted` is in this block."""
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
        """Open the file if it is not: after this `trim` needs no further descriptor."""
        if self._active:
            self._writable()

    def forget_from(self, entries: int) -> None:
        """Forget entries from number `entries` on that speak of a batch that did not come about.

        Their bytes stay in the file's tail until the next entry, `trim` or recovery.
        """
        if self._active and self.entries > entries:
            assert isinstance(self._data, bytearray)
            del self._data[entries * self.entry_size :]
            self.entries = entries
            self._loaded(self._data)

    def trim(self) -> None:
        """Cut the file to its entries and stop writing; look-ups continue."""
        if self._active:
            self._disk.truncate(self._writable(), self.entries * self.entry_size)
            self._changes += 1
            self._active = False
            self._file = None
            self._data = None

    def truncate_entries(self, entries: int) -> None:
        """Forget all entries from number `entries` on (only while active)."""
        assert self._data is not None
        size, file = self.entry_size, self._writable()
        self._disk.truncate(file, entries * size)
        self._disk.truncate(file, max(self.max_entries, entries) * size)
        self._changes += 1
        del self._data[entries * size :]
        self.entries = entries
        self._loaded(self._data)

    def fsync(self) -> None:
        """Return when the entries survive a power cut; may run beside the thread that appends.

        While it is written, and nothing has changed since the last time, the disk is left alone: an
        fsync of a clean file waits for the disk all the same. Entries come each index interval, so
        a log that is flushed after every small append would wait three times for each of them. The
        files of a closed index may be replaced by repairs.
        """
        file, changes = self._file, self._changes  # before: what changes meanwhile is not in it
        if self._active and changes == self._durable:
            return
        if file is not None:
            self._disk.fsync(file)
        else:
            self._disk.fsync_path(self.path)
        self._durable = changes

    def release(self) -> None:
        """Let go of the file and of what was read of it, without trimming."""
        self._file = None
        self._data = None
        self._block = None
        self._active = False


class OffsetIndex(SegmentIndex):
    """From an offset to a position at most one index interval before its batch."""

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
        """Whether no entry fits any more: the segment must roll."""
        return self.entries >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Add an entry: the batch ending with `offset` starts at `position`; offsets rise."""
        self._append(offset_index.pack_entry(offset - self.base_offset, position))
        self.last_offset = offset

    def lookup(self, offset: int, *, may_wait: bool = True) -> OffsetPosition:
        """The largest entry <= `offset`, or (base offset, 0).

        Raises:
            WouldWait: only the disk can tell, and it must not be waited for.
        """
        base, data = self.base_offset, self._data
        if data is not None:  # looked at once: a roll beside it lets go of it
            return offset_index.lookup(data, base, offset)
        _, floor, _ = self._entries_up_to(_OFFSET_KEY, offset - base, may_wait=may_wait)
        return offset_index.read_entry(floor, base, 0) if floor else OffsetPosition(base, 0)

    def last_entry(self) -> OffsetPosition:
        """The newest entry, or (base offset, 0)."""
        return self.lookup(2**62)

    def first_entry_from(self, position: int, *, may_wait: bool = True) -> OffsetPosition | None:
        """The first entry at or after byte `position`: offsets before that byte are below it.

        Raises:
            WouldWait: as `lookup`.
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
        """Forget entries of batches that end at or after `offset` (only while active)."""
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
    """From a timestamp to an offset before which no later record lies."""

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
        """Whether only the slot kept for the closing entry is left."""
        return self.entries >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless its timestamp is no larger than the last one's."""
        if timestamp > self.last.timestamp:
            self._append(time_index.pack_entry(timestamp, offset - self.base_offset))
            self.last = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The largest entry <= `timestamp`, or (-1, base offset)."""
        base, data = self.base_offset, self._data
        if data is not None:
            return time_index.lookup(data, base, timestamp)
        _, floor, _ = self._entries_up_to(_TIME_KEY, timestamp)
        return time_index.read_entry(floor, base, 0) if floor else TimestampOffset(-1, base)

    def last_entry(self) -> TimestampOffset:
        """The newest entry: the segment's largest timestamp once it is closed."""
        if self._data is not None:
            return self.last
        file = self._open()
        entries = file.size() // self.entry_size
        if not entries:
            return TimestampOffset(-1, self.base_offset)
        entry = self._disk.read_at(file, (entries - 1) * self.entry_size, self.entry_size)
        return time_index.read_entry(entry, self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Forget entries that speak of `offset` or later ones (only while active)."""
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
