"""Loads chunks into memory files: from the disk cache, or adjacent ones by one GET. Pool threads.

A chunk is read and checked in a buffer that stays in the processor's cache, and then written into
its file. The earlier chunk of that file goes to the disk cache first.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from rlm.config import TierConfig
from rlm.read.chunk import Chunk, DamagedChunkError, Fetched, check_chunk
from rlm.read.disk_chunk_cache import ChunkKey, DiskChunkCache
from rlm.read.object_faults import LOG
from rlm.read.remote_store import RemoteStore
from rlm.read.segment_index import SegmentIndex
from rlm.workers import READER_POOL
from rsm_plugins.api import RemoteObjectDamagedError, RemoteResourceNotFoundError
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.disk import Disk, OpenFile
from runtime.raised import named

PART_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Leaving:
    """A chunk that was evicted from memory; its file is closed, or reused by the next chunk."""

    key: ChunkKey
    file: OpenFile
    size_bytes: int
    is_reused: bool


@dataclass(slots=True)
class Allocation:
    """Memory set aside for the bytes [first, end) of a segment.

    Attributes:
        capacity_bytes: Memory that the file has, or will have.
        shrink: The file is larger than that until the chunks in `leaving` are stored.
        leaving: Evicted chunks that freed memory for it.
    """

    first: int
    end: int
    file: OpenFile
    capacity_bytes: int
    shrink: bool = False
    leaving: list[Leaving] = field(default_factory=list)


class ChunkLoader:
    """Fills allocations with the bytes of segments."""

    def __init__(
        self,
        *,
        store: RemoteStore,
        on_disk: DiskChunkCache,
        config: TierConfig,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._store, self._on_disk, self._config = store, on_disk, config
        self._disk, self._clock = disk, clock
        self._buffers = _Buffers()

    def load(
        self,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        allocations: Sequence[Allocation],
    ) -> Iterator[Chunk]:
        """Fill adjacent allocations in order; each chunk is yielded when complete and checked.

        Raises:
            DamagedChunkError: The bytes are wrong.
            RemoteStorageError: The store failed.
        """
        for allocation in allocations:
            self._let_go(allocation)
        segment_id = metadata.id.id
        at = 0
        while at < len(allocations):
            chunk = self._from_disk(metadata, index, allocations[at])
            if chunk is not None:
                at += 1
                yield chunk
                continue
            end = at + 1
            while (
                end < len(allocations) and _key(segment_id, allocations[end]) not in self._on_disk
            ):
                end += 1
            yield from self._fetch(metadata, index, allocations[at:end])
            at = end

    def _let_go(self, allocation: Allocation) -> None:
        for each in allocation.leaving:
            self._on_disk.put(each.key, each.file, each.size_bytes)
            if not each.is_reused:
                each.file.close()
        if allocation.shrink:
            self._disk.truncate(allocation.file, allocation.capacity_bytes)

    def _from_disk(
        self, metadata: RemoteLogSegmentMetadata, index: SegmentIndex, allocation: Allocation
    ) -> Chunk | None:
        key = _key(metadata.id.id, allocation)
        if key not in self._on_disk:
            return None
        buffer = self._buffers.take(allocation.end - allocation.first)
        try:
            with memoryview(buffer)[: allocation.end - allocation.first] as view:
                if not self._on_disk.read_into(key, view):
                    return None
                chunk = self._checked(metadata, index, allocation, view)
        except DamagedChunkError:
            self._on_disk.drop(key)  # the store's bytes count
            return None
        finally:
            self._buffers.give_back(buffer)
        self._store.telemetry.cache_asked("disk", is_hit=True)
        return chunk

    def _checked(
        self,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        allocation: Allocation,
        view: memoryview,
    ) -> Chunk:
        table = check_chunk(view, metadata, index, allocation.first)
        self._disk.write_at(allocation.file, 0, view)
        return Chunk(
            allocation.first, allocation.end, allocation.file, allocation.capacity_bytes, table
        )

    def _fetch(
        self,
        metadata: RemoteLogSegmentMetadata,
        index: SegmentIndex,
        allocations: Sequence[Allocation],
    ) -> Iterator[Chunk]:
        """One ranged read of the store."""
        first, end = allocations[0].first, allocations[-1].end
        topic = metadata.id.topic_id_partition.topic
        buffer = self._buffers.take(
            max(allocation.end - allocation.first for allocation in allocations)
        )
        began_ms, got, failed = self._clock.monotonic_ms(), 0, True
        try:
            with (
                self._store.calls.call(READER_POOL, "fetch", self._config.call_max_ms),
                self._store.storage.fetch_log_segment(metadata, first, end - 1) as stream,
            ):
                opened_ms = self._clock.monotonic_ms()
                for allocation in allocations:
                    with memoryview(buffer)[: allocation.end - allocation.first] as view:
                        count = _fill(stream, view)
                        got += count
                        _check_whole(count, len(view), end - first - got)
                        chunk = self._checked(metadata, index, allocation, view)
                    self._store.faults.read_well(metadata, LOG, (allocation.first, allocation.end))
                    if allocation is allocations[-1]:
                        now_ms = self._clock.monotonic_ms()
                        chunk.fetched = Fetched(opened_ms - began_ms, now_ms - opened_ms, got)
                    if self._on_disk.is_on:
                        self._store.telemetry.cache_asked("disk", is_hit=False)
                    yield chunk
            failed = False
        except (RemoteResourceNotFoundError, RemoteObjectDamagedError, DamagedChunkError):
            raise  # the store answered
        except Exception as error:
            self._store.telemetry.fetch_outage.failed(named(error))
            raise
        finally:
            self._buffers.give_back(buffer)
            took_ms = self._clock.monotonic_ms() - began_ms
            self._store.telemetry.store_called("fetch", topic, got, took_ms, failed=failed)
        self._store.telemetry.fetch_outage.succeeded()


def _key(segment_id: bytes, allocation: Allocation) -> ChunkKey:
    return segment_id, allocation.first, allocation.end


def _check_whole(got: int, wanted: int, missing: int) -> None:
    if got < wanted:
        raise DamagedChunkError(f"the object ends {missing} bytes too early")


def _fill(stream: BinaryIO, view: memoryview) -> int:
    """Fill `view` from the stream; returns fewer bytes only at the stream's end."""
    readinto = getattr(stream, "readinto", None)
    got = 0
    while got < len(view):
        if readinto is not None:
            count = readinto(view[got:])
        else:
            data = stream.read(min(PART_BYTES, len(view) - got))
            view[got : got + len(data)] = data
            count = len(data)
        if not count:
            break
        got += count
    return got


class _Buffers:
    """Read buffers of the pool's threads; few are kept, so that an idle tier uses little memory."""

    _KEPT = 8

    def __init__(self) -> None:
        self._free: deque[bytearray] = deque()

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes."""
        try:
            buffer = self._free.pop()
        except IndexError:
            return bytearray(size)
        return buffer if len(buffer) >= size else bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        if len(self._free) < self._KEPT:
            self._free.append(buffer)
