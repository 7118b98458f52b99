"""Chunks of remote segments in memory files, shared by all readers.

Belongs to the owner's thread; loads run in the reader pool. Bounded by bytes; an `EvictionPolicy`
orders evictions. A chunk whose descriptor the broker holds is not evicted: its memory is not free
before the release.

The next chunk reuses the file of an evicted one. Fresh memory costs 0.45 CPU s per GB; reading,
checking and copying into used memory costs 0.15 in all. A file is never rewritten while the earlier
chunk may still be read: only after the broker has released all its descriptors. The broker releases
them once it has copied the bytes that it sends
(docs/decisions/remote-regions-are-copied-from-a-mapping.md).

At most 3/8 of the cache is loaded ahead of sequential readers. `rlm.read.leases` bounds the leases.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rlm.config import TierConfig
from rlm.read.chunk import Chunk
from rlm.read.chunk_loader import Allocation, ChunkLoader, Leaving
from rlm.read.disk_chunk_cache import ChunkKey
from rlm.read.eviction_policy import EvictionPolicy, make_policy
from rlm.read.index_cache import IndexCache
from rlm.read.loads import DAMAGE, Loads, Wait
from rlm.read.object_faults import LOG
from rlm.read.read_ahead_policy import StoreEstimate
from rlm.read.remote_store import RemoteStore
from rlm.read.segment_index import SegmentIndex
from rlm.read.wait_queue import Waiter
from rsm_plugins.api import RemoteResourceNotFoundError
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.disk import Disk, OpenFile
from runtime.disk_errors import is_of_exhaustion

log = logging.getLogger(__name__)


class ChunkCache:
    """Cached chunks by segment and bytes.

    Attributes:
        held_bytes: Memory of the chunks that the broker holds.
    """

    def __init__(
        self,
        *,
        store: RemoteStore,
        loader: ChunkLoader,
        loads: Loads,
        indexes: IndexCache,
        config: TierConfig,
        disk: Disk,
    ) -> None:
        self._loader, self._loads, self._indexes, self._disk = loader, loads, indexes, disk
        self._telemetry, self._faults = store.telemetry, store.faults
        self._max = config.chunk_cache_bytes
        self._policy: EvictionPolicy[ChunkKey] = make_policy(config.chunk_cache_policy, self._max)
        self._chunks: dict[ChunkKey, Chunk] = {}
        self._total = self._idle = 0
        self._next_token = self.held_bytes = 0
        self.store = StoreEstimate()

    @property
    def total_bytes(self) -> int:
        """Memory of all chunks: cached, held by the broker, and being loaded."""
        return self._total

    # -- reading

    def key_at(
        self,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        position: int,
        *,
        small: bool,
    ) -> ChunkKey:
        """Key of the chunk with the byte at `position` of the segment.

        With `small` it is the key of a slice, unless the chunk is cached or being loaded.
        """
        number = index.chunk_at(position)
        key = _key(metadata, index.borders[number], index.borders[number + 1])
        if small and key not in self._chunks and ("chunk", *key) not in self._loads:
            return _key(metadata, *index.slice_at(position))
        return key

    def get(
        self,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        key: ChunkKey,
        waiter: Waiter,
        reader: str = "",
    ) -> Chunk | Wait:
        """A chunk or slice, or the reason why it is not here yet."""
        found = self._chunks.get(key)
        if found is not None:
            return found
        return self._loads.ask(_ChunkLoad(self, metadata, index, [key]), waiter, reader)

    def peek(
        self, metadata: RemoteLogSegmentMetadata, index: SegmentIndex, first: int
    ) -> Chunk | None:
        """The chunk that begins at position `first`, None if it is not cached."""
        number = index.chunk_at(first)
        if index.borders[number] != first:
            return None
        return self._chunks.get(_key(metadata, first, index.borders[number + 1]))

    def enter(
        self, metadata: RemoteLogSegmentMetadata, chunk: Chunk, *, waited: bool = False
    ) -> None:
        """Note that a reader has reached a chunk, which it may read in several steps."""
        key = _key(metadata, chunk.first, chunk.end)
        if self._chunks.get(key) is not chunk:
            return
        self._policy.enter(key)
        self._telemetry.cache_asked("memory", is_hit=not waited)
        if chunk.is_ahead:
            chunk.is_ahead = False
            self._telemetry.ahead("used", chunk.size_bytes)

    # -- loading ahead

    def is_wanted(self, metadata: RemoteLogSegmentMetadata, first: int, end: int) -> bool:
        """True if [first, end) is not cached, not loading, and did not fail at its last load."""
        key = _key(metadata, first, end)
        load = ("chunk", *key)
        return not (key in self._chunks or load in self._loads or self._loads.has_failed(load))

    def load_ahead(
        self,
        owner: object,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        numbers: Sequence[int],
    ) -> bool:
        """Load adjacent chunks for a reader; False if there is no memory for all of them."""
        spans = [(index.borders[number], index.borders[number + 1]) for number in numbers]
        keys = [_key(metadata, first, end) for first, end in spans]
        load = _ChunkLoad(self, metadata, index, keys, is_ahead=True)
        return self._loads.ahead(owner, load) and len(load.allocations) == len(numbers)

    def share(self, readers: int) -> int:
        """Bytes that may be loaded ahead of each of `readers` readers."""
        return self._max * 3 // 8 // max(1, readers)

    # -- memory

    def _loaded(self, key: ChunkKey, chunk: Chunk, *, is_ahead: bool) -> None:
        if chunk.fetched is not None:
            fetched = chunk.fetched
            self.store.observe(fetched.first_byte_ms, fetched.transfer_ms, fetched.size_bytes)
        if key in self._chunks:  # loaded twice: the first load was given up, and arrived late
            self._total -= chunk.capacity_bytes
            chunk.file.close()
            return
        self._next_token += 1
        chunk.token, chunk.is_ahead = self._next_token, is_ahead
        self._chunks[key] = chunk
        self._idle += chunk.capacity_bytes
        self._policy.add(key, chunk.size_bytes)

    def _set_aside(self, first: int, end: int) -> Allocation | None:
        """Memory for the bytes, by eviction if necessary; None if there is none now.

        None means that the broker holds too much, or that the process has no descriptor left.
        """
        size = end - first
        # One chunk larger than the whole cache must be readable, too.
        if self._total - self._idle + size > self._max and self._total > self._idle:
            return None
        victims, free = list[tuple[ChunkKey, Chunk]](), self._max - self._total
        if free < size:
            for key in self._policy.victims():
                chunk = self._chunks[key]
                if chunk.handed_out:
                    continue
                victims.append((key, chunk))
                free += chunk.capacity_bytes
                if free >= size:
                    break
        for key, chunk in victims:
            self._evict(key, chunk)
        try:
            allocation = self._fit(first, end, victims[0][1] if victims else None)
        except OSError as error:  # only for a new file: no chunk was evicted for it
            if not is_of_exhaustion(log, "memory for chunks", error):
                raise
            return None
        allocation.leaving = [
            Leaving(key, chunk.file, chunk.size_bytes, is_reused=chunk.file is allocation.file)
            for key, chunk in victims
        ]
        self._total += allocation.capacity_bytes
        return allocation

    def _evict(self, key: ChunkKey, chunk: Chunk) -> None:
        del self._chunks[key]
        self._policy.remove(key)
        self._total -= chunk.capacity_bytes
        self._idle -= chunk.capacity_bytes
        self._telemetry.cache_evicted("memory")
        if chunk.is_ahead:
            self._telemetry.ahead("wasted", chunk.size_bytes)

    def _fit(self, first: int, end: int, chunk: Chunk | None) -> Allocation:
        """A new file, or that of the evicted `chunk`, for the bytes."""
        size = end - first
        if chunk is None:
            return Allocation(first, end, self._disk.memfd("chunk"), size)
        if chunk.capacity_bytes <= size:
            return Allocation(first, end, chunk.file, size)
        if self._total + chunk.capacity_bytes > self._max or chunk.capacity_bytes > 2 * size:
            return Allocation(first, end, chunk.file, size, shrink=True)
        return Allocation(first, end, chunk.file, chunk.capacity_bytes)

    def _drop(self, allocation: Allocation) -> None:
        """Free the memory of a load that brought nothing."""
        self._total -= allocation.capacity_bytes
        for each in allocation.leaving:
            each.file.close()
        allocation.file.close()

    # -- chunks held by the broker, see `rlm.read.leases`

    def hand_out(self, chunk: Chunk) -> None:
        """Count a descriptor of the chunk that the broker gets."""
        chunk.handed_out += 1
        if chunk.handed_out == 1:
            self.held_bytes += chunk.capacity_bytes
            self._idle -= chunk.capacity_bytes

    def take_back(self, chunk: Chunk) -> None:
        """Count a descriptor of the chunk that the broker has closed."""
        chunk.handed_out -= 1
        if chunk.handed_out == 0:
            self.held_bytes -= chunk.capacity_bytes
            self._idle += chunk.capacity_bytes
            self._loads.has_memory()

    def copy_of(self, chunk: Chunk, position: int, size_bytes: int) -> OpenFile | None:
        """Bytes of a chunk in a new file; None if the process has no descriptor left."""
        try:
            file = self._disk.memfd("copy")
            self._disk.write_at(file, 0, self._disk.read_at(chunk.file, position, size_bytes))
        except OSError as error:
            if not is_of_exhaustion(log, "memory for copies of chunks", error):
                raise
            return None
        return file


def _key(metadata: RemoteLogSegmentMetadata, first: int, end: int) -> ChunkKey:
    return metadata.id.id, first, end


@dataclass(slots=True, eq=False)
class _ChunkLoad:
    """A `Load` of adjacent chunks of a segment, or of one slice.

    Attributes:
        chunk_keys: Of a load ahead: without those for which there is no memory.
        is_ahead: No reader waits for them yet.
        allocations: Memory set aside for them.
    """

    cache: ChunkCache
    metadata: RemoteLogSegmentMetadata
    index: SegmentIndex
    chunk_keys: list[ChunkKey]
    is_ahead: bool = False
    allocations: list[Allocation] = field(default_factory=list)

    @property
    def keys(self) -> list[tuple[str, bytes, int, int]]:
        return [("chunk", *key) for key in self.chunk_keys]

    def reserve(self) -> bool:
        for _, first, end in self.chunk_keys:
            allocation = self.cache._set_aside(first, end)
            if allocation is None:
                break
            self.allocations.append(allocation)
        del self.chunk_keys[len(self.allocations) :]
        if self.allocations and self.is_ahead:
            self.cache._telemetry.ahead(
                "asked", self.allocations[-1].end - self.allocations[0].first
            )
        return bool(self.allocations)

    def run(self, damaged: int) -> Iterator[Chunk]:
        return self.cache._loader.load(self.metadata, self.index, self.allocations)

    def arrived(self, number: int, value: Chunk) -> None:
        self.cache._loaded(self.chunk_keys[number], value, is_ahead=self.is_ahead)

    def failed(self, error: BaseException, is_final: bool) -> None:
        if isinstance(error, DAMAGE):
            # The index may be wrong instead: the next try uses the store's.
            self.cache._indexes.distrust(self.metadata.id.id)
        if is_final or isinstance(error, RemoteResourceNotFoundError):
            span = (self.allocations[0].first, self.allocations[-1].end)
            self.cache._faults.failed(self.metadata, LOG, error, span)

    def free(self, number: int) -> None:
        self.cache._drop(self.allocations[number])
