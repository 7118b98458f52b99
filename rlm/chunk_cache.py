"""Chunks of remote segments in memory files, shared by all who read them.

Belongs to the owner's thread; loading runs in the reader pool. Bounded by bytes, the least recently
used goes first. A chunk whose descriptor the broker still holds counts until it is released, also
after it was evicted: its memory is not free before. Nothing is ever written into a file again.

A chunk is read and checked in a buffer that stays warm in the processor's cache, and then written
into its file at once: 0.6 CPU s per GB, where filling and checking a mapping of the file took 1.1,
because every page was cleared and faulted in first.
"""

from collections import OrderedDict, deque
from collections.abc import Callable

from rlm.chunk import Chunk, DamagedChunkError, check_chunk
from rlm.loads import Loads, Wait, Waiter
from rlm.performer import READER_POOL
from rlm.plugin_calls import PluginCalls
from rlm.segment_index import SegmentIndex
from rlm.telemetry import Telemetry
from rsm_plugins.api import RemoteStorageError, RemoteStorageManager
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.disk import Disk
from runtime.scheduler import Scheduler

ChunkKey = tuple[bytes, int]
_FULL_RETRY_MS = 20


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
        self._loading = 0
        self._next_token = 0
        self._buffers = _Buffers()

    @property
    def total_bytes(self) -> int:
        """Bytes of all chunks that exist, evicted but held ones included."""
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
        if not self._make_room(size):
            self._scheduler.call_later(_FULL_RETRY_MS, waiter)
            return Wait.FULL

        def loaded(chunk: Chunk) -> None:
            self._next_token += 1
            chunk.token = self._next_token
            self._total += chunk.size_bytes
            self._chunks[key] = chunk
            self._make_room(0)

        return self._loads.ask(
            ("chunk", *key),
            lambda _: self._load(metadata, index, number),
            loaded,
            waiter,
            # It may be the index that is wrong: the next try uses the store's.
            on_damage=lambda: self._distrust_index(metadata.id.id),
        )

    def peek(self, metadata: RemoteLogSegmentMetadata, number: int) -> Chunk | None:
        """A chunk that is here."""
        return self._chunks.get((metadata.id.id, number))

    def prefetch(
        self, metadata: RemoteLogSegmentMetadata, index: SegmentIndex, number: int
    ) -> None:
        """Have a chunk loaded that somebody will want soon, if there is room for it."""
        if (metadata.id.id, number) not in self._chunks and self._loads.has_room():
            self.get(metadata, index, number, _nobody)

    def _make_room(self, size: int) -> bool:
        """Evict until `size` more bytes fit; False if what is held leaves no room."""
        for key in list(self._chunks):
            if self._total + size <= self._max:
                break
            chunk = self._chunks[key]
            if chunk.handed_out or (len(self._chunks) == 1 and size == 0):
                continue
            del self._chunks[key]
            self._drop(chunk)
        if self._total + size <= self._max:
            return True
        return self._total == 0  # one chunk larger than the whole cache must be readable too

    def _drop(self, chunk: Chunk) -> None:
        self._total -= chunk.size_bytes
        chunk.file.close()

    def forget(self, segment_id: bytes) -> None:
        """Let go of all chunks of a segment."""
        for key in [key for key in self._chunks if key[0] == segment_id]:
            chunk = self._chunks.pop(key)
            chunk.evicted = True
            if not chunk.handed_out:
                self._drop(chunk)

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
                    self._drop(chunk)

    def _load(self, metadata: RemoteLogSegmentMetadata, index: SegmentIndex, number: int) -> Chunk:
        first, end = index.borders[number], index.borders[number + 1]
        size = end - first
        buffer = self._buffers.take(size)
        try:
            with memoryview(buffer)[:size] as view:
                self._fill(metadata, view, first, end)
                table = check_chunk(view, metadata, index, number)
                file = self._disk.memfd(f"chunk-{number}")
                self._disk.write_at(file, 0, view)
        finally:
            self._buffers.give_back(buffer)
        return Chunk(0, file, size, table)

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
