"""Chunks of remote segments in memory files, shared by all who read them.

Belongs to the owner's thread; loading runs in the reader pool. Bounded by bytes, the least recently
used goes first. A chunk whose descriptor the broker still holds counts until it is released, also
after it was evicted: its memory is not free before.

The file of an evicted chunk takes the next one: fresh memory costs 0.45 CPU s per GB, what is read,
checked and copied into used memory 0.15 in all. So a file is written again, but never while
anybody may still read the chunk before: not before the broker has released each of its
descriptors, which it does when it has copied out what it sends
(docs/decisions/remote-regions-are-copied-from-a-mapping.md).

A chunk is read and checked in a buffer that stays warm in the processor's cache, and then written
into its file at once.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from rlm.chunk import Chunk, DamagedChunkError, check_chunk
from rlm.loads import Loads, Wait, Waiter
from rlm.performer import READER_POOL
from rlm.plugin_calls import PluginCalls
from rlm.segment_index import SegmentIndex
from rlm.telemetry import Telemetry
from rsm_plugins.api import RemoteStorageError, RemoteStorageManager
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.disk import Disk, OpenFile
from runtime.scheduler import Scheduler

ChunkKey = tuple[bytes, int]


@dataclass(slots=True)
class _Place:
    """Memory set aside for a chunk that is being loaded."""

    file: OpenFile
    capacity_bytes: int


class ChunkCache:
    """Cached chunks by (segment id, number)."""

    def __init__(
        self,
        *,
        disk: Disk,
        storage: RemoteStorageManager,
        loads: Loads,
        calls: PluginCalls,
        telemetry: Telemetry,
        scheduler: Scheduler,
        size_bytes_max: int,
        call_max_ms: int,
        distrust_index: Callable[[bytes], None],
    ) -> None:
        self._distrust_index = distrust_index
        self._disk, self._storage, self._loads = disk, storage, loads
        self._calls, self._telemetry, self._scheduler = calls, telemetry, scheduler
        self._max, self._call_max_ms = size_bytes_max, call_max_ms
        self._chunks: OrderedDict[ChunkKey, Chunk] = OrderedDict()
        self._held: dict[int, Chunk] = {}  # handed out, by token; evicted ones among them
        self._total = 0
        self._next_token = 0
        self._buffers = _Buffers()

    @property
    def total_bytes(self) -> int:
        """Memory of all chunks: cached, evicted but held, and being loaded."""
        return self._total

    def get(
        self,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        number: int,
        waiter: Waiter,
    ) -> Chunk | Wait:
        """A chunk, or why it is not here yet."""
        key = (metadata.id.id, number)
        found = self._chunks.get(key)
        if found is not None:
            self._chunks.move_to_end(key)
            return found
        size = index.borders[number + 1] - index.borders[number]
        place: _Place | None = None

        def make_room() -> bool:
            nonlocal place
            place = self._set_aside(size)
            return place is not None

        def load(_: int) -> Chunk:
            assert place is not None
            return self._load(metadata, index, number, place)

        def free_room() -> None:
            assert place is not None
            self._drop(place.file, place.capacity_bytes)

        return self._loads.ask(
            ("chunk", *key),
            load,
            lambda chunk: self._loaded(key, chunk),
            waiter,
            # It may be the index that is wrong: the next try uses the store's.
            on_damage=lambda: self._distrust_index(metadata.id.id),
            make_room=make_room,
            free_room=free_room,
        )

    def _loaded(self, key: ChunkKey, chunk: Chunk) -> None:
        if key in self._chunks:  # loaded twice: the first load was given up, and came
            self._drop(chunk.file, chunk.capacity_bytes)
            return
        self._next_token += 1
        chunk.token = self._next_token
        self._chunks[key] = chunk

    def peek(self, metadata: RemoteLogSegmentMetadata, number: int) -> Chunk | None:
        """A chunk that is here."""
        return self._chunks.get((metadata.id.id, number))

    def prefetch(
        self, metadata: RemoteLogSegmentMetadata, index: SegmentIndex, number: int
    ) -> None:
        """Have a chunk loaded that somebody will want soon, if there is room for it."""
        if (metadata.id.id, number) not in self._chunks and self._loads.has_room():
            self.get(metadata, index, number, _nobody)

    def _set_aside(self, size: int) -> _Place | None:
        """Memory for `size` bytes, by eviction if need be; None if what is held leaves no room."""
        idle = sum(c.capacity_bytes for c in self._chunks.values() if not c.handed_out)
        # One chunk larger than the whole cache must be readable too.
        if self._total - idle + size > self._max and self._total > idle:
            return None
        free: Chunk | None = None
        for key in list(self._chunks):
            if self._total + size <= self._max:
                break
            chunk = self._chunks[key]
            if chunk.handed_out:
                continue
            del self._chunks[key]
            self._total -= chunk.capacity_bytes
            if free is None:
                free = chunk
            else:
                chunk.file.close()
        if free is None:
            place = _Place(self._disk.memfd("chunk"), size)
        else:
            place = self._fit(free, size)
        self._total += place.capacity_bytes
        return place

    def _fit(self, chunk: Chunk, size: int) -> _Place:
        """The file of an evicted chunk for one of `size` bytes."""
        if chunk.capacity_bytes <= size:
            return _Place(chunk.file, size)
        if self._total + chunk.capacity_bytes > self._max or chunk.capacity_bytes > 2 * size:
            self._disk.truncate(chunk.file, size)
            return _Place(chunk.file, size)
        return _Place(chunk.file, chunk.capacity_bytes)

    def _drop(self, file: OpenFile, capacity_bytes: int) -> None:
        self._total -= capacity_bytes
        file.close()

    def room_for_windows(self) -> int:
        """So many bytes may the broker hold beyond what it has: at most half of the cache."""
        return self._max // 2 - sum(chunk.capacity_bytes for chunk in self._held.values())

    def share(self, readers: int) -> int:
        """Bytes that each of so many readers may have loaded ahead."""
        return self._max // 2 // max(1, readers)

    def forget(self, segment_id: bytes) -> None:
        """Let go of all chunks of a segment."""
        for key in [key for key in self._chunks if key[0] == segment_id]:
            chunk = self._chunks.pop(key)
            chunk.evicted = True
            if not chunk.handed_out:
                self._drop(chunk.file, chunk.capacity_bytes)

    def hand_out(self, chunk: Chunk) -> None:
        """The broker gets a descriptor of it."""
        chunk.handed_out += 1
        self._held[chunk.token] = chunk

    def released(self, tokens: list[int]) -> None:
        """The broker closed these descriptors."""
        for token in tokens:
            chunk = self._held.get(token)
            if chunk is None:
                continue
            chunk.handed_out -= 1
            if chunk.handed_out == 0:
                del self._held[token]
                if chunk.evicted:
                    self._drop(chunk.file, chunk.capacity_bytes)

    def _load(
        self, metadata: RemoteLogSegmentMetadata, index: SegmentIndex, number: int, place: _Place
    ) -> Chunk:
        first, end = index.borders[number], index.borders[number + 1]
        size = end - first
        buffer = self._buffers.take(size)
        try:
            with memoryview(buffer)[:size] as view:
                self._fill(metadata, view, first, end)
                table = check_chunk(view, metadata, index, number)
                self._disk.write_at(place.file, 0, view)
        finally:
            self._buffers.give_back(buffer)
        return Chunk(0, place.file, size, place.capacity_bytes, table)

    def _fill(
        self, metadata: RemoteLogSegmentMetadata, view: memoryview, first: int, end: int
    ) -> None:
        """One ranged read of the store."""
        got = 0
        try:
            with (
                self._calls.call(READER_POOL, "fetch", self._call_max_ms),
                self._storage.fetch_log_segment(metadata, first, end - 1) as stream,
            ):
                readinto = getattr(stream, "readinto", None)
                while got < len(view):
                    if readinto is not None:
                        count = readinto(view[got:])
                    else:
                        data = stream.read(min(1 << 20, len(view) - got))
                        view[got : got + len(data)] = data
                        count = len(data)
                    if not count:
                        break
                    got += count
        except (RemoteStorageError, OSError) as error:
            self._telemetry.store_read_failed(error)
            raise
        if got < len(view):
            raise DamagedChunkError(f"the object ends {len(view) - got} bytes too early")
        self._telemetry.store_read(got)


class _Buffers:
    """Read buffers for the pool's threads; a few are kept, so that an idle tier holds little."""

    _KEPT = 2

    def __init__(self) -> None:
        self._free: deque[bytearray] = deque()

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes."""
        try:
            buffer = self._free.popleft()
        except IndexError:
            return bytearray(size)
        return buffer if len(buffer) >= size else bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        """It is not used any more."""
        if len(self._free) < self._KEPT:
            self._free.append(buffer)


def _nobody() -> None:
    """Nobody waits for a prefetched chunk."""
